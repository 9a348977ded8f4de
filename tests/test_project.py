"""What holds for the project as a whole: directions, layers, generated pages, packaging."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from datetime import datetime
from email import message_from_string
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from docs.build.pages import JOBS, main
from docs.build.references import (
    PAGES,
    columns_page,
    errata_page,
    lineage_page,
    programs_page,
)
from docs.build.site import OUTSIDE, on_page_markdown
from estimators.columns import COLUMNS, GROUPS
from estimators.registry import ESTIMATORS, all_estimators
from tests.shared import build_wheel
from warehouse.database import resources
from warehouse.database.in_force import current_view_name
from warehouse.database.lineage import names_in
from warehouse.database.reference import read_table
from warehouse.database.views import CONFIGURATION_SOURCE, LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent

# ---- estimators/ knows neither the warehouse nor files ----

FILE_MODULES = {
    *("builtins", "codecs", "configparser", "csv", "fileinput", "glob", "gzip", "http", "io"),
    *("linecache", "mmap", "multiprocessing", "os", "pathlib", "pickle", "runpy", "shelve"),
    *("shutil", "socket", "sqlite3", "subprocess", "tempfile", "tomllib", "urllib", "zipfile"),
}
PURE_MODULES = (set(sys.stdlib_module_names) - FILE_MODULES) | {"numpy", "estimators"}
FILE_CALLS = {"open", "exec", "eval", "__import__"}
NUMPY_FILE_CALLS = {
    *("fromfile", "genfromtxt", "load", "loadtxt", "memmap", "save", "savetxt", "savez"),
    "savez_compressed",
}


def impurities(source: str) -> Iterator[str]:
    """Yield each import or call in `source` that an estimator may not make."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
                yield from (module for module in modules if not is_pure(module))
            case ast.ImportFrom(module=str(module), level=0) if not is_pure(module):
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in FILE_CALLS:
                yield f"{name}()"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name):
                if name in NUMPY_FILE_CALLS:
                    yield f"np.{name}"


def is_pure(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in PURE_MODULES


READS_A_TABLE = ("estimators/columns/columns.py", "estimators/own_tables.py")
"""The modules of estimators/ that open CSV files beside them."""

ESTIMATOR_FILES = sorted((ROOT / "estimators").rglob("*.py"))


def test_estimators_import_only_numpy_and_pure_modules() -> None:
    found = {
        str(path.relative_to(ROOT)): list(impurities(path.read_text(encoding="utf-8")))
        for path in ESTIMATOR_FILES
    }
    assert len(found) > 20
    for path in READS_A_TABLE:
        assert found.pop(path) == ["csv", "pathlib"]
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import duckdb",
        "import os.path",
        "from pathlib import Path",
        "from warehouse.database.views import checks",
        "def f():\n    import polars as pl",
        "text = open('x').read()",
        "import numpy as np\nx = np.load('x.npy')",
    ],
)
def test_an_impure_estimator_is_found(source: str) -> None:
    assert list(impurities(source))


# ---- sql/: headers and layers ----

SQL = ROOT / "sql"
SQL_FILES = {
    path.stem: path for layer in (*LAYERS, "checks") for path in sorted((SQL / layer).glob("*.sql"))
}


def test_every_sql_file_is_in_a_layer_and_has_a_unique_name() -> None:
    others = {SQL / "macros.sql", *(SQL / "plots").glob("*.sql")}
    assert {path for path in SQL.rglob("*.sql") if path not in SQL_FILES.values()} == others
    assert {path.stem for path in others} & SQL_FILES.keys() == set()


def test_a_sql_file_begins_with_what_it_is() -> None:
    wrong = []
    for path in SQL_FILES.values():
        what, grain, *_ = path.read_text(encoding="utf-8").splitlines()
        if not re.fullmatch(r"-- (deprecated: use |[A-Z]).*\.", what):
            wrong.append((path.name, what))
        if path.parent != SQL / "checks" and not re.fullmatch(r"-- Grain: one row .+", grain):
            wrong.append((path.name, grain))
    assert not wrong


