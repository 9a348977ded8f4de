"""The column reference, made from the data dictionary: ``python -m warehouse.docs docs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from estimators.columns import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from estimators.columns import Column

_INTRODUCTION = """\
# Columns

Every column of the tables, batch files and studies, from `estimators/columns`. Do not edit
this page: `make docs` generates it.

Units are base units, in storage and in files; a name ends with its unit. *Accepted* is what a
study or batch file may give. In the database, `describe TABLE` lists a table's columns, and
`select column_name, comment from duckdb_columns() where table_name = 'TABLE'` their meanings.
"""


def columns_page() -> str:
    """Return the whole page as Markdown."""
    sections = [_INTRODUCTION]
    for title, columns in GROUPS.items():
        sections.append(f"## {title}\n\n" + "\n".join(_table(columns)) + "\n")
    return "\n".join(sections)


def _table(columns: Iterable[Column]) -> Iterator[str]:
    yield "| column | type | unit | meaning | accepted | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for column in columns:
        cells = (
            f"`{column.name}`",
            column.duckdb_type.lower(),
            column.unit,
            column.meaning,
            _accepted(column),
            column.source,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _accepted(column: Column) -> str:
    if column.choices:
        return ", ".join(f"`{choice}`" for choice in column.choices)
    bounds = (
        f"above {column.above:g}" if column.above is not None else "",
        f"at least {column.minimum:g}" if column.minimum is not None else "",
        f"at most {column.maximum:g}" if column.maximum is not None else "",
    )
    return ", ".join(bound for bound in bounds if bound)


def main(arguments: list[str]) -> None:
    """Write columns.md into the directory that the one argument names."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m warehouse.docs DIRECTORY")
    page = Path(arguments[0]) / "columns.md"
    page.write_text(columns_page(), encoding="utf-8")
    print(page, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
