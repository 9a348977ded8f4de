"""The cache of cells that only questions asked for: what goes, what stays, kills and others."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.facts import REMOVAL, folder_of, read_facts
from warehouse.errors import DatabaseError
from warehouse.plan.cached import beside_the_cache
from warehouse.studies.stored import QUESTION_FILE
from warehouse.studies.study import Study, read_study
from warehouse.sweep.plan_cache import cached_questions, surplus_questions, trim_plan_cache
from warehouse.sweep.record import drop_study
from warehouse.sweep.runner import run_study


def study(name: str, *num_gpus: int, **system: float) -> Study:
    space = {"model": "gpt3", "accelerator": "H200", "nvlink_size": 8, "num_gpus": [*num_gpus]}
    content = {"name": name, "estimator": "roofline", "variant": "corrected"}
    space |= {"global_batch_size": 512}
    return read_study({**content, "space": space, "system": system}, name)


def question(name: str, *num_gpus: int, **system: float) -> Study:
    return replace(study(f"plan {name}", *num_gpus, **system), file=QUESTION_FILE)


def names(database: Path) -> list[str]:
    with open_for_read(database) as connection:
        return [name for (name,) in connection.sql("select study from study order by 1").fetchall()]


def num_gpus(database: Path) -> list[int]:
    """Return the GPU counts of the stored cells."""
    query = "select distinct num_gpus from current_cell join problem using (problem_id) order by 1"
    with open_for_read(database) as connection:
        return [count for (count,) in connection.sql(query).fetchall()]


@pytest.fixture
def asked(
    database: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Store studies, one after the other; by default the cache is unlimited."""
    database.write_bytes(empty_warehouse.read_bytes())
    monkeypatch.setenv("WAREHOUSE_PLAN_CACHE_GB", "999")

    def store(*studies: Study) -> None:
        for each in studies:
            run_study(database, each, workers=1)

    return store


def limited(monkeypatch: pytest.MonkeyPatch, database: Path, share: float) -> None:
    """Set the limit to a share of what the cache holds."""
    with open_for_read(database) as connection:
        size = sum(question.num_bytes for question in cached_questions(connection))
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: share * size)


def test_the_oldest_questions_go_first_and_only_from_a_cache_that_is_too_large(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(question("b", 16), question("a", 32), question("c", 64))
    assert trim_plan_cache(database) == []
    limited(monkeypatch, database, 1.01)
    assert trim_plan_cache(database) == []
    limited(monkeypatch, database, 0.9)
    assert trim_plan_cache(database)[0] == "plan b"
    assert "plan c" in names(database)
    assert 16 not in num_gpus(database)
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: 0.0)
    assert trim_plan_cache(database, kept=["plan c"]) in ([], ["plan a"])
    assert names(database) == ["plan c"]
    assert num_gpus(database) == [64]


def test_cells_of_a_study_and_of_a_newer_question_stay(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(study("kept", 8, 16), question("old", 16, 32, 64), question("new", 64, 128))
    with open_for_read(database) as connection:
        rows = {question.study: question.num_rows for question in cached_questions(connection)}
        counted = dict(
            connection.sql(
                "select num_gpus, num_rows from current_cell join problem using (problem_id)"
            )
            .aggregate("num_gpus, sum(num_rows)::int")
            .fetchall()
        )
    assert rows == {"plan old": counted[32], "plan new": counted[64] + counted[128]}
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: 0.0)
    assert trim_plan_cache(database, kept=["plan new"]) == ["plan old"]
    assert num_gpus(database) == [8, 16, 64, 128]
    assert trim_plan_cache(database) == ["plan new"]
    assert num_gpus(database) == [8, 16]
    assert names(database) == ["kept"]
    assert run_study(database, study("kept", 8, 16)).rows == 0


def test_a_study_that_only_has_the_name_of_a_question_stays(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(study("plan of mine", 16))
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: 0.0)
    assert trim_plan_cache(database) == []
    with open_for_read(database) as connection:
        [(shown,)] = connection.sql("select study from study_progress").fetchall()
    assert shown == "plan of mine"


def test_questions_whose_problems_were_measured_stay(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(question("measured", 16), question("other", 32))
    with open_for_write(database) as connection:
        connection.execute(
            "insert into measurement by name select 'ours' as reference, 'a' as measured_row,"
            " 1.0 as measured_step_seconds, problem_id from problem where num_gpus = 16"
        )
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: 0.0)
    assert trim_plan_cache(database) == ["plan other"]
    assert num_gpus(database) == [16]