def misread(layer: str, read: frozenset[str], layer_of: dict[str, str]) -> set[str]:
    """Return those of the names `read` that a view of `layer` may not read.

    Data flows staging -> configuration_source -> intermediate -> marts. Staging alone reads what
    estimators stored; checks may read everything, and nothing reads a check.
    """
    relations = [relation for estimator in all_estimators() for relation in estimator.relations]
    results = {r.table for r in relations} | {current_view_name(r) for r in relations}
    if layer == "checks":
        return {name for name in read if layer_of.get(name) == "checks"}
    if layer == "staging":
        return {name for name in read if name in layer_of} | (read & {CONFIGURATION_SOURCE})
    lower = LAYERS[: LAYERS.index(layer) + 1]
    return {name for name in read if layer_of.get(name, layer) not in lower} | (read & results)


LAYER_OF = {name: path.relative_to(SQL).parts[0] for name, path in SQL_FILES.items()}


def test_a_view_reads_no_higher_layer() -> None:
    found = {}
    for name, path in SQL_FILES.items():
        read = names_in(path.read_text(encoding="utf-8")).relations
        assert read, f"{name} reads no table"
        found[name] = misread(LAYER_OF[name], read, LAYER_OF)
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("layer", "select"),
    [
        ("staging", "select * from configuration"),
        ("staging", "select * from configuration_source"),
        ("staging", "with a as (select 1) select * from a, (select * from stg_roofline)"),
        ("intermediate", "select * from cell where exists (from configuration)"),
        ("marts", "select * from current_roofline"),
        ("marts", "select * from roofline inner join cell using (cell_id)"),
    ],
)
def test_a_view_that_reads_a_higher_layer_is_found(layer: str, select: str) -> None:
    known = {"configuration": "marts", "stg_roofline": "staging"}
    assert misread(layer, names_in(select).relations, known)


def test_no_view_above_staging_names_an_estimator() -> None:
    found = []
    for name in (name for name in SQL_FILES if LAYER_OF[name] != "staging"):
        text = SQL_FILES[name].read_text(encoding="utf-8")
        found += [(name, each) for each in ESTIMATORS if f"'{each}'" in text]
    assert not found


# ---- generated pages ----


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), f"run `make pages ARGS={name}`"


def test_the_column_reference_has_every_column_once() -> None:
    assert [column.name for group in GROUPS.values() for column in group] == list(COLUMNS)
    page = columns_page()
    assert all(page.count(f"\n| `{name}` |") == 1 for name in COLUMNS)


def test_the_page_of_errata_has_every_erratum_in_its_section_mended_ones_first() -> None:
    rows = read_table(resources.reference_directory() / "erratum.csv").rows
    expected: dict[str, list[str]] = {}
    for erratum, estimator, *_ in sorted(rows, key=lambda row: not row[6]):
        expected.setdefault(estimator, []).append(erratum)
    _, *sections = re.split(r"^## ", errata_page(), flags=re.MULTILINE)
    found = {s.split("\n")[0]: re.findall(r"^\| (?!id|---)(\w+) \|", s, re.M) for s in sections}
    assert found == expected


def test_every_row_of_a_generated_page_has_the_cells_of_its_header() -> None:
    for page in (columns_page(), errata_page(), lineage_page(), programs_page()):
        for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


@pytest.mark.parametrize("page", ["architecture.md", "extending.md"])
def test_a_module_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    named = set(re.findall(r"(?<![\w/<>])((?:\w+/)+\w+\.py)\b", text))
    assert named
    missing = {
        name for name in named if not any((at / name).exists() for at in (ROOT, ROOT / "warehouse"))
    }
    assert missing == set()


