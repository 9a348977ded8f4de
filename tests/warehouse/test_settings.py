"""Settings: which one holds, where it comes from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from warehouse import settings
from warehouse.errors import InputError


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder in it, in which commands are run, and a user's home."""
    (tmp_path / "project" / "below").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "project" / "below")
    for name in (*settings.VARIABLES.values(), "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def of_project(folders: Path, text: str) -> Path:
    path = folders / "project" / "warehouse.toml"
    path.write_text(text)
    return path


def of_user(folders: Path, text: str) -> Path:
    path = folders / "home" / ".config" / "training-warehouse" / "warehouse.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def found(name: str) -> settings.Setting:
    return next(setting for setting in settings.settings() if setting.name == name)


def test_the_environment_comes_before_the_project_and_the_project_before_the_user(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found("database").origin == "default"

    user = of_user(folders, 'database = "mine.duckdb"\ncache = "/caches"\n')
    assert found("database") == ("database", user.parent / "mine.duckdb", str(user))

    project = of_project(folders, 'database = "rows/ours.duckdb"\n')
    assert found("database") == (
        *("database", folders / "project" / "rows" / "ours.duckdb"),
        str(project),
    )
    assert found("cache") == ("cache", Path("/caches"), str(user))

    monkeypatch.setenv("WAREHOUSE_DB", "here.duckdb")
    assert found("database") == ("database", Path("here.duckdb"), "WAREHOUSE_DB")
    assert settings.database() == Path("here.duckdb")


def test_a_clone_keeps_its_database_in_the_working_directory() -> None:
    assert settings.database() == Path("db/warehouse.duckdb")


def test_an_installed_package_has_one_database_for_the_user(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "package" / "resources").mkdir(parents=True)
    monkeypatch.setattr(settings, "_PACKAGE", folders / "package")

    expected = folders / "home" / ".local" / "share" / "training-warehouse" / "warehouse.duckdb"
    assert settings.database() == expected
    monkeypatch.chdir(folders)
    assert settings.database() == expected
    monkeypatch.setenv("XDG_DATA_HOME", str(folders / "data"))
    assert settings.database() == folders / "data" / "training-warehouse" / "warehouse.duckdb"


def test_where_the_users_directory_cannot_be_written_the_database_is_below_the_working_directory(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "package" / "resources").mkdir(parents=True)
    monkeypatch.setattr(settings, "_PACKAGE", folders / "package")
    monkeypatch.chdir(folders)
    (folders / "home" / ".local").write_text("a file, no directory")
    assert settings.database() == folders / "db" / "warehouse.duckdb"
    monkeypatch.setenv("XDG_DATA_HOME", "/dev/null/data")
    assert settings.database() == folders / "db" / "warehouse.duckdb"
    monkeypatch.setenv("XDG_DATA_HOME", str(folders / "new" / "data"))
    assert folders / "new" in settings.database().parents
    monkeypatch.setattr("os.access", lambda path, _: path != folders)
    assert settings.database() == folders / "db" / "warehouse.duckdb"


FORM = "write each line as: key = value"


def test_a_file_may_begin_with_a_byte_order_mark(folders: Path) -> None:
    path = of_project(folders, '\ufeffdatabase = "own.duckdb"')
    assert settings.database() == path.parent / "own.duckdb"


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            'databse = "x"',
            "`databse` is not a setting",
            "known: database, cache, catalog, backups, plan_cache_gb",
        ),
        ("database = 3", "`database` 3 must be a text", 'write database = "a/path"'),
        ('cache = ""', "`cache` '' must be a text", 'write cache = "a/path"'),
        ("database", "Expected '='", "write each line as: key = value"),
        ('database = "~nobody_of_this_name/x"', "there is no such user", "write the whole path"),
        (f"database = {'[' * 5000}{']' * 5000}", "is nested too deeply", FORM),
        (f"database = {'9' * 5000}", "limit (4300 digits)", FORM),
        (f"database{'.a' * 5000} = 1", "`database` must be a text", 'write database = "a/path"'),
        ("backups = 3.5", "`backups` '3.5' is no number of copies", "give 3, or 0 for none"),
        ("plan_cache_gb = -1", "`plan_cache_gb` '-1' is no number of GB", "give 2, or 0.5"),
        ("plan_cache_gb = inf", "`plan_cache_gb` 'inf' is no number of GB", "give 2, or 0.5"),
        ("plan_cache_gb = true", "`plan_cache_gb` True is no number of GB", "give 2, or 0.5"),
        ("backups = []", "`backups` is no number of copies", "give 3, or 0 for none"),
        (r'database = "a\u001bb"', r"'a\x1bb' has the control character \x1b", "remove it"),
        ("database = [1]", "`database` must be a text", 'write database = "a/path"'),
    ],
    ids=lambda value: value[:40],
)
def test_a_faulty_file_is_refused(folders: Path, text: str, said: str, hint: str) -> None:
    path = of_project(folders, text)
    with pytest.raises(InputError) as caught:
        settings.database()
    assert caught.value.message.startswith(f"{path}: ")
    assert said in caught.value.message
    assert caught.value.hint == hint
