"""`warehouse why`: a layout's rank, its losses by part, or the rule that excludes it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.shared import Command, Document

MODEL = ("model=gpt3_1.3B", "accelerator=H100 SXM 80GB", "num_gpus=8", "global_batch_size=64")
DEVICE_BYTES = 85_520_809_984
"""Memory of an H100 of 80 GB, as drivers show it."""

DEGREES = ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel")


@pytest.mark.long
def test_the_rank_is_that_of_the_database(
    why: Document, warehouse: Command, tmp_path: Path
) -> None:
    study = tmp_path / "whole.toml"
    study.write_text(
        'name = "whole"\nestimator = "training_step"\n[space]\nmodel = "gpt3_1.3B"\n'
        'accelerator = "H100 SXM 80GB"\nnum_gpus = 8\nglobal_batch_size = 64\n'
    )
    path = tmp_path / "whole.duckdb"
    assert warehouse("sweep", study, "--db", path)[0] == 0
    found = why(*MODEL, "tensor_parallel=4", "microbatch_size=2")
    seconds = found["results"]["step_seconds"]
    query = (
        "select count(*) filter (where is_likely_to_fit(configuration) and "
        f"step_seconds < {seconds * (1 - 1e-12)!r}) "
        "+ 1 as rank, count(*) as layouts, count(*) filter (where fits_memory) as fitting, "
        "min(step_seconds) filter (where is_likely_to_fit(configuration)) as best "
        "from configuration"
    )
    [line] = json.loads(warehouse("sql", query, "--format", "json", "--db", path)[1])
    assert found["is_searched"]
    assert found["rank"] == line["rank"] > 1
    assert (found["num_layouts"], found["num_fitting_layouts"]) == (
        line["layouts"],
        line["fitting"],
    )
    assert found["best"]["step_seconds"] == pytest.approx(line["best"], rel=1e-12)


def test_what_it_loses_adds_up_part_by_part(why: Document) -> None:
    found = why(*MODEL, "tensor_parallel=4", "microbatch_size=2")
    own, best = found["results"]["step_seconds"], found["best"]["step_seconds"]
    assert found["loss_seconds"] == pytest.approx(own - best)
    assert found["loss_fraction"] == pytest.approx(own / best - 1)
    assert math.fsum(p["difference_seconds"] for p in found["parts"]) == pytest.approx(own - best)
    assert math.fsum(part["seconds"] for part in found["parts"]) == pytest.approx(own)
    losses = [part["difference_seconds"] for part in found["parts"]]
    assert losses == sorted(losses, reverse=True)
    assert found["parts"][0]["name"] == "host_seconds"


def test_a_neighbour_differs_in_one_choice_is_faster_and_is_what_it_says(why: Document) -> None:
    found = why(*MODEL, "tensor_parallel=4", "microbatch_size=2", "zero_stage=1")
    own, layouts = found["inputs"], found["neighbours"]
    assert layouts
    free = ("context_parallel", "expert_parallel", "microbatch_size", "activation_recompute")
    for one in layouts:
        layout = one["layout"]
        assert math.prod(layout[name] for name in DEGREES) == 8
        assert one["step_seconds"] < found["results"]["step_seconds"]
        assert layout[one["changed"]] == one["new"] != one["old"] == own[one["changed"]]
        others = [name for name in free if name != one["changed"]]
        assert all(layout[name] == own[name] for name in others)
        names = (*DEGREES, *free, "zero_stage", "uses_sequence_parallel", "virtual_pipeline")
        pairs = [f"{name}={str(layout[name]).lower()}" for name in dict.fromkeys(names)]
        again = why(*MODEL, *pairs)
        assert again["results"]["step_seconds"] == pytest.approx(one["step_seconds"], rel=1e-12)
        assert again["rank"] < found["rank"]
    assert [one["step_seconds"] for one in layouts] == sorted(
        one["step_seconds"] for one in layouts
    )


def test_the_best_layout_loses_nothing(why: Document, warehouse: Command) -> None:
    best = why(*MODEL, "tensor_parallel=4")["best"]
    names = (*DEGREES, "virtual_pipeline", "microbatch_size", "zero_stage", "activation_recompute")
    pairs = [f"{name}={best[name]}" for name in names]
    pairs.append(f"uses_sequence_parallel={str(best['uses_sequence_parallel']).lower()}")
    found = why(*MODEL, *pairs)
    assert (found["rank"], found["neighbours"]) == (1, [])
    assert found["loss_seconds"] == pytest.approx(0, abs=1e-12)
    _, out, _ = warehouse("why", *MODEL, *pairs)
    assert "rank 1 of" in out
    assert "GPUs is faster" in out


def test_for_a_layout_that_does_not_fit_the_excess_and_its_largest_part_are_reported(
    why: Document, warehouse: Command
) -> None:
    problem = ("model=llama3_70B", "accelerator=H100 SXM 80GB", "num_gpus=64", "tensor_parallel=2")
    pairs = (*problem, "pipeline_parallel=2", "global_batch_size=64")
    found = why(*pairs)
    memory = found["results"]["memory_bytes"]
    assert (found["fits_memory"], found["rank"]) == (False, None)
    assert found["excess_bytes"] == pytest.approx(memory - DEVICE_BYTES)
    assert math.fsum(found["memory"].values()) == pytest.approx(memory)
    assert next(iter(found["memory"])) == max(found["memory"], key=found["memory"].get)
    assert all(one["memory_bytes"] <= DEVICE_BYTES for one in found["neighbours"])
    _, out, _ = warehouse("why", *pairs)
    assert f"does not fit: {(memory - DEVICE_BYTES) / 1e9:,.1f} GB too much" in out
    assert "that make it fit" in out


@pytest.mark.parametrize("given", [(), ("zero_stage=1",), ("zero_stage=0",), ("zero_stage=2",)])
def test_a_layout_of_one_replica_is_compared_as_the_search_has_it(
    why: Document, given: tuple[str, ...]
) -> None:
    degrees = ("tensor_parallel=8", "pipeline_parallel=8", "microbatch_size=16")
    model = ("model=llama3_70B", "accelerator=H100", "num_gpus=64", "global_batch_size=64")
    found = why(*model, *degrees, *given)
    assert found["is_searched"]
    assert not found["fits_memory"]
    changes = {change["changed"]: change["new"] for change in found["neighbours"]}
    assert changes["microbatch_size"] == 1


SHAPE = ("hidden_size=4096", "num_heads=32", "seq_len=4096", "vocab_size=32000", "accelerator=H100")
SPLIT = ("num_gpus=32", "global_batch_size=64", "pipeline_parallel=4", "tensor_parallel=8")
COUNTS = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (("num_layers=46",), f"11, 2 x 12, 11 layers: {COUNTS}"),
        (("num_layers=47",), "3 x 12, 11 layers: --account-for-loss-in-pipeline-split"),
        (("num_layers=45",), "12, 3 x 11 layers: --decoder-first-pipeline-num-layers 12"),
        (("num_layers=46", "framework=deepspeed"), "11, 2 x 12, 11 layers"),
        (("num_layers=48",), None),
        (("num_layers=46", "counts_loss=true", "counts_embedding=true"), None),
    ],
)
def test_uneven_stages_are_named_in_the_flags_of_the_program(
    warehouse: Command, pairs: tuple[str, ...], words: str | None
) -> None:
    for command in ("why", "show"):
        code, out, _ = warehouse(command, *SHAPE, *SPLIT, *pairs)
        assert code == 0
        lines = [line.strip() for line in out.splitlines()]
        found = [line.removeprefix("stages ") for line in lines if line.startswith("stages ")]
        assert found == ([] if words is None else [words])


def test_where_nothing_fits_more_gpus_are_asked_for(warehouse: Command) -> None:
    pairs = ("model=llama3_405B", "accelerator=H100 SXM 80GB", "num_gpus=8", "tensor_parallel=8")
    code, out, _ = warehouse("why", *pairs, "global_batch_size=8")
    assert code == 0
    assert "no layout of this problem fits: ask for more GPUs" in out


def test_a_broken_rule_is_named_with_the_values_that_it_read(
    why: Document, warehouse: Command
) -> None:
    # heads: 16; 8 GPUs over 3 ranks leave 2 replicas, 6 of 8 GPUs
    found = why(*MODEL, "tensor_parallel=3", "data_parallel=2")
    assert found["is_admitted"] is False
    rules = {rule["rule"]: rule for rule in found["rules"]}
    heads = rules["tensor_parallel divides num_heads"]
    assert heads["values"] == {"tensor_parallel": 3, "num_heads": 16}
    assert heads["hint"] == "use 4"
    assert rules["degrees multiply to the GPUs"]["values"]["num_gpus"] == 8
    assert "is not the product of the degrees, 6" in rules["degrees multiply to the GPUs"]["reason"]
    code, out, _ = warehouse("why", *MODEL, "tensor_parallel=3", "data_parallel=2")
    assert code == 0
    assert "tensor_parallel divides num_heads" in out


@pytest.mark.parametrize(
    ("pairs", "rule"),
    [
        (("microbatch_size=3",), "replicas divide the batch"),
        (("pipeline_parallel=2", "virtual_pipeline=5"), "chunks are even and interleaved"),
        (("context_parallel=2", "attention=unfused"), "context parallelism needs fused attention"),
        (("expert_parallel=2",), "experts are split evenly"),
    ],
)
def test_each_kind_of_rule_is_found(why: Document, pairs: tuple[str, ...], rule: str) -> None:
    names = [each["rule"] for each in why(*MODEL, *pairs)["rules"]]
    assert any(name.startswith(rule) for name in names)


def test_a_layout_of_the_roofline_is_compared_over_all_strategies(why: Document) -> None:
    problem = ("model=gpt3_1T", "accelerator=H200", "nvlink_size=8", "num_gpus=512")
    pairs = (*problem, "tensor_parallel=8", "pipeline_parallel=64", "global_batch_size=512")
    found = why(*pairs, "--estimator", "roofline")
    assert found["rank"] > 1
    assert found["best"]["strategy"] in ("tensor_1d", "summa_2d", "context_2d")
    own, best = found["results"]["step_seconds"], found["best"]["step_seconds"]
    assert math.fsum(p["difference_seconds"] for p in found["parts"]) == pytest.approx(own - best)
    broken = why(*pairs, "data_parallel=3", "--estimator", "roofline")
    assert broken["is_admitted"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("model=nosuch", "num_gpus=8"), 3, '`model` "nosuch" is not in'),
        ((*MODEL, "tensor_paralel=2"), 3, "did you mean tensor_parallel"),
        ((*MODEL, "tensor_parallel=nan"), 3, "tensor_parallel"),
        ((*MODEL, "tensor_parallel=0"), 3, "tensor_parallel"),
        ((*MODEL, "tensor_parallel=two"), 3, "tensor_parallel"),
        ((*MODEL, "num_gpus=16"), 3, "given twice"),
        ((*MODEL, "step_seconds=1"), 3, "is computed, not given"),
        (("tensor_parallel",), 2, "is not of the form key=value"),
        ((*MODEL, "--estimator", "pipeline"), 2, "searches no layouts of a step"),
        ((*MODEL, "--profile", "nosuch"), 3, "is not a stored profile"),
    ],
)
def test_a_wrong_question_is_refused(
    warehouse: Command, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = warehouse("why", *arguments, "--db", tmp_path / "none.duckdb")
    assert (found, out) == (code, "")
    assert said in err
    assert not (tmp_path / "none.duckdb").exists()


def test_a_terminal_shows_each_broken_rule_in_wrapped_lines(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = ("model=llama3_70B", "accelerator=H200", "num_gpus=512", "tensor_parallel=3")
    found = json.loads(warehouse("why", *layout, "--json")[1])["rules"]
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: 70)
    _, out, _ = warehouse("why", *layout)
    assert all(len(line) <= 70 for line in out.splitlines())
    text = " ".join(out.split())
    assert len(found) > 1
    for rule in found:
        assert f"{rule['rule']} {rule['column']} {rule['value']} {rule['reason']} values: " in text
        assert f"hint: {' '.join(rule['hint'].split())}" in text
    assert "not shown" not in out
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: 200)
    _, out, _ = warehouse("why", *layout, "--columns", "rule,hint")
    assert out.splitlines().count(f"{found[0]['rule']}") == 0  # a table again
    assert "not shown" not in out
    assert found[0]["rule"] in out


@pytest.mark.long
def test_a_model_that_an_earlier_plan_gave_a_shape_is_known_by_its_name(
    warehouse: Command, tmp_path: Path
) -> None:
    study = tmp_path / "own.toml"
    study.write_text(
        'name = "own shape"\nestimator = "training_step"\n[space]\nmodel = "mine"\n'
        "num_layers = 4\nhidden_size = 512\nnum_heads = 8\nseq_len = 1024\nvocab_size = 32000\n"
        'accelerator = "H100 SXM 80GB"\nnum_gpus = 2\nglobal_batch_size = 4\n'
    )
    path = tmp_path / "own.duckdb"
    assert warehouse("sweep", study, "--db", path)[0] == 0
    named = ("model=mine", "accelerator=H100 SXM 80GB", "num_gpus=2", "global_batch_size=4")
    shape = ("num_layers=4", "hidden_size=512", "num_heads=8", "seq_len=1024", "vocab_size=32000")
    asked = [
        json.loads(warehouse(command, *named, *more, "--json", "--db", path)[1])["results"]
        for command in ("why", "explain")
        for more in ((), shape)
    ]
    assert asked[0] == asked[1]
    assert asked[2] == asked[3]
    _, out, _ = warehouse("why", *named, "--db", path)
    assert "the shape of mine is that of own shape" in out
    code, _, err = warehouse("why", "model=other", *named[1:], "--db", path)
    assert code == 3
    assert "or give its shape: num_layers=..." in err