def test_every_generated_page_is_made_by_one_job() -> None:
    made = [name for names in JOBS for name in names]
    assert len(made) == len(set(made))
    assert all((ROOT / name).exists() or (ROOT / "docs" / name).exists() for name in made)
    shown = {path.name for path in (ROOT / "docs").glob("*.md") if "```console" in path.read_text()}
    assert shown - set(made) == {"files.md", "studies.md"}, "add the page to docs/build/pages.py"


def test_the_generator_refuses_a_page_that_it_does_not_make(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["docs.build.pages", "decisions.md"])
    with pytest.raises(SystemExit):
        main()
    assert "no generated page: decisions.md; choose from gallery.md" in capsys.readouterr().err


def test_lines_of_the_picture_name_the_reader_and_differ_in_colour_from_their_neighbours() -> None:
    root = ElementTree.fromstring(PAGES["lineage.svg"]())
    svg, page = "{http://www.w3.org/2000/svg}", lineage_page()
    colours = {}
    for group in root.iter(f"{svg}g"):
        if group.attrib.get("class") == "lines":
            name, _, readers = (group.findtext(f"{svg}title") or "").partition(" is read by ")
            (colours[name],) = {path.attrib["stroke"] for path in group.iter(f"{svg}path")}
            # tables of results are read by the views current_*, which the picture leaves out
            for reader in readers.split(", ") if name in SQL_FILES else []:
                row = page.partition(f"\n| `{reader}` |")[2].partition("\n")[0]
                assert f"`{name}`" in row or reader == CONFIGURATION_SOURCE
    assert {"problem", "best_of_problem", "configuration"} <= set(colours)
    tables = {path.stem for path in resources.reference_directory().glob("*.csv")}
    reference = [colour for name, colour in colours.items() if name in tables]
    assert len(reference) > 10
    # as they lie below one another
    assert all(one != other for one, other in pairwise(reference))


def test_the_lists_of_lineage_have_what_the_files_of_sql_read() -> None:
    page = lineage_page()
    for name, path in SQL_FILES.items():
        if LAYER_OF[name] != "checks":
            (row,) = re.findall(rf"^\| `{name}` \| (.*) \| .*\|$", page, re.MULTILINE)
            listed = set(re.findall(r"`(\w+)`", row))
            assert names_in(path.read_text(encoding="utf-8")).relations <= listed, name


def test_the_picture_of_lineage_has_every_view_and_every_line_ends_at_one() -> None:
    root = ElementTree.fromstring(PAGES["lineage.svg"]())
    svg = "{http://www.w3.org/2000/svg}"
    boxes = {text.text for text in root.iter(f"{svg}text")}
    assert {name for name in SQL_FILES if LAYER_OF[name] != "checks"} <= boxes
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for path in root.iter(f"{svg}path"):
        for x, y in re.findall(r"([\d.]+) ([\d.]+)", path.attrib["d"]):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height
    rects = [r.attrib for r in root.iter(f"{svg}rect") if "x" in r.attrib]
    places = sorted((float(r["x"]), float(r["y"]), float(r["height"])) for r in rects)
    for (x, y, tall), (other_x, other_y, _) in pairwise(places):
        assert other_x > x or other_y >= y + tall


# ---- the command and the wheel ----


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_imports_neither_database_nor_arrays() -> None:
    code = """if True:
        import sys
        from warehouse.cli.main import run
        assert run() == 0
        heavy = {"duckdb", "numpy", "polars", "pyarrow"} & set(sys.modules)
        assert not heavy, heavy
    """
    assert "sweep" in run_python(code, "--help")


def test_the_wheel_carries_sql_reference_tables_studies_and_the_notebook(
    unpacked_wheel: Path,
) -> None:
    for packed, source in (
        ("sql", resources.sql_directory()),
        ("reference", resources.reference_directory()),
        ("studies", resources.studies_directory()),
    ):
        files = {path.relative_to(source) for path in source.rglob("*.*")}
        inside = unpacked_wheel / "warehouse" / "resources" / packed
        assert files
        assert {path.relative_to(inside) for path in inside.rglob("*.*")} == files
    inside = unpacked_wheel / "warehouse" / "resources" / "examples"
    assert [path.name for path in inside.iterdir()] == ["explore.py"]


