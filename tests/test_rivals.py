"""Programs of others get a row in their own words, and the tables are the arithmetic of errors.

No test needs one of these programs. `RIVALS_CALCULON`, `RIVALS_LLM_ANALYSIS` and `RIVALS_SIMUMAX`
name checkouts; where one is set, the program answers some rows as it did for the page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rivals import page
from benchmarks.rivals.calculon import CALCULON
from benchmarks.rivals.llm_analysis import AT_HALF, LLM_ANALYSIS
from benchmarks.rivals.ours import CONSTANT, OWN, at_constant, constant, paper
from benchmarks.rivals.page import MADE, PAGE, RIVALS, TABLES, filled, match_of, stored
from benchmarks.rivals.rival import AbsentError, RefusedError, Rival, equal_width
from benchmarks.rivals.rows import Row, published
from benchmarks.rivals.simumax import SIMUMAX
from benchmarks.rivals.table import (
    Errors,
    Match,
    Program,
    programs_table,
    refusals_table,
    sets_table,
    shared_table,
    wins_table,
)

GPT: Mapping[str, Any] = {
    "num_layers": 96,
    "hidden_size": 12288,
    "ffn_hidden_size": 49152,
    "uses_glu": False,
    "num_heads": 96,
    "num_kv_heads": 96,
    "head_size": 128,
    "vocab_size": 51200,
    "seq_len": 2048,
    "num_experts": 1,
    "experts_per_token": 1,
    "expert_ffn_hidden_size": 49152,
    "shared_ffn_hidden_size": 0,
    "num_shared_experts": 0,
    "num_dense_layers": 0,
    "num_mtp_layers": 0,
    "kv_lora_rank": 0,
    "attention_window": 0,
    "accelerator": "A100 SXM 80GB",
    "nvlink_size": 8,
    "matrix_flops_per_second": 312e12,
    "fp8_flops_per_second": None,
    "fp4_flops_per_second": None,
    "vector_flops_per_second": 78e12,
    "hbm_bytes": 80 * 2**30,
    "hbm_bytes_per_second": 2039e9,
    "nvlink_bytes_per_second": 300e9,
    "network_bytes_per_second": 25e9,
    "precision": "fp16",
    "attention": "unfused",
    "fuses_elementwise": True,
    "uses_dropout": True,
    "splits_tensor_exchanges": False,
    "gradient_overlap_fraction": 0,
    "reduced_gradient_bytes": 2,
    "recomputes_operations": False,
    "recompute_modules": "none",
    "activation_recompute": "selective",
    "num_gpus": 1024,
    "global_batch_size": 1536,
    "microbatch_size": 1,
    "tensor_parallel": 8,
    "context_parallel": 1,
    "expert_parallel": 1,
    "expert_tensor_parallel": 1,
    "pipeline_parallel": 8,
    "virtual_pipeline": 3,
    "data_parallel": 16,
    "zero_stage": 0,
    "uses_sequence_parallel": True,
}
"""GPT-3 on 128 nodes of A100s: 8 x 8 x 16 GPUs, 96 sequences a replica."""

DEEPSEEK: Mapping[str, Any] = {
    **GPT,
    "num_layers": 61,
    "hidden_size": 7168,
    "ffn_hidden_size": 18432,
    "uses_glu": True,
    "num_heads": 128,
    "num_kv_heads": 128,
    "head_size": 128,
    "num_experts": 256,
    "experts_per_token": 8,
    "expert_ffn_hidden_size": 2048,
    "shared_ffn_hidden_size": 2048,
    "num_shared_experts": 1,
    "num_dense_layers": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_head_size": 128,
    "qk_rotary_size": 64,
    "v_head_size": 128,
    "activation_recompute": "none",
}


def row(given: Mapping[str, Any] = GPT, /, **changes: Any) -> Row:
    """A row that took 10 s, at a utilization of 0.5; the estimate is 9 s."""
    return Row("published_measurement", "group", "row", 10.0, 9.0, 0.5, {**given, **changes})


# ---- a row in the words of a program ----


def test_calculon_gets_a_gpt_as_its_three_files() -> None:
    config = CALCULON.configure(row())
    assert config["application"] == {
        "hidden": 12288,
        "feedforward": 49152,
        "seq_size": 2048,
        "attn_heads": 96,
        "attn_size": 128,
        "num_blocks": 96,
    }
    assert config["execution"] == {
        "num_procs": 1024,
        "tensor_par": 8,
        "pipeline_par": 8,
        "data_par": 16,
        "tensor_par_net": 0,  # a tensor group fills a node
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": 1536,
        "microbatch_size": 1,
        "datatype": "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": "attn_only",
        "pipeline_interleaving": 3,
        "optimizer_sharding": False,
        "tensor_par_comm_type": "rs_ag",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": True,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    assert config["template"] == "a100_80g.json"
    assert config["matrix"] == {"float16": 312.0}
    assert (config["vector"], config["GiB"], config["GBps"]) == (78.0, 80.0, 2039.0)
    assert config["networks"] == [{"bandwidth": 300.0, "size": 8}, {"bandwidth": 25.0}]


def test_calculon_puts_groups_into_a_node_in_order_of_ranks() -> None:
    small = {"tensor_parallel": 2, "data_parallel": 4, "num_gpus": 8, "pipeline_parallel": 1}
    nets = ("tensor_par_net", "data_par_net", "pipeline_par_net")
    one_node = CALCULON.configure(row(**small, virtual_pipeline=1))["execution"]
    assert [one_node[name] for name in nets] == [0, 0, 0]
    two_nodes = CALCULON.configure(row(**small | {"pipeline_parallel": 2, "num_gpus": 16}))
    assert [two_nodes["execution"][name] for name in nets] == [0, 0, 1]
    wide = CALCULON.configure(row(tensor_parallel=16, data_parallel=8))["execution"]
    assert [wide[name] for name in nets] == [1, 1, 1]


def test_calculon_hides_exchanges_as_the_measured_program_does() -> None:
    modern = CALCULON.configure(
        row(splits_tensor_exchanges=True, gradient_overlap_fraction=1, zero_stage=1)
    )["execution"]
    assert modern["tensor_par_overlap"] == "ring"
    assert modern["data_par_overlap"] and modern["optimizer_sharding"]
    alone = CALCULON.configure(
        row(gradient_overlap_fraction=1, zero_stage=1, data_parallel=1, num_gpus=64)
    )["execution"]
    assert not alone["data_par_overlap"] and not alone["optimizer_sharding"]


def test_a_gated_layer_becomes_an_ungated_one_with_its_products() -> None:
    gated = row(uses_glu=True, ffn_hidden_size=28672, hidden_size=8192)
    assert 2 * equal_width(gated) == 3 * 28672
    assert equal_width(row()) == 49152


def test_llm_analysis_gets_a_model_a_gpu_and_arguments() -> None:
    config = LLM_ANALYSIS.configure(row())
    assert config["model"] == {
        "name": "row",
        "num_layers": 96,
        "n_head": 96,
        "hidden_dim": 12288,
        "vocab_size": 51200,
        "max_seq_len": 2048,
        "num_key_value_heads": 96,
        "ffn_embed_dim": 49152,
    }
    assert config["gpu"] == {
        "name": "row",
        "mem_per_GPU_in_GB": 80.0,
        "hbm_bandwidth_in_GB_per_sec": 2039.0,
        "intra_node_bandwidth_in_GB_per_sec": 300.0,
        "intra_node_min_message_latency": 8e-6,
        "peak_fp16_TFLOPS": 312.0,
        "inter_node_bandwidth_in_GB_per_sec": 200.0,  # eight cards of 25 GB/s
    }
    assert config["arguments"] == {
        "dtype_name": "w16a16e16",
        "batch_size_per_gpu": 1,
        "global_batch_size": 1536,
        "seq_len": 2048,
        "activation_recomputation": "selective",
        "ds_zero": 0,
        "dp_size": 1,  # all sixteen replicas have all weights
        "tp_size": 8,
        "pp_size": 8,
        "sp_size": 8,
        "ep_size": 1,
        "total_num_gpus": 1024,
        "flash_attn": False,
        "softmax_dropout": True,
    }
    assert LLM_ANALYSIS.configure(row(zero_stage=3))["arguments"]["dp_size"] == 16
    assert AT_HALF.configure(row())["arguments"] == {**config["arguments"], "flops_efficiency": 0.5}


def test_llm_analysis_gets_8_bit_numbers_gates_and_plain_mixtures() -> None:
    hopper = {"fp8_flops_per_second": 1979e12, "precision": "fp8", "accelerator": "H100 SXM 80GB"}
    mixture = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336}
    config = LLM_ANALYSIS.configure(row(**hopper, **mixture, uses_glu=True))
    assert config["arguments"]["dtype_name"] == "w8a8e16"
    assert config["gpu"]["peak_i8_TFLOPS"] == 1979.0
    found = {name: config["model"][name] for name in ("moe_num_experts", "moe_top_k")}
    assert found == {"moe_num_experts": 8, "moe_top_k": 2}
    assert config["model"]["ffn_embed_dim"] == 14336
    assert config["model"]["mlp_gated_linear_units"] is True


def test_simumax_gets_a_model_a_strategy_and_a_system() -> None:
    config = SIMUMAX.configure(row())
    assert config["model"] == {
        "hidden_size": 12288,
        "head_num": 96,
        "kv_head_num": 96,
        "head_size": 128,
        "intermediate_size": 49152,
        "layer_num": 96,
        "vocab_size": 51200,
        "use_swiglu": False,
    }
    strategy = config["strategy"]
    assert strategy["micro_batch_num"] == 96  # 1536 / 16
    assert strategy["recompute_granularity"] == "sdp_only" and strategy["enable_recompute"]
    assert strategy["recompute_layer_num"] == 96
    assert not strategy["pp_comm_async"] and strategy["interleaving_size"] == 3
    assert strategy["use_math_sdp"] and not strategy["use_flash_sdp"]
    assert strategy["grad_reduce_in_bf16"]
    assert (config["template"], config["has_shapes"]) == ("a100_pcie.json", True)
    assert (config["tflops"], config["gbps"], config["mem_gbs"]) == (312.0, 2039.0, 80.0)
    assert (config["intra_gbps"], config["inter_gbps"], config["num_per_node"]) == (300.0, 200.0, 8)


def test_simumax_gets_a_mixture_with_latent_attention() -> None:
    model = SIMUMAX.configure(row(DEEPSEEK))["model"]
    assert model == {
        "hidden_size": 7168,
        "head_num": 128,
        "kv_head_num": 128,
        "head_size": 128,
        "intermediate_size": 18432,
        "layer_num": 61,
        "vocab_size": 51200,
        "use_swiglu": True,
        "expert_num": 256,
        "topk": 8,
        "moe_ffn_hidden_size": 2048,
        "moe_shared_expert_intermediate_size": 2048,
        "dense_layers": 3,
        "attention_type": "mla",
        "v_head_dim": 128,
        "qk_head_dim": 128,
        "qk_pos_emb_head_dim": 64,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
    }


def test_simumax_takes_shapes_that_were_measured_on_the_same_chip_alone() -> None:
    files = {
        name: (config["template"], config["has_shapes"])
        for name in ("A100 SXM 40GB", "H100 SXM 80GB", "GB200 (per GPU)")
        if (config := SIMUMAX.configure(row(accelerator=name)))
    }
    assert files == {
        "A100 SXM 40GB": ("a100_pcie.json", True),
        "H100 SXM 80GB": ("a100_pcie.json", False),
        "GB200 (per GPU)": ("b200_bf16_ceperm.json", True),
    }


def test_simumax_counts_embedding_and_loss_as_layers_where_that_makes_equal_stages() -> None:
    def counts(**given: int) -> Any:
        strategy = SIMUMAX.configure(row(**given))["strategy"]
        names = (f"account_for_{part}_in_pipeline_split" for part in ("embedding", "loss"))
        return [strategy.get(name) for name in names]

    assert counts(num_layers=94) == [True, True]  # 96 on 8 stages
    assert counts(num_layers=61) == counts(num_layers=96) == [None, None]


def test_simumax_recomputes_parts_of_a_layer_by_name() -> None:
    parts = row(activation_recompute="none", recompute_modules="layernorm+moe_act")
    strategy = SIMUMAX.configure(parts)["strategy"]
    assert strategy["megatron_recompute_modules"] == ["layernorm", "moe_act"]
    assert strategy["recompute_granularity"] == "selective_recompute"
    assert (
        "recompute_granularity"
        not in SIMUMAX.configure(row(activation_recompute="none"))["strategy"]
    )


REFUSED = [
    (CALCULON, {"num_experts": 8}, "no experts"),
    (CALCULON, {"precision": "fp4"}, "no 4 bit numbers"),
    (CALCULON, {"num_kv_heads": 8}, "no grouped queries"),
    (CALCULON, {"zero_stage": 3}, "no sharded weights"),
    (CALCULON, {"context_parallel": 2}, "no context parallelism"),
    (CALCULON, {"recompute_modules": "mlp"}, "no recomputation of such parts"),
    (LLM_ANALYSIS, {"kv_lora_rank": 512}, "no latent attention or windows or unlike layers"),
    (LLM_ANALYSIS, {"num_mtp_layers": 1}, "no latent attention or windows or unlike layers"),
    (LLM_ANALYSIS, {"head_size": 256}, "no heads of that size"),
    (LLM_ANALYSIS, {"context_parallel": 2}, "no context parallelism"),
    (SIMUMAX, {"attention_window": 128}, "no windows of attention"),
    (SIMUMAX, {"num_mtp_layers": 1}, "no prediction of further tokens"),
    (SIMUMAX, {"precision": "fp4"}, "no 4 bit numbers"),
    (SIMUMAX, {"zero_stage": 3}, "no sharded weights"),
    (SIMUMAX, {"recomputes_operations": True}, "no recomputation by operation"),
    (
        SIMUMAX,
        {"precision": "fp8", "accelerator": "GB200 (per GPU)"},
        "no 8-bit rates of Blackwell",
    ),
]


@pytest.mark.parametrize(("rival", "changes", "reason"), REFUSED)
def test_a_row_without_an_input_is_refused_with_the_reason(
    rival: Rival, changes: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        rival.configure(row(**changes))
    assert str(refused.value) == reason


# ---- a process of a program ----

FAKE = {
    "config.py": (
        "class ParallelismConfig:\n    rdp_size = 1\n"
        "class ModelConfig(dict):\n    def __init__(self, **given): super().__init__(given)\n"
        "GPUConfig = ModelConfig\nmodel_configs, gpu_configs = {}, {}\n"
    ),
    "analysis.py": (
        "import enum\n"
        "from . import config\n"
        "class ActivationRecomputation(enum.Enum):\n    NONE = 0\n    SELECTIVE = 1\n    FULL = 2\n"
        "def train(**given):\n"
        "    print('noise')\n"
        "    layers = config.model_configs['row']['num_layers']\n"
        "    assert layers < 100, f'too many: {layers}'\n"
        "    return {'latency_per_iter': layers + given['activation_recomputation']}\n"
    ),
}


def checkout(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder with a package that stands for llm-analysis."""
    package = folder / "checkout" / "llm_analysis"
    package.mkdir(parents=True)
    for name, text in {"__init__.py": "", **files}.items():
        (package / name).write_text(text)
    return package.parent


