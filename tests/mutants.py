"""Mutants of formulas: changed operators and numbers that the tests must notice.

Usage: ``python -m tests.mutants [--count 60] [--seed 1] [--only estimators/roofline]``. A mutant
changes one place in a copy of the project. The tests that name its module run until nine fail; one
to four do where tests are clear. A mutant that none fails is shown only if it changes a figure of
the sample of steps by more than 1e-9. ``tests.sql.mutants`` has those of views.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from estimators.contract import Array
from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.space import evaluated
from warehouse.studies.study import load_study
from warehouse.sweep.cells import cells_of_study, num_layouts

NO_FORMULA = re.compile(r"columns/|inputs|rules|registry|contract|names|spellings")
LONGEST_SECONDS = 900
SWAPS = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "/", "**": "*"}
SWAPS |= {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPERATOR = re.compile(rb"\*\*|//|[<>]=?|[*/+-]")
SAMPLE = "import pickle, sys, tests.mutants as m; sys.stdout.buffer.write(pickle.dumps(m.sample()))"

Mutant = tuple[Path, int, int, str]
"""A file, the bytes of it that change (start and end), and the text that takes their place."""


def other_number(text: str) -> str:
    """Return a number half as large again, one instead of zero; a whole one stays whole."""
    return str(int(text) * 3 // 2 + 1) if text.isdigit() else repr(float(text) * 1.5 or 1.0)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of operators, and of the numbers beside them."""
    source = path.read_bytes()
    starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]

    def span(term: ast.expr) -> tuple[int, int]:
        end_line, end_column = term.end_lineno or 0, term.end_col_offset or 0
        return starts[term.lineno - 1] + term.col_offset, starts[end_line - 1] + end_column

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp | ast.Compare):
            others = [node.right] if isinstance(node, ast.BinOp) else node.comparators
            for (_, left), (right, _) in itertools.pairwise(map(span, [node.left, *others])):
                for place in itertools.islice(OPERATOR.finditer(source, left, right), 1):
                    yield path, *place.span(), SWAPS[place[0].decode()]
            for term in [node.left, *others]:
                if isinstance(term, ast.Constant) and type(term.value) in (int, float):
                    yield path, *span(term), other_number(repr(term.value))


def sample() -> dict[str, Array]:
    """Return figures of some cells of each study, published steps among them."""
    figures: dict[str, Array] = {}
    for path in sorted(Path("studies").glob("*.toml")):
        study = load_study(path)
        estimator, catalog = get(study.estimator), study.defined.added_to(packaged_catalog())
        for cell in itertools.islice(cells_of_study(study, catalog), 0, 200, 25):
            relation = next(r for r in estimator.relations if r.name == cell.relation)
            if num_layouts(estimator, cell) < 1000:
                layouts = evaluated(estimator, relation, [cell], relation.outputs, catalog)
                figures |= {f"{cell.id} {name}": c for name, c in layouts.columns.items()}
    return figures


def tests_of(path: Path) -> list[str]:
    """Return the files of tests that name a module, else those of its package."""
    package, _, name = ".".join(path.with_suffix("").parts).rpartition(".")
    imported = re.compile(rf"{re.escape(package)}(\.{name} import| import .*\b{name}\b)")
    of_package, tests = f"test_{path.parts[1]}", sorted(Path("tests/estimators").glob("test_*.py"))
    named = [
        str(file)
        for file in tests
        if file.stem in (f"test_{name}", f"{of_package}_{name}")
        or imported.search(file.read_text("utf-8"))
    ]
    return named or [str(f) for f in tests if f.stem.startswith(of_package)] or [*map(str, tests)]


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run Python in a copy of the project; a loop without end counts as a failure."""
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command, cwd=place, capture_output=True, check=False, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, b"FAILED: it does not end", b"")


def changes(place: Path, figures: dict[str, Array]) -> bool:
    """Return whether a copy gives other figures, other layouts, or none."""
    done = run(place, "-c", SAMPLE)
    if done.returncode:
        return True
    others = pickle.loads(done.stdout)
    if {n: len(c) for n, c in others.items()} != {n: len(c) for n, c in figures.items()}:
        return True
    pairs = [(column, others[name]) for name, column in figures.items() if column.dtype.kind == "f"]
    return not all(np.allclose(*pair, 1e-9, 0, equal_nan=True) for pair in pairs)


def main() -> None:
    """Draw mutants and print how many tests fail for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="beginning of the paths to change")
    given, figures = parser.parse_args(), sample()
    paths = [p for p in sorted(Path("estimators").rglob("*.py")) if not NO_FORMULA.search(str(p))]
    mutants = [m for p in paths if str(p).startswith(given.only) for m in mutants_of(p)]
    random.Random(given.seed).shuffle(mutants)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "copy"
        shutil.copytree(".", place, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.duckdb"))
        for time, (path, start, end, text) in enumerate(mutants[: given.count], 1):
            source = path.read_bytes()
            (place / path).write_bytes(source[:start] + text.encode() + source[end:])
            os.utime(place / path, (time, time))  # Python compiles it anew
            done = run(place, "-m", "pytest", "-qrfE", "--tb=no", "--maxfail=9", *tests_of(path))
            failed = len(re.findall(rb"^(?:FAILED|ERROR)", done.stdout, re.MULTILINE))
            if failed or changes(place, figures):
                number, old = source[:start].count(b"\n"), source[start:end].decode()
                line = source.splitlines()[number].decode().strip()
                print(f"{failed:4} {path}:{number + 1} {old} -> {text} in: {line}", flush=True)
            shutil.copy2(path, place / path)


if __name__ == "__main__":
    main()