def test_the_wheel_carries_nothing_else(unpacked_wheel: Path) -> None:
    top = {path.name.split("-")[0] for path in unpacked_wheel.iterdir()}
    assert top == {"estimators", "training_warehouse", "warehouse"}
    assert all(
        (unpacked_wheel / name / "py.typed").is_file() for name in ("estimators", "warehouse")
    )


def test_the_notice_names_every_table_with_rows_under_a_licence() -> None:
    notice = (ROOT / "NOTICE").read_text("utf-8")
    licence = re.compile(r"CC BY(-SA)?|Apache-2\.0|BSD-3-Clause")
    tables = resources.reference_directory().glob("*.csv")
    licensed = {path.name for path in tables if licence.search(path.read_text("utf-8"))}
    assert len(licensed) > 5
    assert {name for name in licensed if name not in notice} == set()


def test_the_wheel_says_who_made_it_and_what_may_be_done_with_it(unpacked_wheel: Path) -> None:
    (directory,) = unpacked_wheel.glob("*.dist-info")
    said = message_from_string((directory / "METADATA").read_text("utf-8"))
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Author"] == "The training-warehouse developers"
    for name in ("LICENSE", "NOTICE"):
        assert (directory / "licenses" / name).read_bytes() == (ROOT / name).read_bytes()
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert said["Project-URL"] is None
    assert set(said.get_all("Provides-Extra", [])) == {
        "dev",
        "docs",
        "excel",
        "explore",
        "mcp",
        "plots",
        "ray",
        "slurm",
    }


def test_the_newest_heading_of_the_changelog_is_the_version_with_its_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *others = re.findall(r"^## \[(.+)\](.*)$", text, re.MULTILINE)
    assert first == ("Unreleased", "")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert others[0][0] == project["version"]
    for _, date in others:
        assert datetime.fromisoformat(date.removeprefix(" - "))


@pytest.mark.long
def test_the_source_archive_builds_the_same_wheel(unpacked_wheel: Path, tmp_path: Path) -> None:
    build = "import sys, hatchling.build as build; build.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    assert (source / "requirements-dev.lock").is_file()
    again = build_wheel(source, tmp_path / "wheel")
    assert files_in(again) == files_in(unpacked_wheel)


def files_in(directory: Path) -> dict[Path, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory): path.read_bytes() for path in found}


# ---- the site ----

SITE = (ROOT / "mkdocs.yml").read_text("utf-8")


def test_every_page_has_a_place_in_the_site() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(OUTSIDE)
    listed = re.findall(r"^ +- ([\w.-]+\.md)$", SITE, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {page for page in pages if page.endswith(".md")}
    assert all((ROOT / source).is_file() for source in OUTSIDE.values())


def test_links_of_a_page_lead_to_places_of_the_site() -> None:
    page = "[a](docs/tour.md) [b](LICENSE) [c](README.md) [d](../db/reference/) [e](costs.md#x)"
    moved = "[a](tour.md) [b](LICENSE.txt) [c](index.md) d [e](costs.md#x)"
    assert on_page_markdown(page) == moved


def test_the_search_needs_no_other_host() -> None:
    (script,) = re.findall(r"polyfills:\n +- (\S+)", SITE)
    assert "window.IFrameWorker" in (ROOT / "docs" / script).read_text("utf-8")


# ---- the development environment ----


def test_the_lock_has_hashes_of_everything_that_is_asked_for_and_names_no_index() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text("utf-8")
    assert not re.search(r"https?:|file:|--index|--find-links|--extra", lock)
    locked = {}
    for package in re.split(r"\n(?=\w)", lock)[1:]:
        name, _, rest = package.partition("==")
        locked[name] = Version(rest.split()[0])
        assert "--hash=sha256:" in rest
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for wanted in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        requirement = Requirement(wanted)
        assert locked[requirement.name] in requirement.specifier, "run `make lock`"