def test_a_question_that_went_is_removed_from_the_facts_and_is_asked_again(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(question("a", 16))
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: 0.0)
    trim_plan_cache(database)
    facts = read_facts(folder_of(database))
    assert [entry.kind for entry in facts.entries] == ["study", REMOVAL]
    assert facts.live() == []
    assert run_study(database, question("a", 16)).rows > 0


def test_the_file_does_not_grow_with_every_question(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    asked(question("0", 1024, 2048, 4096))
    limited(monkeypatch, database, 2.5)
    for number in range(1, 7):
        asked(question(str(number), 1024, 2048, 4096, hbm_bytes=1e11 + number))
        trim_plan_cache(database, kept=[f"plan {number}"])
        with open_for_read(database) as connection:
            assert surplus_questions(connection, [f"plan {number}"]) == []
        sizes.append(database.stat().st_size)
    assert 1 <= len(names(database)) <= 3
    assert sizes[-1] <= 1.2 * sizes[2]


def removing(database: str, moment: str) -> None:
    """Remove all questions in a process that is killed at a moment of it."""

    def killed(*_: Any, **__: Any) -> None:
        os._exit(9)

    from warehouse.sweep import record as module

    record: Any = module
    if moment == "after the facts":
        append = record.record

        def appended(*arguments: Any, **options: Any) -> None:
            append(*arguments, **options)
            killed()

        record.record = appended
    else:
        record.derived = SimpleNamespace(refresh=killed)
    trim_plan_cache(Path(database))


@pytest.mark.parametrize("moment", ["after the rows", "after the facts"])
def test_a_kill_in_the_middle_of_a_removal_loses_nothing(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    asked(study("kept", 8), question("a", 16), question("b", 32))
    with open_for_read(database) as connection:
        before = connection.sql("select cell_id, count(*) from roofline group by 1").fetchall()
    monkeypatch.setenv("WAREHOUSE_PLAN_CACHE_GB", "0")
    process = multiprocessing.get_context("spawn").Process(
        target=removing, args=(str(database), moment)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert names(database) == ["kept", "plan a", "plan b"]
    with open_for_read(database) as connection:
        after = connection.sql("select cell_id, count(*) from roofline group by 1").fetchall()
    assert sorted(after) == sorted(before)
    assert trim_plan_cache(database) == ["plan a", "plan b"]
    assert [entry.name for entry in read_facts(folder_of(database)).live()] == ["kept"]


def test_nothing_is_removed_while_another_process_has_the_file_open(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(question("a", 16))
    monkeypatch.setattr("warehouse.settings.plan_cache_bytes", lambda: 0.0)
    with open_for_read(database):  # a reader of this process keeps writers out as well
        assert trim_plan_cache(database) == []
    assert names(database) == ["plan a"]
    assert trim_plan_cache(database) == ["plan a"]


def test_an_answer_whose_layouts_another_process_has_removed_is_refused(
    asked: Callable[..., None], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(question("other", 8))
    trimmed: list[object] = []
    monkeypatch.setattr(
        "warehouse.plan.cached.trim_plan_cache", lambda _, kept: trimmed.append([*kept])
    )
    asking = question("asked", 16)
    with open_for_read(database) as connection:
        [(cell,)] = connection.sql("select cell_id from cell").fetchall()
    stored = SimpleNamespace(id=cell)
    sweep: Any = SimpleNamespace(
        study=asking, missing_cells=1, cells=SimpleNamespace(counted=[(stored, 1)])
    )

    def answering(run: Any, sweep: Any, database: Path, top: int = 3, store: Any = None) -> Any:
        store(sweep, database)
        return run if top else None

    answer: Any = beside_the_cache(lambda *_: None)(answering)
    assert answer("run", sweep, database) == "run"
    assert trimmed == [["plan asked"]]
    drop_study(database, "plan other")
    with pytest.raises(DatabaseError, match="another process has removed layouts of this plan"):
        answer("run", sweep, database)
    sweep.missing_cells = 0  # nothing was written: the file was open all the time
    assert answer("run", sweep, database) == "run"
    assert len(trimmed) == 1
