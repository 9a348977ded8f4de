"""The house: its size, which module may import which, and who may name an estimator."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from estimators.registry import ESTIMATORS

ROOT = Path(__file__).parent.parent

ROOMS = (
    *(
        "errors",
        "limits",
        "options",
        "processes",
        "files",
        "settings",
        "database",
        "studies",
        "evaluate",
    ),
    *(
        "show",
        "launch",
        "transfer",
        "calibrate",
        "sweep",
        "lake",
        "measure",
        "rebuild",
        "ask",
        "plan",
        "plot",
        "report",
        "api",
        "cli",
        "frames",
        "__main__",
    ),
)
"""Modules and packages of warehouse/: each imports only itself and those before it."""

LINES = {("warehouse", "*.py"): 42_970, ("estimators", "*.py"): 23_070, ("sql", "*.sql"): 9_295}
"""Folder and files -> lines that they may have. The commit of a change that needs more says what
for; one that needs fewer lowers the number."""

OWN_NAMES = {"cluster", "dataflow", "pipeline", "roofline"}
"""Estimators whose names are words of the field, too: only a text that is nothing else counts."""


def files(package: str = "warehouse") -> dict[str, Path]:
    """Return the files of a package by the dotted names of their modules."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(package: str = "warehouse") -> dict[str, frozenset[str]]:
    """Return what each module of a package imports, by their dotted names."""
    return {
        name: frozenset(imported(ast.parse(path.read_text("utf-8"))))
        for name, path in files(package).items()
    }


def imported(tree: ast.Module) -> set[str]:
    """Return everything that a module imports anywhere, ``from a import b`` as a and a.b."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide what is imported"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room_of(module: str) -> str:
    return module.split(".")[1]


def misplaced(module: str, names: Collection[str]) -> set[str]:
    """Return those of the imported `names` that lie in a later room than `module`."""
    later = ROOMS[ROOMS.index(room_of(module)) + 1 :]
    return {name for name in names if name.startswith("warehouse.") and room_of(name) in later}


def test_every_module_is_in_a_room() -> None:
    rooms = {room_of(name) for name in files() if name != "warehouse"}
    assert rooms == set(ROOMS)


def test_no_module_imports_one_of_a_later_room() -> None:
    found = {
        name: misplaced(name, modules) for name, modules in imports().items() if name != "warehouse"
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_an_arrow_back_is_found() -> None:
    code = "def f():\n    from warehouse.plan import search\n    import warehouse.errors\n"
    found = imported(ast.parse(code))
    assert misplaced("warehouse.sweep.runner", found) == {
        "warehouse.plan",
        "warehouse.plan.search",
    }
    assert misplaced("warehouse.cli.sweep", found) == set()


def test_no_module_imports_itself_through_others() -> None:
    modules = imports("estimators") | imports("warehouse")
    del modules["warehouse"]  # its names are imported when somebody asks for them
    graph = {name: (names & set(modules)) - {name} for name, names in modules.items()}
    # Raises CycleError, which names the circle.
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


# ---- only the contract is known of an estimator ----


def named(source: str) -> set[str]:
    """Return the estimators that a source names: in a text, in a comment, by an import."""
    # An import of an estimator's module is found as a word, as in a text.
    words = set(re.findall(r"\w+", source))
    found = {name for name in ESTIMATORS if name in words} - OWN_NAMES
    for name in OWN_NAMES:
        if re.search(rf"estimators\.{name}\b|([\"'`]){name}\1", source):
            found.add(name)
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from estimators.roofline.estimator import ROOFLINE", {"roofline"}),
        ("import estimators.linear_layer", {"linear_layer"}),
        ("if estimator.name == 'cluster': pass", {"cluster"}),
        ("'''Takes `training_step` alone.'''  # pipeline", {"training_step"}),
        ("pipeline = stg_training_step + training_steps", set()),
    ],
)
def test_an_estimator_that_is_named_is_found(source: str, expected: set[str]) -> None:
    assert named(source) == expected


def test_no_module_of_the_warehouse_names_an_estimator() -> None:
    paths = sorted((ROOT / "warehouse").rglob("*.py"))
    assert len(paths) > 100
    found = {str(path.relative_to(ROOT)): named(path.read_text("utf-8")) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


# ---- SQL is in sql/ ----

LONGEST_QUERY = 15
"""Lines of a query in Python at most, where no part of it depends on a value."""

_QUERY = re.compile(r"\s*(?:with\b.+\bas \(|select\b.+\bfrom\b)", re.DOTALL)


def long_queries(text: str) -> list[int]:
    """Return the lines on which long queries without a replaced part begin."""
    tree = ast.parse(text)
    replaced = {
        id(part)
        for each in ast.walk(tree)
        if isinstance(each, ast.JoinedStr)
        and any(isinstance(v, ast.FormattedValue) for v in each.values)
        for part in ast.walk(each)
    }
    return [
        each.lineno
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and id(each) not in replaced
        and _QUERY.match(each.value)
        and len(each.value.strip().splitlines()) > LONGEST_QUERY
    ]


def test_a_long_query_that_depends_on_nothing_is_a_view() -> None:
    found = {name: long_queries(path.read_text("utf-8")) for name, path in files().items()}
    assert {name: lines for name, lines in found.items() if lines} == {}
    query = "select\n" + "    a,\n" * LONGEST_QUERY + "from b"
    assert long_queries(f'x = """{query}"""') == [1]
    assert long_queries(f'x = f"""{query} where {{c}}"""') == []
    assert long_queries('x = "select a from b"') == []


@pytest.mark.parametrize(("folder", "files"), LINES)
def test_a_folder_has_no_more_lines_than_its_limit(folder: str, files: str) -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / folder).rglob(files)]
    lines = sum(len(text.splitlines()) for text in texts)
    limit = LINES[folder, files]
    assert lines <= limit, f"{folder}/ has {lines:,} lines: delete some, or raise LINES and say why"


def test_a_class_of_the_warehouse_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for module, path in files().items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
