"""Documents in the cache directory: read where they are sound, made where they are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators import registry
from estimators.contract import Catalog
from warehouse.calibrate.published import published_intervals, published_steps
from warehouse.database import resources
from warehouse.database.cache import cached
from warehouse.database.catalog import packaged_catalog
from warehouse.database.summaries import summaries
from warehouse.evaluate.inputs import resolve_rows


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAREHOUSE_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


class Maker:
    """Makes a document and counts how often."""

    def __init__(self, document: object) -> None:
        self.document = document
        self.number = 0

    def __call__(self) -> object:
        self.number += 1
        return self.document


def test_a_document_is_made_once(directory: Path) -> None:
    make = Maker({"steps": (1, 0.1)})
    assert [cached("one", 1, make) for _ in range(2)] == [{"steps": [1, 0.1]}] * 2
    assert make.number == 1
    assert [path.suffix for path in directory.iterdir()] == [".txt"]


def test_a_document_of_the_release_is_taken_unless_it_is_damaged(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached("one", 1, Maker("ahead"))
    released = directory.rename(tmp_path / "released")
    monkeypatch.setattr(resources, "cache_directory", lambda: released)
    assert cached("one", 1, Maker("now")) == "ahead"
    assert cached("one", 2, Maker("now")) == "now"
    [file] = released.iterdir()
    file.write_text(file.read_text().replace("ahead", "faked"))
    assert cached("one", 1, Maker("now")) == "now"


def test_other_facts_and_other_kinds_are_other_documents(directory: Path) -> None:
    assert cached("one", "a", Maker(1)) == 1
    assert cached("one", "b", Maker(2)) == 2
    assert cached("two", "a", Maker(3)) == 3
    assert len(list(directory.iterdir())) == 3


@pytest.mark.parametrize("text", ["", '{"half', "\x00", "0\n12"])
def test_a_damaged_file_is_replaced(directory: Path, text: str) -> None:
    cached("one", 1, Maker(12))
    [path] = directory.iterdir()
    sound = path.read_text()
    path.write_text(text)
    assert cached("one", 1, Maker(12)) == 12
    assert path.read_text() == sound


def test_a_file_in_which_one_digit_changed_is_replaced(directory: Path) -> None:
    cached("one", 1, Maker(12))
    [path] = directory.iterdir()
    path.write_text(path.read_text().replace("\n12", "\n13"))
    assert cached("one", 1, Maker(12)) == 12


def test_as_many_documents_stay_as_are_asked_for(directory: Path) -> None:
    for facts in range(4):
        cached("one", facts, Maker(facts), most=1)
    assert len(list(directory.iterdir())) == 1


def test_a_directory_that_cannot_be_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WAREHOUSE_CACHE", str(tmp_path / "file/below"))
    assert cached("one", 1, Maker("made")) == "made"


def test_a_foreign_estimator_is_asked_itself(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.ESTIMATORS, "toy", "tests.toy_estimator:TOY")
    assert summaries()[-1].title == registry.get("toy").title
    assert not directory.exists()


def test_summaries_are_of_the_estimators(directory: Path) -> None:
    for _ in range(2):
        for summary in summaries():
            estimator = registry.get(summary.name)
            assert summary.title == estimator.title
            assert summary.precedence == estimator.precedence
            assert summary.mends == estimator.mends
            assert summary.relations == tuple(each.name for each in estimator.relations)
    assert list(directory.iterdir())


def test_intervals_of_published_steps_are_kept_for_the_packaged_catalog_alone(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training_step, catalog = registry.get("training_step"), packaged_catalog()
    relation, steps = training_step.relations[0], published_steps().head(3)
    mends = frozenset(training_step.mends)
    own = replace(catalog, aliases={})
    make = Maker({"low_step_seconds": np.array([0.1, 1 / 3, 2.0])})
    monkeypatch.setattr("warehouse.calibrate.published.evaluate_intervals", lambda _: make())

    def found(catalog: Catalog) -> list[float]:
        resolved = resolve_rows(training_step, relation, steps, catalog, mends)
        return list(published_intervals(resolved)["low_step_seconds"])

    assert [found(catalog) for _ in range(2)] == [[0.1, 1 / 3, 2.0]] * 2
    assert make.number == 1
    assert [found(own) for _ in range(2)] == [[0.1, 1 / 3, 2.0]] * 2
    assert make.number == 3
    assert len(list(directory.glob("published-intervals-*"))) == 1