def test_a_program_answers_row_by_row_in_a_process_of_its_own(tmp_path: Path) -> None:
    alone = replace(LLM_ANALYSIS, packages=(), reasons={"too many": "too many layers"})
    rows = [row(num_layers=5), row(kv_lora_rank=1), row(num_layers=100), row(num_layers=7)]
    assert alone.answers(rows, checkout(tmp_path, FAKE)) == [
        6.0,  # five layers, and selective recomputation is 1
        "no latent attention or windows or unlike layers",
        "too many layers",
        8.0,
    ]
    unknown = replace(alone, reasons={})
    assert unknown.answers(rows[2:3], tmp_path / "checkout") == ["too many: N"]


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="--calculon PATH"):
        CALCULON.answers([row()], None)
    with pytest.raises(AbsentError, match="has no checkout at"):
        CALCULON.answers([row()], tmp_path / "nothing")
    with pytest.raises(AbsentError, match="did not run: ModuleNotFoundError"):
        replace(LLM_ANALYSIS, packages=()).answers([row()], checkout(tmp_path, {}))
    assert LLM_ANALYSIS.version(None) == "llm-analysis==0.2.2"
    assert LLM_ANALYSIS.version(tmp_path) == "unknown commit"


def there() -> list[Any]:
    """The programs, each skipped unless a variable names its checkout."""
    found = []
    for rival in RIVALS:
        variable = f"RIVALS_{rival.name.upper().replace('-', '_')}"
        path = os.environ.get(variable)
        skip = pytest.mark.skipif(path is None, reason=f"{variable} names no checkout")
        found.append(pytest.param(rival, Path(path or ""), id=rival.title, marks=skip))
    return found


