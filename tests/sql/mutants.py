"""Mutants of views: every operator and number of sql/, changed one by one.

Usage: ``python -m tests.sql.mutants [LAYER ...]``. It prints each change after which a view, table
macro or check still gives the rows of its cases. Some of these mean the same; each other one asks
for a row. Views whose rows are stored are left out.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from tests.mutants import SWAPS, other_number
from tests.sql.test_sql_cases import CHECKS, KEPT, NAMES, assert_answered, case_sql, parts, query_of
from warehouse.database import resources
from warehouse.database.connection import open_for_write
from warehouse.database.views import FUNCTIONS, LAYERS

OPERATOR = r"(?<!select )(?<=[\w)] )(?:[*/+-]|[<>]=?)(?= [\w(])"
PLACE = re.compile(rf"{OPERATOR}|(?<![\w.])\d+(?:\.\d+)?(?:e\d+)?(?![\w.])")
NO_CODE = re.compile(r"--[^\n]*|'[^']*'")
TEXTS = {check.name: check.sql for check in CHECKS}
CASES_OF = {parts(name)[0]: [n for n in NAMES if parts(n)[0] == parts(name)[0]] for name in NAMES}


def mutants_of(sql: str) -> Iterator[tuple[str, str]]:
    """Yield each mutant of a query, and what it changes, but for comments and texts."""
    code = NO_CODE.sub(lambda part: " " * len(part[0]), sql)
    for place in PLACE.finditer(code):
        text = SWAPS.get(place[0]) or other_number(place[0])
        number = sql[: place.start()].count("\n")
        change = f"{number + 1}: {place[0]} -> {text} in: {sql.splitlines()[number].strip()}"
        yield sql[: place.start()] + text + sql[place.end() :], change


def survives(connection: duckdb.DuckDBPyConnection, path: Path, mutant: str) -> bool:
    """Return whether all cases of a file of sql/ pass with another text."""
    view, is_check = path.stem, path.stem in TEXTS
    try:
        if not is_check:
            is_view = path.parent.name != FUNCTIONS
            connection.execute(f"create or replace view {view} as {mutant}" if is_view else mutant)
        for case in CASES_OF[view]:
            query = query_of(case).replace(TEXTS[view], mutant) if is_check else query_of(case)
            assert_answered(connection, query, case)
    except (AssertionError, duckdb.Error):
        return False
    return True


def main() -> None:
    """Print the mutants that survive, and how many there are."""
    kept, total, left = {table.name for table in KEPT}, 0, 0
    layers = sys.argv[1:] or [*LAYERS, "checks"]
    paths = [path for layer in layers for path in resources.sql_directory().glob(f"{layer}/*.sql")]
    with (
        tempfile.TemporaryDirectory() as folder,
        open_for_write(Path(folder) / "warehouse.duckdb") as connection,
    ):
        for path in sorted(path for path in paths if path.stem not in kept):
            filled = case_sql(connection, path.stem)[0]
            for mutant, change in mutants_of(path.read_text("utf-8")):
                connection.execute(f"begin; {filled}")
                total += 1
                if survives(connection, path, mutant):
                    left += 1
                    print(f"{path.parent.name}/{path.name}:{change}", flush=True)
                connection.rollback()
    print(f"{left} of {total} survive")


if __name__ == "__main__":
    main()
