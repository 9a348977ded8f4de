"""Models and systems that a study defines: their rows, and the errors of faulty ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from estimators.contract import Catalog, RefusedError
from warehouse.database import resources
from warehouse.database.catalog import extended, packaged_catalog
from warehouse.database.reference import read_table
from warehouse.errors import InputError
from warehouse.studies.definitions import OPTIONAL, load_definitions
from warehouse.studies.study import Study, load_study
from warehouse.sweep.cells import counted_cells

STUDY = """
name = "own"
estimator = "roofline"
[space]
model = "{model}"
accelerator = "{accelerator}"
nvlink_size = 8
num_gpus = 64
global_batch_size = 64
"""
MODEL = "num_layers = 4\nhidden_size = 768\nnum_heads = 6\nseq_len = 1024\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Study]:
    """Write a study over a model and a system, with definitions; load it by a relative name."""
    monkeypatch.chdir(tmp_path)

    def load(definitions: str, model: str = "gpt3", accelerator: str = "H200") -> Study:
        path = tmp_path / "study.toml"
        path.write_text(STUDY.format(model=model, accelerator=accelerator) + definitions)
        return load_study(path.relative_to(tmp_path))

    return load


@pytest.fixture
def refusal(load: Callable[..., Study]) -> Callable[[str], str]:
    """The error of a study with these definitions, from the file or from the catalog."""

    def refusal(definitions: str) -> str:
        with pytest.raises(InputError) as caught:
            counted_cells(load(definitions), packaged_catalog())
        assert str(caught.value).startswith("study.toml: ")
        return str(caught.value)

    return refusal


def problem(study: Study) -> dict[str, Any]:
    [(cell, _)] = counted_cells(study, packaged_catalog()).counted
    return dict(cell.problem.values)


def test_an_own_model_is_searched_with_its_numbers(load: Callable[..., Study]) -> None:
    values = problem(load(f"[models.mine]\nffn_hidden_size = 2304\n{MODEL}", model="mine"))
    assert values["model"] == "mine"
    shape = ("num_layers", "hidden_size", "ffn_hidden_size", "num_heads", "seq_len")
    assert [values[name] for name in shape] == [4, 768, 2304, 6, 1024]
    assert "vocab_size" not in values


def test_a_width_that_is_left_out_is_four_times_the_hidden_size(load: Callable[..., Study]) -> None:
    values = problem(load(f"[models.mine]\n{MODEL}", model="mine"))
    assert values["ffn_hidden_size"] == 4 * 768


def test_what_is_based_on_a_row_differs_from_it_in_what_is_given_only(
    load: Callable[..., Study],
) -> None:
    study = load(
        '[systems.mine]\nbased_on = "H200"\nhbm_bytes = 200e9\n'
        '[models.long]\nbased_on = "gpt3"\nseq_len = 8192\n',
        model="long",
        accelerator="mine",
    )
    base = problem(load(""))
    changed = {"model": "long", "seq_len": 8192, "accelerator": "mine", "hbm_bytes": 200e9}
    assert problem(study) == {**base, **changed}


def test_a_row_may_be_based_on_one_defined_above_or_on_another_spelling(
    load: Callable[..., Study],
) -> None:
    values = problem(
        load(
            '[systems.one]\nbased_on = "h100-sxm-80gb"\nhbm_bytes = 96e9\n'
            '[systems.two]\nbased_on = "one"\nlaunch_seconds = 0\n',
            accelerator="two",
        )
    )
    assert (values["hbm_bytes"], values["launch_seconds"]) == (96e9, 0)
    assert values["hbm_bytes_per_second"] == 3350e9


def test_a_system_can_be_given_whole(load: Callable[..., Study]) -> None:
    whole = {
        name: value
        for name, value in packaged_catalog().find("system", "H200").items()
        if name not in (*OPTIONAL, "accelerator")
    }
    lines = "".join(f"{name} = {value}\n" for name, value in whole.items())
    base = problem(load(""))
    values = problem(load("[systems.mine]\n" + lines, accelerator="mine"))
    assert values == {**base, "accelerator": "mine"}


def test_remarks_on_a_published_row_do_not_pass_to_what_is_based_on_it() -> None:
    catalog = extended(packaged_catalog(), {}, {"mine": {"based_on": "A100", "note": "ours"}})
    row = catalog.find("system", "mine")
    assert (row["source"], row["note"]) == (None, "ours")


def test_extending_leaves_the_catalog_alone_and_keeps_its_rows() -> None:
    catalog = packaged_catalog()
    names = set(catalog.tables["model"])
    more = extended(catalog, {"mine": {"num_layers": 1}}, {})
    assert set(catalog.tables["model"]) == names
    assert set(more.tables["model"]) == names | {"mine"}
    assert more.tables["system"] == catalog.tables["system"]


def test_an_empty_catalog_can_be_extended() -> None:
    more = extended(Catalog({}), {"mine": {"num_layers": 1}}, {})
    assert more.find("model", "mine") == {"model": "mine", "num_layers": 1}


def test_the_definition_of_a_study_has_its_own_definitions_only(
    load: Callable[..., Study],
) -> None:
    study = load('[systems.mine]\nbased_on = "H200"\nhbm_bytes = 2e11\n')
    assert study.definition["systems"] == {"mine": {"based_on": "H200", "hbm_bytes": 2e11}}
    assert "models" not in study.definition
    assert {"models", "systems"}.isdisjoint(load("").definition)


def test_one_name_with_other_numbers_is_another_problem(load: Callable[..., Study]) -> None:
    cells = [
        counted_cells(
            load(f'[systems.mine]\nbased_on = "H200"\nhbm_bytes = {size}\n', accelerator="mine"),
            packaged_catalog(),
        ).counted
        for size in ("2e11", "3e11")
    ]
    assert cells[0][0][0].problem.id != cells[1][0][0].problem.id


def test_what_may_be_left_out_is_a_column_of_a_reference_table() -> None:
    names = {
        column.name
        for table in ("model", "system", "accelerator", "named_cluster")
        for column in read_table(resources.reference_directory() / f"{table}.csv").columns
    }
    assert set(OPTIONAL) <= names


@pytest.mark.parametrize(
    ("definitions", "expected"),
    [
        ("[models]\nmine = 3\n", ["`models.mine` 3 must be a table", "[models.mine]"]),
        ('[systems.""]\nbased_on = "H200"\n', ['`systems` "" must be a name']),
        ("[models.m]\nnum_layers = 0\n", ["`num_layers` 0 in [models.m] must be at least 1"]),
        ("[models.m]\nnum_layers = 2.5\n", ["2.5 in [models.m] must be a whole number"]),
        ('[systems.m]\nhbm_bytes = "80GB"\n', ['`hbm_bytes` "80GB" in [systems.m] must be']),
        ("[systems.m]\nnvlink_efficiency = 1.5\n", ["1.5 in [systems.m] must be at most 1"]),
        ("[models.m]\nuses_glu = 1\n", ["`uses_glu` 1 in [models.m] must be true or false"]),
        ("[models.m]\nheads = 3\n", ["`heads` 3 is not a key of [models.m]", "mean num_heads"]),
        (
            "[systems.m]\nnum_gpus = 72\n",
            ["72 is not a key of [systems.m]", "under [space] or [system]"],
        ),
        ("[models.m]\nnum_layers = 3\n", ["`seq_len` is missing in [models.m]"]),
        (
            '[systems.m]\nsource = "x"\n',
            ["`hbm_bytes` is missing in [systems.m]", "or name the row"],
        ),
        ("[models.m]\nbased_on = 3\n", ["`based_on` 3 in [models.m] must be a text"]),
        (
            '[models.m]\nbased_on = "gpt4"\n',
            ['`based_on` "gpt4" in [models.m] is not in the `model` table', "known: gpt3, "],
        ),
        (
            '[systems.a]\nbased_on = "b"\n[systems.b]\nbased_on = "H200"\n',
            ['"b" in [systems.a] is neither in the `system`', "define [systems.b] above"],
        ),
        (f"[models.gpt3]\n{MODEL}", ['"gpt3" is in the `model` table', 'based_on = "gpt3"']),
        (
            '[systems.h100-sxm-80gb]\nbased_on = "H200"\n',
            ['`systems` "h100-sxm-80gb" is another name of H100 SXM 80GB', "another name;"],
        ),
        (
            "[models.mine_1.5B]\nnum_layers = 3\n",
            ["`5B`", 'a name with a dot needs quotes: [models."mine_1.5B"]'],
        ),
        ("[model.mine]\nnum_layers = 3\n", ["is not a key of a study", "[models.NAME]"]),
        ("[system.mine]\nhbm_bytes = 3\n", ["is not a key of [system]", "[systems.NAME]"]),
    ],
)
def test_a_faulty_definition_is_refused_with_its_place_and_reason(
    refusal: Callable[[str], str], definitions: str, expected: list[str]
) -> None:
    message = refusal(definitions)
    for part in expected:
        assert part in message


def test_sections_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    path.write_text("models = 3\nsystems = []\n")
    with pytest.raises(InputError) as caught:
        load_definitions(path)
    for section in ("models", "systems"):
        assert f"start each with a line [{section}.NAME]" in str(caught.value)


def test_all_faults_of_the_definitions_are_reported_at_once(refusal: Callable[[str], str]) -> None:
    error = refusal(
        '[models.a]\nbased_on = "gpt3"\nnum_layers = 0\n[models.b]\nbased_on = "gpt3"\nwidth = 1\n'
        '[systems.c]\nbased_on = "H200"\nhbm_bytes = -1\n'
    )
    assert all(place in error for place in ("[models.a]", "[models.b]", "[systems.c]"))
    taken = refusal('[models.gpt3]\nbased_on = "gpt3"\n[systems.H200]\nbased_on = "A100"\n')
    assert all(name in taken for name in ('"gpt3"', '"H200"'))


def test_extending_reports_every_name_that_exists() -> None:
    with pytest.raises(RefusedError) as caught:
        extended(packaged_catalog(), {"gpt3": {}, "gpt3_1T": {}}, {"H200": {}})
    assert [refusal.value for refusal in caught.value.refusals] == ["gpt3", "gpt3_1T", "H200"]


def test_a_catalog_file_defines_something(tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    path.write_text('name = "x"\n')
    with pytest.raises(InputError, match="defines no model and no system"):
        load_definitions(path)
    path.write_text('[systems.mine]\nbased_on = "H200"\n')
    assert list(load_definitions(path).systems) == ["mine"]


DOCUMENT = Path(__file__).parents[2] / "docs" / "models_and_systems.md"


def test_the_examples_of_the_documentation_are_sound(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    defining = [block for block in blocks if "[models." in block]
    assert defining
    for number, block in enumerate(defining):
        path = tmp_path / f"{number}.toml"
        path.write_text(block)
        load_definitions(path).added_to(packaged_catalog())


def test_the_documentation_says_how_far_weights_of_gated_models_are_off() -> None:
    rows = re.findall(r"^\| (llama\S+) \| (.*) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    shown = {name: fields.split(" | ") for name, fields in rows}
    models: Mapping[str, Mapping[str, Any]] = packaged_catalog().tables["model"]
    dense = {name: row for name, row in models.items() if row["num_experts"] is None}
    gated = {name for name, row in dense.items() if row["uses_glu"]}
    assert set(shown) == {name for name in gated if re.match("llama[23]_", name)}
    for name, fields in shown.items():
        row = models[name]
        square, product = row["hidden_size"] ** 2, row["hidden_size"] * row["ffn_hidden_size"]
        real = (2 + 2 * row["num_kv_heads"] / row["num_heads"]) * square + 3 * product
        two, wider = 4 * square + 2 * product, 4 * square + 3 * product
        assert fields == [
            *(f"{real / 1e6:.0f}", f"{two / 1e6:.0f}", f"{100 * (two / real - 1):+.1f} %"),
            *(f"{wider / 1e6:.0f}", f"{100 * (wider / real - 1):+.1f} %"),
        ]
