"""Launch files of each program: what is read, what is not, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from estimators import registry
from warehouse.errors import InputError
from warehouse.launch.read import LaunchFile, read_launch, with_launch

MEGATRON = (
    "torchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 512 "
    "--bf16 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
)
MIXTURE = "--num-experts 8 --moe-grouped-gemm --moe-permute-fusion "


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(text: str, name: str = "run.sh", **given: str) -> LaunchFile:
        path = tmp_path / name
        path.write_text(text)
        return read_launch(path, given)

    return read


def refusal(read: Any, text: str, name: str = "run.sh") -> str:
    with pytest.raises(InputError) as error:
        read(text, name)
    message = str(error.value)
    assert name in message
    return message


def columns(launch: LaunchFile, *names: str) -> tuple[str | None, ...]:
    return tuple(launch.columns.get(name) for name in names)


# ---- Megatron-LM ----


def test_a_command_line_is_read(read: Any) -> None:
    found = read(MEGATRON + "--swiglu --untie-embeddings-and-output-weights --sequence-parallel")
    assert found.program == "Megatron-LM"
    names = ("num_gpus", "num_layers", "tensor_parallel", "pipeline_parallel", "global_batch_size")
    assert columns(found, *names) == ("128", "32", "4", "2", "512")
    assert columns(found, "uses_glu", "ties_embedding", "uses_sequence_parallel") == (
        "true",
        "false",
        "true",
    )
    # two thirds of 4 x 4096, in multiples of 64
    assert columns(found, "ffn_hidden_size", "num_kv_heads") == ("10880", "32")


def test_what_is_left_out_is_what_the_program_does(read: Any) -> None:
    found = read(MEGATRON)
    names = ("zero_stage", "uses_sequence_parallel", "gradient_overlap_fraction", "uses_dropout")
    assert columns(found, *names) == ("0", "false", "0.0", "true")
    assert columns(found, "activation_recompute", "uses_cuda_graphs") == ("none", "false")
    fast = read(
        MEGATRON + "--use-distributed-optimizer --overlap-grad-reduce --attention-dropout 0 "
        "--hidden-dropout 0.0"
    )
    assert columns(fast, *names) == ("1", "false", None, "false")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--num-layers-per-virtual-pipeline-stage 4", {"virtual_pipeline": "4"}),
        ("--num-virtual-stages-per-pipeline-rank 8", {"virtual_pipeline": "8"}),
        (
            "--pipeline-model-parallel-layout Et*16|t*16L",
            {"pipeline_layout": "Et*16|t*16L", "virtual_pipeline": None},
        ),
        ("--group-query-attention --num-query-groups 8", {"num_kv_heads": "8"}),
        ("--num-query-groups 8", {"num_kv_heads": "32"}),
        ("--fp8-format hybrid", {"precision": "fp8", "number_recipe": "delayed"}),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", {"precision": "fp8", "number_recipe": "mxfp8"}),
        ("--fp4-format e2m1", {"precision": "fp4", "number_recipe": "nvfp4"}),
        (
            "--fp8-format hybrid --first-last-layers-bf16 --num-layers-at-end-in-bf16 4",
            {"num_bf16_layers_start": "1", "num_bf16_layers_end": "4"},
        ),
        ("--grad-reduce-in-bf16", {"reduced_gradient_bytes": "2.0"}),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
            {"moment_bytes": "2.0", "main_weight_bytes": "4.0"},
        ),
        ("--recompute-activations", {"activation_recompute": "selective"}),
        (
            "--recompute-granularity selective --recompute-modules mlp layernorm",
            {"recompute_modules": "layernorm+mlp"},
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            {"activation_recompute": "full", "recompute_modules": "none"},
        ),
        ("--use-megatron-fsdp", {"zero_stage": "3"}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"zero_stage": "2"}),
        ("--window-size 127,0 --window-attn-skip-freq 2", {"attention_window": "128"}),
        ("--attention-backend unfused", {"attention": "unfused"}),
        ("--disable-bias-linear --add-qkv-bias", {"other_layer_parameters": "12288"}),
        (
            "--cuda-graph-impl transformer_engine --cuda-graph-scope moe_router",
            {"uses_cuda_graphs": "true", "captures_attention": "false"},
        ),
        ("--cuda-graph-impl full_iteration", {"captures_whole_steps": "true"}),
        (MIXTURE, {"num_experts": "8", "experts_per_token": "2", "dispatcher": "allgather"}),
        (MIXTURE, {"expert_ffn_hidden_size": "16384", "expert_tensor_parallel": "4"}),
        (MIXTURE + "--moe-layer-freq '([0]*3+[1]*29)'", {"num_dense_layers": "3"}),
        (MIXTURE + "--moe-layer-freq 2", {"moe_period": "2"}),
        (MIXTURE + "--moe-layer-freq [1,0]*16", {"moe_period": "2"}),
        (
            MIXTURE + "--moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 1024",
            {"num_shared_experts": "2", "shared_ffn_hidden_size": "1024"},
        ),
        ("--moe-router-topk 4", {"experts_per_token": None}),
        (
            "--multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536 --qk-layernorm",
            {"kv_lora_rank": "512", "qk_head_size": "128", "uses_qk_norm": "false"},
        ),
        ("--kv-lora-rank 512", {"kv_lora_rank": None}),
    ],
)
def test_arguments_are_columns(flags: str, expected: dict[str, str | None], read: Any) -> None:
    found = read(MEGATRON + flags)
    assert {name: found.columns.get(name) for name in expected} == expected


def test_every_argument_is_read_or_named(read: Any) -> None:
    found = read(
        MEGATRON + "--save /x --lr 1e-4 --optimizer sgd --optimizer-cpu-offload --cp-comm-type p2p "
        "--sequence-paralel --bogus 3"
    )
    said = {flag for flags in found.ignored.values() for flag in flags}
    assert said == {"--save", "--lr", "--cp-comm-type"}
    # a2a is another way, but one of context ranks
    flags = "--cp-comm-type a2a --context-parallel-size 2"
    assert "--cp-comm-type" in read(MEGATRON + flags).unmodelled
    assert {"--optimizer", "--optimizer-cpu-offload"} <= found.unmodelled.keys()
    assert found.unknown == {
        "--sequence-paralel": "; did you mean --sequence-parallel?",
        "--bogus": "",
    }
    lines = "\n".join(found.every_line())
    for flag in ("--save", "--lr", "--optimizer", "--bogus", "--sequence-paralel"):
        assert flag in lines
    assert len(found.read) == 9
    assert found.document()["unknown"] == ["--sequence-paralel", "--bogus"]


def test_what_the_program_does_without_a_flag_is_named(read: Any) -> None:
    dense, mixture = read(MEGATRON), read(MEGATRON + "--num-experts 8 --cross-entropy-loss-fusion")
    assert "no --cross-entropy-loss-fusion" in dense.unmodelled
    assert {*mixture.unmodelled} == {
        "no --moe-grouped-gemm",
        "no --moe-permute-fusion",
        "no --vocab-size",
    }
    assert "no --vocab-size" not in read(MEGATRON, vocab_size="32000").unmodelled
    assert "no --vocab-size" not in read(MEGATRON, model="llama3_8B").unmodelled


def test_a_part_of_the_layers_is_named(read: Any) -> None:
    flags = "--recompute-granularity full --recompute-method block --recompute-num-layers "
    assert "--recompute-num-layers" in read(MEGATRON + flags + "5").unmodelled
    assert "--recompute-num-layers" not in read(MEGATRON + flags + "16").unmodelled


def test_an_argument_that_needs_another_says_nothing_without_it(read: Any) -> None:
    alone = read(MEGATRON + "--fsdp-double-buffer")
    assert "--fsdp-double-buffer" not in alone.unmodelled
    assert (
        "--fsdp-double-buffer"
        in read(MEGATRON + "--fsdp-double-buffer --use-megatron-fsdp").unmodelled
    )


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--num-layers $LAYERS", "`--num-layers` $LAYERS is a variable that the file does not set"),
        ("--hidden-size wide", "`--hidden-size` wide must be a whole number"),
        ("--seq-length 99999999999999999999999", "`--seq-length`"),
        ("--attention-backend magic", "is not a value that is modelled"),
        ("--fp8-format hybrid --fp8-recipe custom", "is a recipe that is not modelled"),
        ("--hybrid-layer-pattern M-M*", "has Mamba layers, which the estimates do not have"),
        (MIXTURE + "--moe-layer-freq [1]*9999999999999", "is no list of 32 ones and zeros"),
        (MIXTURE + "--moe-layer-freq [1]*31", "is no list of 32 ones and zeros"),
        ("--num-layers-per-virtual-pipeline-stage 5", "does not divide 32 layers"),
        ("--recompute-granularity some", "is not known"),
    ],
)
def test_a_faulty_value_is_refused_by_argument(flags: str, reason: str, read: Any) -> None:
    message = refusal(read, MEGATRON + flags)
    assert reason.replace("$LAYERS", '"$LAYERS"').replace("wide must", '"wide" must') in message


def test_a_run_in_32_bits_is_refused_unless_the_user_says_more(read: Any) -> None:
    text = MEGATRON.replace("--bf16 ", "")
    assert "matmuls in 32 bits" in refusal(read, text)
    assert "precision" not in read(text, precision="bf16").columns


def test_columns_that_a_user_gives_replace_those_of_the_file(read: Any) -> None:
    found = read(MEGATRON.replace("--tensor-model-parallel-size 4", ""), model="llama3_8B")
    assert not found.columns.keys() & {"num_layers", "hidden_size", "uses_glu"}
    assert found.columns["seq_len"] == "4096"
    assert "--num-layers" in found.read
    wrong = MEGATRON.replace("--num-layers 32", "--num-layers $L")
    assert read(wrong, num_layers="8").columns.get("num_layers") is None


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("torchrun --nproc_per_node=8 --nnodes=4 {}", "32"),
        ("torchrun --nproc-per-node 8 {}", "8"),
        ("torchrun --nproc_per_node 8 --nnodes $N {}", None),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun python {}", "32"),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:a100:4\nsrun python {}", "8"),
        (
            "#SBATCH --nodes=4 --gpus-per-node=h100:8  # all\nsrun torchrun --nproc_per_node=$G {}",
            "32",
        ),
        (
            "#SBATCH -N 4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"
            "srun torchrun --nproc-per-node $G --nnodes $N {}",
            "32",
        ),
        ("srun -N 4 --ntasks-per-node=8 --gpus-per-node 8 python {}", "32"),
        ("#SBATCH --ntasks=64\nsrun python {}", "64"),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 {}", None),
        ("deepspeed --hostfile hosts --num_gpus 8 {}", None),
        ("G=8\nN=2\nWORLD_SIZE=$(($G*$N))\npython {}", "16"),
        ("deepspeed --num_gpus 8 --num_nodes 2 {}", "16"),
        ("python {}", None),
    ],
)
def test_gpus_are_those_that_the_launcher_starts(text: str, gpus: str | None, read: Any) -> None:
    command = MEGATRON.partition("16 ")[2]
    assert read(text.format(command)).columns.get("num_gpus") == gpus


def test_a_file_without_gpus_needs_them(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python " + MEGATRON.partition("16 ")[2])
    estimator = registry.get(registry.default("why"))
    relation = estimator.relations[0]
    with pytest.raises(InputError, match="does not say how many GPUs run"):
        with_launch(path, {}, estimator, relation)
    texts, _ = with_launch(path, {"num_gpus": "64"}, estimator, relation)
    assert texts["num_gpus"] == "64"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no command has arguments of a program that is known"),
        ("echo --hello", "no command has arguments of a program that is known"),
        (MEGATRON.replace("_gpt", "_bert"), "pretrain_bert.py trains an encoder"),
        ("x/pretrain_mamba.py " + MEGATRON.partition(".py")[2], "trains Mamba layers"),
        (f"for i in 1 2; do\n{MEGATRON}\ndone", "line 2 starts a program in a loop"),
        (MEGATRON + "\n" + MEGATRON.replace("512", "256"), "lines 1, 2 start different runs"),
    ],
)
def test_a_script_that_starts_no_one_run_is_refused(text: str, reason: str, read: Any) -> None:
    assert reason in refusal(read, text)


def test_what_may_be_set_is_named(read: Any) -> None:
    found = read(f'A=""\nif [ -f /x ]; then A="--sequence-parallel"; fi\n{MEGATRON} $A')
    assert found.unsettled == ("--sequence-parallel (line 2)",)
    assert any("--sequence-parallel (line 2)" in line for line in found.remarks())


def test_variables_that_may_be_arguments_are_named(read: Any) -> None:
    text = 'pretrain_gpt.py $HEAD --save $DIR --swiglu $(cat a b) --bf16 $EXTRA_ARGS --lr $LR "$@"'
    found = read(MEGATRON.replace("pretrain_gpt.py", text))
    assert found.unsettled == tuple(
        f"{word} (line 1)" for word in ("$HEAD", "$(cat a b)", "$EXTRA_ARGS", "$@")
    )


@pytest.mark.parametrize("suffix", [".sh", ".yaml", ".json"])
def test_a_file_that_is_none_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    for content, reason in (
        (None, "there is no such file"),
        (b"x" * 1_000_001, "has more than 1 MB"),
        (b"a: 1\n\xff\xfe", "line 2 is not UTF-8 text"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=reason):
            read_launch(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="is no file"):
        read_launch(path)


# ---- files of keys ----

BRIDGE: dict[str, Any] = {
    "train": {"global_batch_size": 512, "micro_batch_size": 2},
    "model": {
        "_target_": "megatron.bridge.models.gpt_provider.GPTModelProvider",
        "transformer": {
            "num_layers": 4,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "num_query_groups": 8,
            "gated_linear_unit": True,
            "add_bias_linear": False,
            "num_moe_experts": 4,
            "moe_layer_freq": [0, 1, 1, 1],
            "attention_backend": {"_target_": "x.AttnBackend", "_args_": [5], "_name_": "auto"},
            "tensor_model_parallel_size": 2,
            "pipeline_model_parallel_size": 2,
            "pipeline_model_parallel_layout": [
                ["embedding", "decoder"],
                ["decoder", "decoder", "decoder", "loss"],
            ],
            "overlap_p2p_comm": False,
            "activation_func": {"_target_": "torch.nn.functional.silu", "_call_": False},
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
        },
        "seq_length": 2048,
        "share_embeddings_and_output_weights": False,
    },
    "mixed_precision": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "ddp": {"use_distributed_optimizer": True, "grad_reduce_in_fp32": False},
    "comm_overlap": {"data_parallel_size": 8, "tp_comm_overlap": None},
    "checkpoint": {"save": "/x", "anything": 1},
    "peft": None,
}


def test_the_resolved_yaml_of_bridge_is_read(read: Any) -> None:
    found = read(json.dumps(BRIDGE), "run_config.yaml")
    assert found.program == "Megatron-Bridge"
    expected = {
        "num_gpus": "32",
        "num_kv_heads": "8",
        "uses_glu": "true",
        "uses_linear_bias": "false",
        "ties_embedding": "false",
        "num_dense_layers": "1",
        "pipeline_layout": "Et|tttL",
        "seq_len": "2048",
        "precision": "fp8",
        "number_recipe": "tensorwise",
        "zero_stage": "1",
        "reduced_gradient_bytes": "2.0",
        "pipeline_overlap_fraction": "0.0",
        "attention": "flash",
        "microbatch_size": "2",
    }
    assert {name: found.columns.get(name) for name in expected} == expected
    said = {path for names in found.ignored.values() for path in names}
    assert {"checkpoint.save", "checkpoint.anything", "peft"} <= said
    assert not found.unknown


def test_an_unknown_key_is_named_by_its_path(read: Any) -> None:
    changed = {**BRIDGE, "ddp": {**BRIDGE["ddp"], "overlap_grad_reduc": True}}
    found = read(json.dumps(changed), "run_config.yaml")
    assert "ddp.overlap_grad_reduc" in found.unknown


def test_a_fault_is_named_by_its_path(read: Any) -> None:
    changed = {**BRIDGE, "train": {"global_batch_size": -3, "micro_batch_size": 2}}
    assert "`train.global_batch_size`" in refusal(read, json.dumps(changed), "run_config.yaml")
    lora = {**BRIDGE, "peft": {"_target_": "megatron.bridge.peft.lora.LoRA", "dim": 16}}
    assert "has adapters (LoRA)" in refusal(read, json.dumps(lora), "run_config.yaml")


NEMO = """
trainer: {devices: 8, num_nodes: 4, precision: bf16-mixed}
model:
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 4
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  num_attention_heads: 16
  activation: fast-swiglu
  bias: false
  activations_checkpoint_granularity: selective
  activations_checkpoint_method: uniform
  hidden_dropout: 0.0
  attention_dropout: 0.0
  transformer_engine: true
  optim: {name: distributed_fused_adam, lr: 1e-4, overlap_grad_sync: true}
  data: {seq_length: "${model.encoder_seq_length}", data_prefix: x}
