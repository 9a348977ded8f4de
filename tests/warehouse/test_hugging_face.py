"""Models from the config.json of Hugging Face: their shapes, their parameters and their errors.

hugging_face_configs.json has configurations with the keys that matter, as their files have them.
transformers 5.24.0 built each model without weights. The counts are those of its parameters, and of
the biases of routers, which it keeps as buffers.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.contract import Record
from estimators.decoder import Shape, model_parameters, shape_of
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.studies.definitions import known_definitions, load_definitions
from warehouse.studies.hugging_face import known_types, load_model

MODELS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("hugging_face_configs.json").read_text(encoding="utf-8")
)
IN_CATALOG = [name for name in MODELS if packaged_catalog().known("model", name) is not None]
DENSE, MIXTURE = "Qwen/Qwen3-32B", "zai-org/GLM-4.5"


def config(name: str, **other: Any) -> dict[str, Any]:
    """Return a known configuration, without the keys whose value is `...`."""
    changed = {**MODELS[name]["config"], **other}
    return {key: value for key, value in changed.items() if value is not ...}


def load(folder: Path, content: object) -> Record:
    """Return the attributes of the model that a file with this content has."""
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return load_model(path).attributes


def refusal(folder: Path, content: object) -> str:
    with pytest.raises(InputError) as caught:
        load(folder, content)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'config.json'}: ")
    return message.removeprefix(f"{folder / 'config.json'}: ")


# ---- what a file makes ----


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_parameters_of_its_weights(name: str, tmp_path: Path) -> None:
    found = model_parameters(shape_of(load(tmp_path, MODELS[name]["config"])))
    assert found == MODELS[name]["parameters"]


def test_every_kind_of_model_has_a_configuration_of_known_parameters() -> None:
    configs = (each["config"] for each in MODELS.values())
    assert {*known_types()} == {each.get("text_config", each)["model_type"] for each in configs}


@pytest.mark.parametrize("name", IN_CATALOG)
def test_the_catalog_has_the_shape_of_the_file_under_its_name(name: str, tmp_path: Path) -> None:
    row = packaged_catalog().find("model", name)
    made = shape_of({**load(tmp_path, MODELS[name]["config"]), "seq_len": row["seq_len"]})
    usual = shape_of(row)

    def sizes(shape: Shape) -> dict[str, Any]:
        named = {field.name: getattr(shape, field.name) for field in fields(shape)}
        # one shared expert of a width is the same as several of less
        return {n: v for n, v in named.items() if n != "num_shared_experts" and not np.isnan(v)}

    assert sizes(made) == sizes(usual)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", "llama3.2_1B"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral_8x7B"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek_v3"),
        ("zai-org/GLM-4.6", "glm4.5_355B_A32B"),
    ],
)
def test_a_later_model_of_a_shape_is_found_by_its_name(name: str, model: str) -> None:
    assert packaged_catalog().find("model", name)["model"] == model


def test_a_flag_that_is_a_text_is_refused_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, config(DENSE, tie_word_embeddings="false"))
    assert message.count("must be true or false") == 1


def test_most_configurations_are_in_the_catalog() -> None:
    assert len(IN_CATALOG) >= 50


@pytest.mark.parametrize(
    ("name", "window", "period", "is_chunked"),
    [
        ("mistralai/Mistral-7B-v0.1", 4096, 0, None),
        ("google/gemma-2-9b", 4096, 2, None),
        ("google/gemma-3-27b-pt", 1024, 6, None),
        ("openai/gpt-oss-20b", 128, 2, None),
        ("LGAI-EXAONE/EXAONE-4.0-32B", 4096, 4, None),
        ("meta-llama/Llama-4-Scout-17B-16E", 8192, 4, True),
        ("mistralai/Mixtral-8x7B-v0.1", None, None, None),
        ("Qwen/Qwen2.5-7B", None, None, None),
    ],
)
def test_layers_with_windows_are_those_of_the_class(
    name: str, window: int | None, period: int | None, is_chunked: bool | None, tmp_path: Path
) -> None:
    found = load(tmp_path, MODELS[name]["config"])
    columns = ("attention_window", "window_period", "uses_chunked_attention")
    assert tuple(found.get(column) for column in columns) == (window, period, is_chunked)


def test_a_list_of_layers_says_which_have_windows(tmp_path: Path) -> None:
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    found = load(tmp_path, config("google/gemma-3-1b-pt", layer_types=kinds * 6 + kinds[:2]))
    assert (found["attention_window"], found["window_period"]) == (512, 4)
    whole = load(tmp_path, config("google/gemma-3-1b-pt", layer_types=["full_attention"] * 26))
    assert "attention_window" not in whole


@pytest.mark.parametrize(
    ("name", "other", "length"),
    [
        ("meta-llama/Llama-3.1-8B", {}, 8192),  # before its positions were stretched
        ("deepseek-ai/DeepSeek-V3", {}, 4096),
        (DENSE, {}, 4096),
        (DENSE, {"max_position_embeddings": 2048}, 2048),
        (DENSE, {"rope_parameters": {"original_max_position_embeddings": 65536}}, 8192),
    ],
)
def test_the_length_of_sequences_is_assumed(
    name: str, other: dict[str, Any], length: int, tmp_path: Path
) -> None:
    found = load(tmp_path, config(name, **other))
    assert (found["seq_len"], found["assumed"]) == (length, "seq_len")


def test_biases_of_one_place_are_counted_and_those_of_every_place_are_a_flag(
    tmp_path: Path,
) -> None:
    def biased(**keys: bool) -> Record:
        return load(tmp_path, config("meta-llama/Llama-3.1-8B", **keys))

    # queries 4096 wide, keys and values 1024 each, the result 4096
    assert biased(attention_bias=True)["other_layer_parameters"] == 4096 + 2 * 1024 + 4096
    assert biased(mlp_bias=True)["other_layer_parameters"] == 2 * 14336 + 4096
    both = biased(attention_bias=True, mlp_bias=True)
    assert both["uses_linear_bias"]
    assert "other_layer_parameters" not in both


def test_a_note_says_what_the_class_gives_what_is_not_read_and_what_is_left_out(
    tmp_path: Path,
) -> None:
    note = str(load(tmp_path, config("google/gemma-3-4b-pt", quantum_config={"a": 1}))["note"])
    assert "vision_config, quantum_config left out" in note
    assert "of its class, as the file has none: num_attention_heads 8" in note
    note = str(load(tmp_path, config(DENSE, secret_gate=True, rms_norm_eps=1e-6))["note"])
    assert note.endswith("not read: secret_gate")
    assert "run side by side" in str(load(tmp_path, config("EleutherAI/gpt-neox-20b"))["note"])


# ---- its name ----


def test_a_model_is_called_as_its_file_its_folder_or_what_the_file_says(tmp_path: Path) -> None:
    folder = tmp_path / "My-32B"
    folder.mkdir()
    text = json.dumps(config(DENSE))
    for name in ("config.json", "other.json"):
        (folder / name).write_text(text)
    assert load_model(folder / "config.json").name == "My-32B"
    assert load_model(folder).name == "My-32B"
    assert load_model(folder / "other.json").name == "other"
    (folder / "config.json").write_text(json.dumps(config(DENSE, _name_or_path="org/Its-Own")))
    assert load_model(folder).name == "Its-Own"


def test_a_published_name_stays_that_of_the_published_model(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-32B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config(DENSE, num_hidden_layers=2)))
    found = known_definitions(tmp_path / "none.duckdb", [str(folder), "Qwen3-32B"])
    catalog = found.added_to(packaged_catalog())
    assert catalog.find("model", str(folder))["model"] == "Qwen3-32B (config.json)"
    assert catalog.find("model", str(folder))["num_layers"] == 2
    assert catalog.find("model", "Qwen3-32B")["num_layers"] == 64


def test_two_files_of_one_name_are_two_models(tmp_path: Path) -> None:
    paths = []
    for layers in (2, 3):
        folder = tmp_path / str(layers) / "mine"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config(DENSE, num_hidden_layers=layers)))
        paths.append(str(folder))
    catalog = known_definitions(tmp_path / "none.duckdb", paths).added_to(packaged_catalog())
    found = [catalog.find("model", path) for path in paths]
    assert [(row["model"], row["num_layers"]) for row in found] == [("mine", 2), ("mine #2", 3)]


def test_a_catalog_may_be_such_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(config(DENSE)))
    assert load_definitions(path).models["mine"]["num_layers"] == 64


# ---- what is refused ----


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"model_type": "qwen3_next"}, ["`model_type`", "linear attention"]),
        ({"model_type": "mamba2"}, ["`model_type`", "Mamba layers"]),
        ({"model_type": "deepseek_v32"}, ["`model_type`", "sparse attention"]),
        ({"model_type": "jetmoe"}, ["`model_type`", "attention experts"]),
        ({"model_type": "quen3"}, ["`model_type`", "is not known", "qwen3", "num_layers=..."]),
        ({"model_type": "decoder"}, ["`model_type`", "is not known"]),
        ({"model_type": 3}, ["`model_type` 3 must be a text"]),
        ({}, ["`model_type` is missing"]),
        (
            config(DENSE, layer_types=["linear_attention"] * 64),
            ["`layer_types`", "linear_attention", "is a kind of layer"],
        ),
        (
            config(
                "google/gemma-3-1b-pt",
                layer_types=["full_attention"] * 2 + ["sliding_attention"] * 24,
            ),
            ["`layer_types`", "2 of 26 layers without a window"],
        ),
        (
            config("Qwen/Qwen2.5-7B", use_sliding_window=True, max_window_layers=14),
            ["`layer_types`", "14 of 28 layers without a window"],
        ),
        (config(DENSE, layer_types=["full_attention"]), ["`layer_types`", "has 1 layers"]),
        (config(DENSE, layer_types=[{}] * 64), ["`layer_types`", "must be a list of texts"]),
        (
            config("openai/gpt-oss-20b", attention_bias=False),
            ["`attention_bias` False makes another kind of layer"],
        ),
        (config("Qwen/Qwen3-30B-A3B", mlp_only_layers=[3]), ["`mlp_only_layers`"]),
        (config(MIXTURE, moe_layer_freq=2), ["`moe_layer_freq` 2"]),
        (config(MIXTURE, num_experts_per_tok=161), ["`num_experts_per_tok` 161", "160"]),
        (config(MIXTURE, first_k_dense_replace=93), ["`first_k_dense_replace` 93", "92"]),
        (config(DENSE, head_dim=..., num_attention_heads=63, model_type="qwen2"), ["63", "5120"]),
        (config(DENSE, num_key_value_heads=7), ["`num_key_value_heads` 7 does not divide"]),
        (config(DENSE, num_hidden_layers=...), ["`num_hidden_layers` is missing", "`num_layers`"]),
        (config(DENSE, hidden_size=None), ["`hidden_size` is missing"]),
        (config(DENSE, num_hidden_layers=-1), ["`num_hidden_layers` -1 must be"]),
        (
            config(DENSE, num_hidden_layers=True),
            ["`num_hidden_layers` True must be a whole number"],
        ),
        (config(DENSE, num_hidden_layers=64.5), ["`num_hidden_layers` 64.5 must be"]),
        (
            config(DENSE, num_hidden_layers=float("nan")),
            ["`num_hidden_layers` nan is not a finite number"],
        ),
        (config(DENSE, num_hidden_layers="64"), ['`num_hidden_layers` "64" must be']),
        (config(DENSE, num_hidden_layers=[64]), ['`num_hidden_layers` "[64]" must be']),
        (config(DENSE, vocab_size=10**400), ["`vocab_size`", "is too large"]),
        (config(DENSE, tie_word_embeddings=1), ["`tie_word_embeddings` 1 must be true or false"]),
        (config(DENSE, rope_scaling=[]), ["`rope_scaling`", "must be an object"]),
        (
            config(DENSE, rope_scaling={"original_max_position_embeddings": "long"}),
            ["`original_max_position_embeddings`", "must be a whole number"],
        ),
        ('{"model_type": "qwen3", ', ["is not valid JSON", "line 1 column 25"]),
        ("", ["is not valid JSON: it is empty"]),
        ("[]", ["must be an object of keys and values"]),
        ("[" * 200_000, ["is nested too deeply"]),
        ('{"a": ' + "9" * 5000 + "}", ["is not valid JSON"]),
        (json.dumps({"a": "x" * 1_000_000}), ["has more than 1 MB"]),
    ],
)
def test_a_file_that_cannot_be_read_as_a_model_is_refused(
    content: object, words: list[str], tmp_path: Path
) -> None:
    message = refusal(tmp_path, content)
    assert all(word in message for word in words), message
    assert "\nhint: " in message.replace("\n  hint", "\nhint")


@pytest.mark.parametrize("value", [None, False, -1, 0, 1.5, 1e999, "\x1b[31m", "", [], {"a": [[]]}])
def test_a_key_with_a_wrong_value_is_named_or_changes_nothing_that_counts(
    value: object, tmp_path: Path
) -> None:
    for name in (DENSE, MIXTURE, "google/gemma-2-9b"):
        for key in MODELS[name]["config"]:
            try:
                found = load(tmp_path, config(name, **{key: value}))
            except InputError as error:
                assert f"`{key}`" in str(error)
                assert str(error).replace("\n", "").isprintable()
            else:
                assert model_parameters(shape_of(found)) > 0


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.json", "there is no such file"),
        (tmp_path, "there is no such file"),  # a folder without config.json
        (tmp_path / "zero\0.json", "cannot be read"),
    ):
        with pytest.raises(InputError, match=reason):
            load_model(path)
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InputError, match="line 1 is not UTF-8 text"):
        load_model(tmp_path)
