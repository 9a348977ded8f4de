"""Launch files of layouts: they say all of a layout, and come back as it; programs accept them."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from estimators.contract import PUBLISHED
from estimators.inputs import records
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from tests.estimators import random_steps
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.one import Evaluation, show_configuration
from warehouse.launch.backwards import environment_of, text_of, told
from warehouse.launch.read import read_launch
from warehouse.launch.shell import read_script
from warehouse.launch.write import READ_ONLY, RunToLaunch, launch_text

HERE = Path(__file__).parent
SAMPLE = 100
WHOLE = 2_000
MACHINE = ("accelerator", "kernels", "expert_routing")
REFUSED = 0.15
"""Largest share of random layouts that a program may refuse, each with its column."""

DENSE = {
    "model": "llama3_70B",
    "accelerator": "H100",
    "framework": "megatron_core",
    "num_gpus": "64",
    "global_batch_size": "256",
    "tensor_parallel": "4",
    "pipeline_parallel": "4",
    "uses_sequence_parallel": "true",
    "zero_stage": "1",
}


def planned(texts: Mapping[str, str]) -> RunToLaunch:
    catalog = random_steps.CATALOG
    found = show_configuration(TRAINING_STEP, RELATION, texts, PUBLISHED, catalog, has_ends=False)
    machine = {name: texts[name] for name in MACHINE if name in texts}
    return RunToLaunch(found, machine)


def drawn(number: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield layouts of Megatron-Core on random machines: any model, precision, recomputation."""
    rng = np.random.default_rng(seed)
    while number > 0:
        machine = random_steps.MACHINES[rng.integers(len(random_steps.MACHINES))]
        rows = random_steps._drawn(rng, machine, 200)
        rows["framework"] = np.full(200, "megatron_core", dtype=object)
        rows["schedule"] = np.full(200, None, dtype=object)  # the program has 1F1B alone
        good = np.flatnonzero(random_steps.resolved(rows)[1])[:4]
        for record in records(random_steps.kept(rows, good)):
            yield {name: text_of(v) for name, v in record.items() if text_of(v)}
        number -= len(good)


def outcomes(
    program: str, ending: str, number: int, tmp_path: Path
) -> tuple[list[tuple[RunToLaunch, str]], list[str]]:
    """Return the layouts that were written and read again as they were, and the refusals."""
    path = tmp_path / f"launch{ending}"
    written, refused = [], []
    for texts in drawn(number, seed=number):
        run = planned(texts)
        try:
            text = launch_text(program, run)
        except InputError as error:
            refused.append(str(error))
            continue
        path.write_text(text, encoding="utf-8")
        launch = read_launch(path)
        assert launch.unknown == {}, texts
        compare(run.planned, launch.columns, texts)
        written.append((run, text))
    return written, refused