@pytest.mark.long
@pytest.mark.parametrize(("rival", "path"), there())
def test_a_program_that_is_there_answers_as_it_did_for_the_page(rival: Rival, path: Path) -> None:
    rows = published()
    kept = next(each for each in stored(rows) if each.title == rival.title)
    answered = [n for n, answer in enumerate(kept.answers) if not isinstance(answer, str)]
    chosen = [*answered[:: max(1, len(answered) // 6)], *range(0, len(rows), 90)]
    answers = rival.answers([rows[n] for n in chosen], path)
    assert kept.version == rival.version(path) == f"@{rival.commit[:8]}"
    for number, answer in zip(chosen, answers, strict=True):
        expected = kept.answers[number]
        close = expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-5)
        assert answer == close, rows[number].name


# ---- arithmetic of the tables ----


def rows_of(*seconds: float, mfu: Sequence[float | None] = (), **changes: Any) -> list[Row]:
    """Rows with these measured times, each estimated at 1 s."""
    reached = [*mfu, *[0.5] * len(seconds)]
    return [
        replace(row(**changes), name=f"row {n}", seconds=each, estimate=1.0, mfu=reached[n])
        for n, each in enumerate(seconds)
    ]


def match(rows: Sequence[Row], **answers: Sequence[float | str]) -> Match:
    own = Program(OWN, "this one", [row.estimate or "refused" for row in rows])
    return Match(rows, [own, *(Program(title, "@1", each) for title, each in answers.items())])


def test_errors_are_summed_up_by_size_and_by_sign() -> None:
    found = Errors.of([-0.5, 0.1, 0.2, 0.05])
    assert found is not None
    assert found.rows == 4
    assert found.mean == pytest.approx(0.85 / 4)
    assert found.median == pytest.approx(0.15)
    assert found.bias == pytest.approx(-0.15 / 4)
    assert found.near == 0.5  # an error of exactly a tenth is near
    assert Errors.of([]) is None


def test_the_constant_has_the_least_mean_error() -> None:
    rows = rows_of(1.0, 1.0, 1.0, 1.0, mfu=(0.5, 0.4, 0.2, None))
    # half of the weights, 0.55, is reached at the second of 0.5, 0.4, 0.2
    assert constant(rows) == 0.4
    assert at_constant(rows[:3]) == pytest.approx([1.25, 1.0, 0.5])

    def mean(at: float) -> float:
        return sum(abs(u / at - 1) for u in (0.5, 0.4, 0.2)) / 3

    assert all(mean(0.4) <= mean(at / 1000) for at in range(150, 600))


def test_tables_count_answers_refusals_and_the_same_rows() -> None:
    rows = rows_of(1.0, 2.0, 1.0, 4.0)
    found = match(rows, other=[1.05, "no experts", 0.5, "no experts"])
    # the constant is right everywhere: all rows have one utilization
    assert programs_table(found).splitlines()[2:] == [
        "| training_step | this one | 4 | 31.2 | 25.0 | -31.2 | 50 |  | 0 |",
        "| other | @1 | 2 | 27.5 | 27.5 | -22.5 | 50 | 0.0 | 2 |",
        f"| {CONSTANT} | fitted to these rows | 4 | 0.0 | 0.0 | +0.0 | 100 | 31.2 | 0 |",
    ]
    assert found.accepted_by_all() == [0, 2]
    assert shared_table(found).splitlines()[3] == "| other | 2 | 27.5 | 27.5 | -22.5 | 50 |"
    assert refusals_table(found).splitlines()[2:] == ["| other | no experts | 2 |"]
    assert sets_table(found).splitlines()[3] == (
        "| dense 16-bit | 4 | 31.2 (4) | 27.5 (2) | 0.0 (4) |"
    )


def test_a_program_that_answers_nothing_does_not_empty_the_shared_rows() -> None:
    found = match(rows_of(1.0, 2.0), none=["no", "no"], other=[1.0, "no"])
    assert found.accepted_by_all() == [0]
    assert "none" not in shared_table(found)


def test_a_win_is_of_the_rows_that_both_answer_and_of_three_or_more() -> None:
    rows = [*rows_of(1.25, 1.25, 1.25), *rows_of(1.0, 1.0, precision="fp8")]
    nearer = match(rows, other=[1.25, 1.25, 1.25, 1.5, "no"])
    wins = [(each.program, each.where, each.theirs.rows) for each in nearer.wins()]
    assert ("other", "dense 16-bit", 3) in wins
    assert ("other", "all rows", 4) in wins  # 12.5 against 15 %
    assert not any(where == "dense FP8" for _, where, _ in wins)
    assert "| other | dense 16-bit | 3 | 0.0 | 20.0 |" in wins_table(nearer)
    assert match(rows[:2], other=[1.25, 1.25]).wins() == []


def test_sets_are_all_rows_kinds_machines_and_groups_that_are_neither() -> None:
    rows = [
        *rows_of(1.0, 1.0),
        *rows_of(1.0, accelerator="H100 SXM 80GB", num_experts=8, precision="fp8"),
    ]
    rows[0] = replace(rows[0], group="first", reference="published_megatron_scaling")
    rows[1] = replace(rows[1], group="second")
    rows[2] = replace(rows[2], group="third")
    sets = dict(match(rows).sets())
    assert sets == {
        "all rows": [0, 1, 2],
        "dense 16-bit": [0, 1],
        "A100 SXM 80GB": [0, 1],
        "mixture FP8": [2],
        "H100 SXM 80GB": [2],
        "`megatron_scaling, first`": [0],
        "`second`": [1],
    }


# ---- the page ----


def test_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ANSWERS", tmp_path / "answers.csv")
    monkeypatch.setattr(page, "VERSIONS", tmp_path / "versions.csv")
    rows = rows_of(1.0, 2.0)
    given = [
        Program("one", "@1", [1.234567891, "no experts, or so"], "2026-01-02"),
        Program("two", "@2", ["no", 0.5], "2026-01-03"),
    ]
    page.store(rows, given)
    kept = page.stored([*rows, row()])
    assert [(each.title, each.version, each.date) for each in kept] == [
        ("one", "@1", "2026-01-02"),
        ("two", "@2", "2026-01-03"),
    ]
    assert kept[0].answers == [1.23457, "no experts, or so", page.NOT_ASKED]
    assert kept[1].answers == ["no", 0.5, page.NOT_ASKED]


def test_the_paper_s_model_answers_what_it_has_inputs_for() -> None:
    plain = row(activation_recompute="full", vocab_size=51200)
    uneven = row(activation_recompute="full", num_layers=95)
    first, *refused, last = paper([plain, row(num_experts=8), row(), uneven, plain])
    assert isinstance(first, float) and isinstance(last, float)
    assert first == last > 0
    assert refused == ["no experts", "no selective recomputation", "stages of unequal length"]


@pytest.mark.long
def test_the_page_is_up_to_date() -> None:
    rows = published()
    text = PAGE.read_text("utf-8")
    assert {found[2] for found in MADE.finditer(text)} == set(TABLES)
    found = match_of(rows, stored(rows))
    assert filled(text, found) == text, "run `make pages ARGS=rivals.md`"
    assert {program.title for program in found.programs} >= {rival.title for rival in RIVALS}
    assert all(page.NOT_ASKED not in program.answers for program in found.programs), (
        "published steps are new: run `python -m benchmarks.rivals --write` with checkouts"
    )
