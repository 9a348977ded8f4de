"""The progress file: believed only while the process that writes it runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from warehouse.sweep import progress
from warehouse.sweep.progress import Progress, ProgressFile, progress_path, read_progress


def test_a_number_that_another_process_has_by_now_does_not_count(database: Path) -> None:
    own = Progress("big", total_rows=2, total_cells=1)
    if own.process_started is None:
        pytest.skip("this system does not tell when a process started")
    progress_path(database).write_text(json.dumps(asdict(own)))
    assert read_progress(database) == asdict(own)
    own.process_started -= 1
    progress_path(database).write_text(json.dumps(asdict(own)))
    assert read_progress(database) is None


@pytest.mark.parametrize("name", ["study", "rows", "total_rows", "rows_per_second", "pid"])
def test_a_file_without_one_of_its_keys_is_no_progress(database: Path, name: str) -> None:
    found = asdict(Progress("big", total_rows=2, total_cells=1))
    del found[name]
    progress_path(database).write_text(json.dumps(found))
    assert read_progress(database) is None


def test_a_signal_while_the_file_is_written_leaves_none(database: Path) -> None:
    def interrupt(*_: int) -> None:
        assert progress_path(database).exists()
        raise KeyboardInterrupt

    of_study = Progress("big", total_rows=2, total_cells=1)
    with pytest.raises(KeyboardInterrupt), ProgressFile(database, of_study, interrupt):
        pass
    assert not progress_path(database).exists()


def test_without_start_times_the_number_alone_counts(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "started_ticks", lambda _: None)
    with ProgressFile(database, Progress("big", total_rows=2, total_cells=1)):
        assert read_progress(database) is not None
