"""The version of the reference data: it changes with each figure, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from warehouse.database import resources, stamp


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the reference tables and of the estimators' constants, in which a test writes."""
    source = Path(stamp.__file__).parents[2]
    shutil.copytree(resources.reference_directory(), tmp_path / "reference")
    shutil.copytree(source / "estimators", tmp_path / "estimators")
    monkeypatch.setattr(resources, "reference_directory", lambda: tmp_path / "reference")
    monkeypatch.setattr(stamp, "_PACKAGES", tmp_path)
    return tmp_path


def version() -> str:
    stamp._hash.cache_clear()  # it is that of one process
    return stamp.reference_version()


@pytest.mark.usefixtures("package")
def test_the_version_is_that_of_the_files_wherever_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_copy = version()
    monkeypatch.undo()
    assert version() == of_copy
    assert len(of_copy) == 8
    assert int(of_copy, 16) >= 0


@pytest.mark.parametrize(
    ("pattern", "is_data"),
    [
        ("reference/*.csv", True),
        ("reference/*.parquet", True),
        ("estimators/training_step/*.csv", True),
        ("estimators/columns/*.csv", False),
        ("estimators/*.py", False),
        ("estimators/training_step/*.py", False),
    ],
)
def test_each_figure_changes_the_version_and_no_code_does(
    package: Path, pattern: str, is_data: bool
) -> None:
    before = version()
    [file, *_] = sorted(package.glob(pattern))
    file.write_bytes(file.read_bytes() + b"\n")
    assert (version() != before) == is_data
