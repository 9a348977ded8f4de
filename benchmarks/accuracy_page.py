"""Bring docs/accuracy.md up to date: ``python -m benchmarks.accuracy_page``.

Runs the commands of the page on a new database and puts in what they print, the table of what is
left out, and, where matplotlib is installed (``pip install '.[docs]'``), the pictures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.published import terms_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
TERMS = re.compile(r"(<!-- terms -->\n).*?(<!-- end of terms -->)", re.DOTALL)


def filled(text: str, database: Path) -> str:
    """Return the page with what its commands print on this database, and the table of terms."""

    def block(found: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", found[1], re.MULTILINE)
        shown = "\n".join(f"$ {command}\n{printed(command, database)}" for command in commands)
        return f"```console\n{shown}```"

    text = CONSOLE.sub(block, text)
    return TERMS.sub(lambda found: f"{found[1]}\n{terms_table(database)}\n{found[2]}", text)


def printed(command: str, database: Path) -> str:
    """Return what a command of the page prints, without spaces at the ends of lines."""
    scripts = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "WAREHOUSE_DB": str(database),
    }
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=True
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def main() -> None:
    """Write the page anew."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "warehouse.duckdb"
        quickstart = (sys.executable, "-m", "warehouse.cli.main", "quickstart", "--small")
        subprocess.run([*quickstart, "--db", database], check=True, capture_output=True)
        PAGE.write_text(filled(PAGE.read_text("utf-8"), database), encoding="utf-8")
        if find_spec("matplotlib") is None:
            print("the pictures need matplotlib: pip install '.[docs]'", file=sys.stderr)
            return
        from benchmarks.pictures import draw

        draw(database, PAGE.parent / "pictures")


if __name__ == "__main__":
    main()