exp_manager: {exp_dir: /x}
"""


def test_the_yaml_of_nemo_is_read(read: Any) -> None:
    found = read(NEMO, "gpt.yaml")
    assert found.program == "NeMo"
    names = ("num_gpus", "seq_len", "uses_glu", "uses_linear_bias", "zero_stage", "precision")
    assert columns(found, *names) == ("32", "2048", "true", "false", "1", "bf16")
    assert columns(found, "activation_recompute", "tensor_parallel") == ("selective", "4")
    assert not found.unknown


def test_gradients_of_nemo_have_a_format(read: Any) -> None:
    text = NEMO.replace("lr: 1e-4", "grad_sync_dtype: bf16")
    assert read(text, "gpt.yaml").columns["reduced_gradient_bytes"] == "2.0"
    assert "`model.optim.grad_sync_dtype`" in refusal(read, text.replace("bf16,", "fp8,"), "g.yaml")


def test_of_two_keys_of_an_argument_one_counts_and_the_other_is_named(read: Any) -> None:
    found = read(NEMO.replace("trainer:", "model_parallel: {num_layers: 3}\ntrainer:"), "gpt.yaml")
    assert found.columns["num_layers"] == "24"
    assert (
        "model_parallel.num_layers" in found.ignored["as another key of the same argument counts"]
    )


def test_the_yaml_of_megatron_is_read(read: Any) -> None:
    text = (
        "language_model: {num_layers: 24, hidden_size: 1024, num_attention_heads: 16, "
        "activation_func: gelu, ffn_hidden_size: null}\n"
        "model_parallel: {tensor_model_parallel_size: 2, bf16: true, sequence_parallel: true}\n"
        "micro_batch_size: 2\nseq_length: 512\nworld_size: 8\nlr: 1.0e-4\n"
    )
    found = read(text, "args.yml")
    names = ("num_gpus", "num_layers", "tensor_parallel", "global_batch_size", "ffn_hidden_size")
    assert columns(found, *names) == ("8", "24", "2", "8", "4096")
    assert columns(found, "uses_glu", "uses_sequence_parallel") == ("false", "true")


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("a: [1", "a.yaml", "is not valid YAML"),
        ("- 1\n- 2", "a.yaml", "must be keys with values"),
        ("a: 1", "a.yaml", "has the keys of no program that is known"),
        ("{", "a.json", "is not valid JSON"),
        ("", "a.json", "it is empty"),
        ('{"a": ' * 3000 + "1" + "}" * 3000, "a.json", "nested too deeply"),
        ("train: {}\nmodel: " + "{a: " * 80 + "1" + "}" * 80, "a.yaml", "nested too deeply"),
        (
            "a0: &a0 {x: 1, y: 2}\n"
            + "".join(
                f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}\n"
                for n in range(1, 9)
            )
            + "train: {}\nmodel: *a8\n",
            "a.yaml",
            "has more than 20,000 keys",
        ),
    ],
)
def test_a_broken_or_hostile_file_of_keys_is_refused(
    text: str, name: str, reason: str, read: Any
) -> None:
    assert reason in refusal(read, text, name)


def test_no_object_of_python_is_made(read: Any, tmp_path: Path) -> None:
    mark = tmp_path / "made"
    text = NEMO + f"\nrun: !!python/object/apply:pathlib.Path.touch [{mark}]\n"
    read(text, "gpt.yaml")
    assert not mark.exists()


# ---- torchtitan ----

TITAN = "NGPU=64 ./run_train.sh --module llama3 --config llama3_70b --training.steps 10 "


def test_a_configuration_of_torchtitan_is_read(read: Any) -> None:
    found = read(TITAN)
    expected = {
        "framework": "fsdp",
        "num_gpus": "64",
        "num_layers": "80",
        "tensor_parallel": "8",
        "microbatch_size": "8",
        "global_batch_size": "64",
        "activation_recompute": "full",
        "zero_stage": "3",
        "uses_cuda_graphs": "true",
    }
    assert {name: found.columns.get(name) for name in expected} == expected
    assert "loss.num_chunks" in found.unmodelled


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--compile.enable", {"framework": "fsdp_compile"}),
        ("--compile.no-enable", {"framework": "fsdp"}),
        ("--compile.enable --compile.components loss", {"framework": "fsdp"}),
        ("--parallelism.tensor-parallel-degree 2", {"tensor_parallel": "2"}),
        ("--training.num_tokens_per_microbatch_per_dp_rank=8192", {"microbatch_size": "1"}),
        ("--training.num_tokens_per_train_step 4194304", {"global_batch_size": "512"}),
        ("activation_checkpoint:selective-ac", {"activation_recompute": "selective"}),
        ("activation-checkpoint:none", {"activation_recompute": "none"}),
        ("--parallelism.fsdp_reshard_after_forward never", {"zero_stage": "2"}),
        ("--training.disable_cuda_graphs", {"uses_cuda_graphs": "false"}),
        (
            "--parallelism.pipeline_parallel_degree 4 --parallelism.num_pp_microbatches 8 "
            "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
            "--parallelism.pipeline_parallel_layers_per_stage 7",
            # (80 + 1 + 1) / 7 rounded up are 12 stages of 4 ranks
            {"virtual_pipeline": "3", "zero_stage": "2", "global_batch_size": "128"},
        ),
    ],
)
def test_overrides_of_torchtitan_count(flags: str, expected: dict[str, str], read: Any) -> None:
    found = read(TITAN + flags)
    assert {name: found.columns.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("llama3_70b", "llama3_70"), "is no configuration that is known"),
        (("llama3 --config llama3_70b", "flux --config flux_dev"), "has an image model"),
        (("llama3 --config llama3_70b", "qwen3_5 --config qwen35_2b"), "has linear attention"),
        (("10 ", "10 --training.max_context_length 5000 "), "is no multiple of the 5000 tokens"),
    ],
)
def test_a_run_of_torchtitan_that_no_estimate_has_is_refused(
    change: tuple[str, str], reason: str, read: Any
) -> None:
    assert reason in refusal(read, TITAN.replace(*change))


def test_variables_name_a_configuration_of_torchtitan(read: Any) -> None:
    found = read("MODULE=llama3 CONFIG=llama3_8b NGPU=16 ./run_train.sh --compile.enable")
    assert columns(found, "num_layers", "num_gpus", "framework") == ("32", "16", "fsdp_compile")
    assert (
        read("export MODULE=llama3\nCONFIG=llama3_8b ./run_train.sh").columns["num_layers"] == "32"
    )
    assert "is no configuration" in refusal(read, "MODULE=llama3 ./run_train.sh")


# ---- DeepSpeed and Hugging Face ----

TRAINER: dict[str, Any] = {
    "output_dir": "out",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": True,
    "gradient_checkpointing": True,
    "fsdp": "full_shard auto_wrap",
    "max_seq_length": 1024,
    "optim": "adamw_bnb_8bit",
    "whatever": 1,
}
DEEPSPEED: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "bf16": {"enabled": True},
    "foo": 1,
}


def test_arguments_of_a_trainer_are_read_with_the_model_beside(read: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = read(json.dumps(TRAINER), "args.json", num_gpus="16")
    names = ("framework", "zero_stage", "microbatch_size", "global_batch_size", "seq_len", "model")
    beside = str(tmp_path / "config.json")
    assert columns(found, *names) == ("fsdp", "3", "2", "128", "1024", beside)
    assert columns(found, "activation_recompute", "precision") == ("full", "bf16")
    assert "optim" in found.unmodelled
    assert [*found.unknown] == ["whatever"]


def test_a_batch_of_replicas_follows_what_is_given_besides(read: Any) -> None:
    found = read(json.dumps(TRAINER), "args.json", num_gpus="16", tensor_parallel="4")
    assert found.columns["global_batch_size"] == "32"


@pytest.mark.parametrize(
    ("fsdp", "stage"),
    [("full_shard", "3"), ("shard_grad_op auto_wrap", "2"), ("no_shard", "0"), ("", "0")],
)
def test_words_of_fsdp_are_stages(fsdp: str, stage: str, read: Any) -> None:
    assert read(json.dumps({**TRAINER, "fsdp": fsdp}), "a.json").columns["zero_stage"] == stage


def test_a_length_that_no_key_has_is_named(read: Any) -> None:
    text = json.dumps({**TRAINER, "max_seq_length": None})
    assert "no length of sequences" in read(text, "args.json").unmodelled
    assert "no length of sequences" not in read(text, "args.json", seq_len="512").unmodelled


def test_a_file_for_fsdp_is_read(read: Any, tmp_path: Path) -> None:
    (tmp_path / "fsdp.json").write_text(
        '{"reshard_after_forward": "false", "offload_params": true}'
    )
    found = read(json.dumps({**TRAINER, "fsdp_config": "fsdp.json"}), "args.json", num_gpus="8")
    assert found.columns["zero_stage"] == "2"
    assert "fsdp_config.offload_params" in found.unmodelled


def test_deepspeed_beside_a_trainer_counts(read: Any, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(DEEPSPEED))
    arguments = {**TRAINER, "fsdp": "", "deepspeed": "ds.json"}
    found = read(json.dumps(arguments), "args.json", num_gpus="8")
    assert columns(found, "framework", "zero_stage", "microbatch_size") == ("deepspeed", "2", "2")
    assert "deepspeed.zero_optimization.offload_optimizer.device" in found.unmodelled
    assert "deepspeed.foo" in found.unknown
    missing = {**arguments, "deepspeed": "none.json"}
    assert "`deepspeed` none.json: there is no such file" in refusal(
        read, json.dumps(missing), "args.json"
    )


def test_a_value_of_auto_is_read_from_the_trainer_and_said(read: Any, tmp_path: Path) -> None:
    auto = {"train_batch_size": "auto", "bf16": {"enabled": "auto"}}
    (tmp_path / "ds.json").write_text(json.dumps({**DEEPSPEED, **auto}))
    found = read(json.dumps({**TRAINER, "deepspeed": "ds.json"}), "args.json", num_gpus="8")
    assert columns(found, "microbatch_size", "global_batch_size", "precision") == (
        "2",
        "64",
        "bf16",
    )
    assert {"deepspeed.train_batch_size", "deepspeed.bf16.enabled"} <= {*found.read}


def test_a_model_is_no_launch_file(read: Any) -> None:
    assert "a model goes with --model" in refusal(read, '{"hidden_size": 8}', "config.json")


def test_the_json_of_deepspeed_alone_is_read(read: Any) -> None:
    alone = {**DEEPSPEED, "train_micro_batch_size_per_gpu": 4, "train_batch_size": 256}
    found = read(json.dumps(alone), "ds.json")
    assert found.program == "DeepSpeed"
    names = ("zero_stage", "microbatch_size", "global_batch_size", "gradient_overlap_fraction")
    assert columns(found, *names) == ("2", "4", "256", "0.0")
    assert [*found.unknown] == ["foo"]


def test_megatron_with_deepspeed_is_another_program(read: Any, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}, "foo": 1}))
    found = read(MEGATRON + "--deepspeed --deepspeed_config ds.json --no-pipeline-parallel")
    assert found.program == "Megatron-DeepSpeed"
    assert columns(found, "framework", "zero_stage", "num_layers") == ("deepspeed", "3", "32")
    assert [*found.unknown] == ["deepspeed.foo"]


def test_a_script_of_the_trainer_is_read(read: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = read(
        "accelerate launch --num_processes 16 --config_file fsdp.yaml train.py "
        "--model_name_or_path . --per-device-train-batch-size 1 --gradient_accumulation_steps 2 "
        "--bf16 --fsdp full_shard --block_size 512"
    )
    assert columns(found, "num_gpus", "global_batch_size", "seq_len") == ("16", "32", "512")
    assert "--config_file" in found.unknown
    named = read("torchrun --nproc_per_node 8 a.py b.yaml --bf16 --max_length 8 --fsdp full_shard")
    assert [*named.unknown] == ["b.yaml"]
