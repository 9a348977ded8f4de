"""`warehouse config`: the settings in force."""

from __future__ import annotations

from warehouse.cli.common import put, say
from warehouse.cli.options import DEFAULT_DATABASE, DatabasePath
from warehouse.cli.output import Output

COLUMNS = ("setting", "value", "origin")


def config(output: Output, db: DatabasePath = DEFAULT_DATABASE) -> None:
    """Show the settings in force, and where each comes from.

    `database` is the database of commands without --db, `cache` the directory of what commands can
    make again, `catalog` a file of your own models and systems for commands without --catalog,
    `backups` the number of backups to keep, a new one before each sweep, `plan_cache_gb` the GB
    that layouts may take which only `plan` asked for; the oldest questions go first. A setting
    comes from its environment variable, else from warehouse.toml in this directory or the nearest
    parent directory that has one, else from the user's warehouse.toml. A path in a file is relative
    to that file: database = "db/warehouse.duckdb".
    """
    from warehouse import settings

    output.expect(COLUMNS)
    rows: list[tuple[str, str | None, str]] = []
    for setting in settings.settings():
        value = None if setting.value is None else str(setting.value)
        is_named = setting.name == "database" and db != setting.value
        rows.append((setting.name, *((str(db), "--db") if is_named else (value, setting.origin))))
    with output.opened():
        put(COLUMNS, [rows])
    for path in settings.files():
        say(f"{path}: {'read' if path.is_file() else 'not there'}")