def compare(wanted: Evaluation, columns: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Compare every column that comes back with the one that went out."""
    values = {**wanted.problem, **wanted.layout}
    idle = {"head_size"} if values["kv_lora_rank"] else set()
    if values["activation_recompute"] == "full":  # of whole layers
        idle.add("recompute_modules")
    elif values["recompute_modules"] != "none":  # a list of modules is selective
        idle.add("activation_recompute")
    if TRAINING_STEP.uneven_stages(wanted.values):  # said by flags, which are columns as well
        idle |= {"layers_in_first_stage", "layers_in_last_stage", "counts_loss"}
        idle |= {"counts_embedding", "pipeline_layout"}
    if values["zero_stage"] == 0 or values["gradient_overlap_fraction"] == 0:
        idle.add("parameter_overlap_fraction")
    if not values["uses_sequence_parallel"]:
        idle.add("splits_tensor_exchanges")
    if values["expert_parallel"] == 1:
        idle.add("overlaps_expert_comm")
    for name, text in columns.items():
        if name in values and name not in idle:
            assert same(values[name], text), (name, values[name], text, texts)


def same(value: object, text: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(text) == float(value)
    return sorted(text_of(value).split("+")) == sorted(text.split("+"))  # modules in any order


@pytest.mark.parametrize(("program", "ending"), [("megatron", ".sh"), ("bridge", ".yaml")])
@pytest.mark.parametrize("number", [SAMPLE, pytest.param(WHOLE, marks=pytest.mark.long)])
def test_every_field_that_goes_out_comes_back(
    program: str, ending: str, number: int, tmp_path: Path
) -> None:
    written, refused = outcomes(program, ending, number, tmp_path)
    assert len(refused) <= REFUSED * (len(written) + len(refused)), refused
    assert all(re.search(r"`\w+`", reason) for reason in refused)


# ---- arguments as programs have them ----


@cache
def listed(program: str) -> dict[str, tuple[str, str]]:
    """Return the arguments of a program with their kinds and values."""
    with (HERE / "launch_arguments.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["program"] == program]
    assert len({row["commit"] for row in rows}) == 1
    return {row["argument"]: (row["kind"], row["values"]) for row in rows}


def arguments(script: str) -> list[str]:
    """Return the words of the program that a script starts."""
    [words] = [c.words for c in read_script(script, "").commands if "pretrain_gpt.py" in c.words]
    return words[words.index("pretrain_gpt.py") + 1 :]


def grouped(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            assert word[2:] not in found, word
            found[word[2:]] = []
        else:
            [*_, last] = found
            found[last].append(word)
    return found


def test_megatron_has_every_argument_and_value(tmp_path: Path) -> None:
    known = listed("megatron")
    for _, text in outcomes("megatron", ".sh", SAMPLE, tmp_path)[0]:
        for name, values in grouped(arguments(text)).items():
            kind, choices = known[name]
            assert (len(values) > 0) == (kind != "switch"), name
            assert len(values) < 2 or kind == "several", name
            if choices == "int":
                assert [str(int(value)) for value in values] == values, name
            if "|" in choices and name != "attention-backend":  # members of an enumeration
                assert {*values} <= {*choices.split("|")}, name


def test_bridge_has_every_key(tmp_path: Path) -> None:
    known = listed("bridge")
    for _, text in outcomes("bridge", ".yaml", SAMPLE, tmp_path)[0]:
        sections = yaml.safe_load(text)
        for section, keys in sections.items():
            for key, value in keys.items() if section not in ("_target_", "env_vars") else ():
                if key == "_target_" or section == "logger":
                    continue
                _, kind = known[f"{section}.{key}"]
                if "Literal[" in kind and isinstance(value, str):
                    assert f"'{value}'" in kind, (section, key)
                if kind == "bool":
                    assert isinstance(value, bool), (section, key)
                if kind == "int":
                    assert type(value) is int, (section, key)


@pytest.mark.skipif(not os.environ.get("MEGATRON_LM"), reason="no checkout in MEGATRON_LM")
def test_megatrons_own_parser_accepts_it(tmp_path: Path) -> None:
    """MEGATRON_LM is a checkout, MEGATRON_PYTHON a Python with PyTorch."""
    cases = []
    runs = [planned(DENSE)]
    texts = [launch_text("megatron", runs[0])]
    for run, text in outcomes("megatron", ".sh", SAMPLE, tmp_path)[0]:
        runs.append(run)
        texts.append(text)
    for run, text in zip(runs, texts, strict=True):
        values = told(run.planned)
        case: dict[str, Any] = {"args": arguments(text), "env": environment_of(values)}
        case |= {"world": values["num_gpus"], "major": 10 if values["is_blackwell"] else 9}
        cases.append(json.dumps(case))
    tool = HERE.parents[1] / "docs" / "build" / "launch_arguments.py"
    python = os.environ.get("MEGATRON_PYTHON", sys.executable)
    said = subprocess.run(
        [python, str(tool), "--check", os.environ["MEGATRON_LM"]],
        input="\n".join(cases),
        capture_output=True,
        text=True,
        check=True,
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
    )
    answers = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(answers) == len(cases)
    assert {*answers} == {"ok"}


# ---- what the files have ----


def test_a_dense_layout_in_full() -> None:
    text = launch_text("megatron", replace(planned(DENSE), num_steps=7))
    given = grouped(arguments(text))
    assert given["tensor-model-parallel-size"] == ["4"]
    assert given["num-query-groups"] == ["8"]
    assert given["train-iters"] == ["7"]
    assert given["position-embedding-type"] == ["rope"]
    for switch in ("sequence-parallel", "tp-comm-overlap", "overlap-param-gather", "bf16"):
        assert given[switch] == []
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in text
    assert "torchrun --nproc-per-node 8 --nnodes 8 " in text
    assert "# again: warehouse why --from FILE accelerator=H100\n" in text


def test_what_the_file_does_not_say_is_in_its_head() -> None:
    texts = {**DENSE, "precision": "fp8", "gemm_efficiency": "0.7", "attention_program": "formula"}
    run = planned(texts)
    given = {name: text for name, text in texts.items() if name not in ("model", "num_gpus")}
    text = launch_text("megatron", replace(run, machine=given))
    pairs = "gemm_efficiency=0.7 attention_program=formula"
    assert f"# again: warehouse why --from FILE accelerator=H100 {pairs}\n" in text


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"zero_stage": "3"}, "CUDA_DEVICE_MAX_CONNECTIONS=8"),
        ({"accelerator": "B200"}, "CUDA_DEVICE_MAX_CONNECTIONS=32"),
        ({"uses_cuda_graphs": "true"}, "NCCL_GRAPH_REGISTER=0"),
    ],
)
def test_the_environment_follows_from_the_layout(more: dict[str, str], expected: str) -> None:
    assert f"export {expected}\n" in launch_text("megatron", planned(DENSE | more))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"pipeline_parallel": "16", "model": "llama3_405B"},
            "--account-for-loss-in-pipeline-split",
        ),
        ({"activation_recompute": "full"}, "--recompute-granularity full"),
        ({"recompute_modules": "core_attn+layernorm"}, "--recompute-modules core_attn layernorm"),
        ({"precision": "fp8", "number_recipe": "blockwise"}, "--fp8-format e4m3"),
        ({"moment_bytes": "2"}, "--exp-avg-dtype bf16"),
        ({"virtual_pipeline": "2"}, "--num-virtual-stages-per-pipeline-rank 2"),
    ],
)
def test_choices_become_arguments(more: dict[str, str], expected: str) -> None:
    if "pipeline_parallel" in more:
        more = {**more, "num_gpus": "512", "global_batch_size": "512"}
    found = " ".join(arguments(launch_text("megatron", planned(DENSE | more))))
    assert expected in found


def test_uneven_stages_are_placed_by_flags() -> None:
    texts = {**DENSE, "model": "deepseek_v3", "num_gpus": "256", "expert_parallel": "8"}
    texts |= {"pipeline_parallel": "8", "tensor_parallel": "1", "uses_sequence_parallel": "false"}
    given = grouped(arguments(launch_text("megatron", planned(texts))))
    assert given["decoder-last-pipeline-num-layers"] == ["5"]
    assert given["moe-layer-freq"] == ["([0]*3+[1]*58)"]
    assert "multi-latent-attention" in given


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ({"model": "llama4_maverick", "tensor_parallel": "2"}, "uses_chunked_attention"),
        ({"framework": "fsdp", "zero_stage": "2"}, "framework"),
        ({"uses_cuda_graphs": "true", "activation_recompute": "full"}, "uses_cuda_graphs"),
        ({"precision": "fp8", "zero_stage": "0", "keeps_quantized_weights": "true"}, "keeps_"),
        ({"schedule": "zb_h1"}, "schedule"),
    ],
)
@pytest.mark.parametrize("program", ["megatron", "bridge"])
def test_a_column_that_cannot_be_said_is_named(
    program: str, more: dict[str, str], column: str
) -> None:
    with pytest.raises(InputError, match=f"a launch file of Megatron-.*: `{column}"):
        launch_text(program, planned(DENSE | more))


@pytest.mark.parametrize("program", [*READ_ONLY, "jax"])
def test_other_programs_are_refused_with_a_sentence(program: str) -> None:
    reason = "are read, not written" if program in READ_ONLY else "is not a program that is known"
    with pytest.raises(UsageError, match=reason) as error:
        launch_text(program, planned(DENSE))
    assert "choose megatron, bridge, torchtitan" in str(error.value.hint)


# ---- torchtitan ----

TITAN = {**DENSE, "model": "llama3_8B", "framework": "fsdp_compile", "zero_stage": "2"}


def test_torchtitan_gets_a_function_of_fields_that_it_has() -> None:
    text = launch_text("torchtitan", planned(TITAN | {"activation_recompute": "selective"}))
    compile(text, "planned.py", "exec")
    fields = dict(re.findall(r"config\.([\w.]+) = (.+)", text))
    assert fields.keys() <= listed("torchtitan").keys()
    assert fields["parallelism.tensor_parallel_degree"] == "4"
    assert fields["parallelism.fsdp_reshard_after_forward"] == '"never"'
    assert fields["activation_checkpoint"] == "SelectiveAC.Config()"
    assert "config = llama3_8b()" in text


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ({"model": "gpt3"}, "model"),
        ({"framework": "megatron_core"}, "framework"),
        ({"precision": "fp8"}, "precision"),
    ],
)
def test_torchtitan_refuses_by_column(more: dict[str, str], column: str) -> None:
    with pytest.raises(InputError, match=f"a launch file of torchtitan: `{column}`"):
        launch_text("torchtitan", planned(TITAN | more))


# ---- Slurm ----


@pytest.mark.parametrize("program", ["megatron", "bridge", "torchtitan"])
@pytest.mark.parametrize("slurm", [False, True])
def test_scripts_are_those_of_a_shell(program: str, slurm: bool, tmp_path: Path) -> None:
    texts = TITAN if program == "torchtitan" else DENSE
    text = launch_text(program, planned(texts), slurm=slurm)
    assert ("#SBATCH --nodes=8\n" in text) == slurm
    assert ("#SBATCH --gpus-per-node=8\n" in text) == slurm
    assert "~" not in text
    assert max(map(len, text.splitlines())) <= 140
    if slurm or program == "megatron":
        path = tmp_path / "run.sh"
        path.write_text(text)
        subprocess.run(["bash", "-n", path], check=True)
        if checker := shutil.which("shellcheck"):
            subprocess.run([checker, path], check=True)


@pytest.mark.parametrize(
    ("accelerator", "gpus", "expected"),
    [
        *(("H100", "12", (2, 6)), ("H100", "6", (1, 6)), ("H100", "18", (3, 6))),
        *(("H100", "4", (1, 4)), ("GB200", "72", (18, 4))),
    ],
)
def test_nodes_are_servers(accelerator: str, gpus: str, expected: tuple[int, int]) -> None:
    texts: dict[str, Any] = {**DENSE, "accelerator": accelerator, "num_gpus": gpus}
    texts |= {"tensor_parallel": "1", "pipeline_parallel": "1", "uses_sequence_parallel": "false"}
    texts["global_batch_size"] = "144"
    run = planned({**texts, "model": "llama3_8B"})
    assert (run.num_nodes, run.per_node) == expected


MIXTURE = {
    "model": "qwen3_30B_A3B",
    "framework": "megatron_core",
    "num_gpus": "64",
    "global_batch_size": "256",
    "tensor_parallel": "1",
    "expert_parallel": "8",
    "dispatcher": "flex",
    "captures_whole_steps": "false",
}


def test_a_rack_has_a_dispatcher_of_racks() -> None:
    """DeepEP refuses a GB200 (Megatron-Bridge @067f987d training/flex_dispatcher_backend.py)."""
    rack = launch_text("megatron", planned({**MIXTURE, "accelerator": "GB200"}))
    assert "--moe-flex-dispatcher-backend hybridep" in rack
    assert "--moe-enable-deepep" not in rack
    server = launch_text("megatron", planned({**MIXTURE, "accelerator": "H100"}))
    assert "--moe-enable-deepep" in server


def test_no_dense_layer_is_captured_beside_overlapped_experts() -> None:
    """Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py refuses it."""
    texts = {**MIXTURE, "accelerator": "B200", "uses_cuda_graphs": "true", "num_dense_layers": "1"}
    assert planned_modules(texts) == ["attn", "moe_router", "mlp"]
    assert planned_modules({**texts, "overlaps_expert_comm": "true"}) == ["attn", "moe_router"]


def planned_modules(texts: Mapping[str, str]) -> list[str]:
    """Return the parts of a layer that a script captures as CUDA graphs."""
    found = re.search(r"--cuda-graph-modules ([a-z_ ]+)", launch_text("megatron", planned(texts)))
    return found[1].split() if found else []


def test_whole_steps_of_experts_are_not_captured() -> None:
    texts = {**MIXTURE, "accelerator": "B200", "uses_cuda_graphs": "true"}
    with pytest.raises(InputError, match="captures_whole_steps"):
        launch_text("megatron", planned({**texts, "captures_whole_steps": "true"}))
