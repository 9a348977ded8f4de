"""Columns of the training_step estimator: its constants, its parts of a step, its memory."""

from __future__ import annotations

from estimators.columns.column import (
    MEGATRON,
    Column,
    count,
    efficiency,
    fraction,
    latency,
    measure,
    positive,
    text,
)
from estimators.columns.forms import BYTES_OF_ELEMENT, FIT, PLAIN

SHAPE = (
    count("expert_ffn_hidden_size", "Width of one expert's feed-forward layer"),
    Column("num_shared_experts", "int", "", "Experts that every token passes through", minimum=0),
    Column("num_dense_layers", "int", "", "Layers of a mixture without experts", minimum=0),
    Column("ties_embedding", "bool", "", "Whether embedding and output layer share their weights"),
)

RUN = (
    Column(
        "power_limit_watts",
        "float",
        "watts",
        "Power that firmware keeps a board to; NULL where it is not known: full clock",
        above=0,
        maximum=1e6,
    ),
    text("framework", "Program whose choices of fusion, overlap and bytes are taken"),
    text("profile", "Set of constants: default, or the name of a calibrated one"),
    text("kernels", "Accelerator whose measured kernels are read; `formula`: none are"),
    text(
        "attention_program",
        "Program of fused attention whose rates are taken; `formula`: shares of the peak",
        *(
            "cudnn",
            "cudnn_9_22",
            "cudnn_mxfp8",
            "flash_3",
            "flash_2",
            "flash_1",
            "triton",
            "formula",
        ),
    ),
    text("precision", "Number format of the matrix products", "bf16", "fp16", "fp8", "fp4"),
    text(
        "number_recipe",
        "How operands in 8 or 4 bits get their scales; none in 16 bits",
        *("none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"),
    ),
    *(
        Column(
            f"num_bf16_layers_{end}",
            "int",
            "layers",
            f"Layers at the {end} of the model whose products stay in 16 bits",
            minimum=0,
        )
        for end in ("start", "end")
    ),
    Column(
        "keeps_quantized_weights",
        "bool",
        "",
        "Whether weights in 8 or 4 bits are the parameters, without copies in 16 bits",
    ),
    *(
        Column(name, "float", "bytes", meaning, minimum=0, maximum=4, shown_as=BYTES_OF_ELEMENT)
        for name, meaning in (
            (
                "moment_bytes",
                "Bytes of one moment of the optimizer; can replace stored_optimizer_bytes",
            ),
            (
                "main_weight_bytes",
                "Bytes of the weight that the optimizer updates; as moment_bytes",
            ),
        )
    ),
    Column(
        "quantizes_output_layer",
        "bool",
        "",
        "Whether the products of the output layer run in the format of the others",
    ),
    text(
        "recompute_modules",
        "Parts of a layer that are recomputed one by one, + between them: core_attn, layernorm, "
        "moe_act, mlp, shared_experts, mla_up_proj, moe; or none",
    ),
)

CONSTANTS = (
    count("num_sms", "Streaming multiprocessors (compute units) of the accelerator"),
    efficiency("gemm_efficiency", "Share of the peak that a large product reaches, BF16 or FP16"),
    efficiency("fp8_gemm_efficiency", "Share of the FP8 peak that a large product reaches"),
    efficiency("fp4_gemm_efficiency", "Share of the FP4 peak that a large product reaches"),
    Column(
        "transposes_operands",
        "bool",
        "",
        "Whether products in FP8 need transposed copies of their operands, as on Hopper",
    ),
    Column(
        "gemm_half_depth",
        "float",
        "",
        "Inner dimension at which a product reaches half its rate",
        minimum=0,
        maximum=1e6,
    ),
    efficiency(
        "alltoall_efficiency",
        "Share of NVLink's rate at which a collective sends tokens to experts (alltoall)",
    ),
    efficiency(
        "flex_efficiency",
        "Share of NVLink's rate at which kernels made for it send tokens to experts (flex)",
    ),
    fraction(
        "flex_serial_fraction",
        "Share of the tokens' time over NVLink that adds to their time over network cards (flex)",
    ),
    latency("flex_seconds", "Fixed cost of sending tokens to experts with such kernels (flex)"),
    fraction(
        "overlapped_expert_fraction",
        "Share of the exchange of tokens that another microbatch hides (overlaps_expert_comm)",
    ),
    *(
        Column(name, "float", "", meaning, minimum=0.05, maximum=20)
        for name, meaning in (
            (
                "product_rate_factor",
                "Rate of products in 16 bits over that of the measured kernels, or of the formula",
            ),
            (
                "fp8_product_rate_factor",
                "Rate of products in FP8 over that of the measured kernels, or of the formula",
            ),
            (
                "fp4_product_rate_factor",
                "Rate of products in FP4 over that of the measured kernels, or of the formula",
            ),
            (
                "attention_rate_factor",
                "Rate of fused attention over that of its program, or of the formula",
            ),
            (
                "backward_attention_rate_factor",
                "Rate of the backward pass of fused attention, times that of attention",
            ),
            (
                "input_gradient_rate_factor",
                "Rate of products that make the gradient of an input, times that of their format",
            ),
            (
                "weight_gradient_rate_factor",
                "Rate of products that make the gradient of a weight, times that of their format",
            ),
            (
                "narrow_product_rate_factor",
                "Rate of products of at most 1,024 rows or columns, times that of their format "
                "and pass",
            ),
            (
                "short_product_rate_factor",
                "Rate of products of an inner size of at most 1,024, times that of their format "
                "and pass",
            ),
        )
    ),
    fraction(
        "pair_ring_share",
        "Rate of a ring of two GPUs in a node over that of eight. Below a half the node has no "
        "switch: each pair of GPUs has a link of its own",
    ),
    Column(
        "all_reduce_ratio",
        "float",
        "",
        "Bytes/s of an all-reduce in a node over those of a gather, as bus bandwidths",
        minimum=0.5,
        maximum=2,
    ),
    Column(
        "accumulating_product_ratio",
        "float",
        "",
        "Seconds of a product that adds to a buffer over those of one that writes its result",
        minimum=0.5,
        maximum=5,
    ),
    efficiency("small_tile_efficiency", "Rate of tiles of 128 x 128 over that of 256 x 128"),
    efficiency("hbm_efficiency", "Share of memory bandwidth that streaming kernels reach"),
    efficiency("flash_forward_efficiency", "Share of the peak of fused attention, forward"),
    efficiency("flash_backward_efficiency", "Share of the peak of fused attention, backward"),
    Column(
        "gpu_idle_watts",
        "float",
        "watts",
        "Power of a board between the operations of a step",
        minimum=0,
        maximum=1e5,
    ),
    *(
        Column(name, "float", unit, meaning, minimum=0, maximum=1e-6, shown_as=PLAIN)
        for name, unit, meaning in (
            ("gemm_joules_per_flop", "J/FLOP", "Energy above idle of products, BF16 or FP16"),
            ("fp8_gemm_joules_per_flop", "J/FLOP", "Energy above idle of products in FP8"),
            ("fp4_gemm_joules_per_flop", "J/FLOP", "Energy above idle of products in FP4"),
            ("attention_joules_per_flop", "J/FLOP", "Energy above idle of fused attention"),
            ("memory_joules_per_byte", "J/byte", "Energy above idle of streaming kernels"),
        )
    ),
    efficiency("clock_at_limit", "Relative clock at which joules_per_flop of products holds"),
    Column(
        "power_exponent",
        "float",
        "",
        "Exponent of the clock in the power of arithmetic",
        minimum=1,
        maximum=10,
    ),
    Column(
        "transfer_watts",
        "float",
        "watts",
        "Power above idle of a board that waits for a transfer",
        minimum=0,
        maximum=1e5,
    ),
    fraction("clock_spread", "Standard deviation of the clocks of GPUs at their power limit"),
    Column(
        "host_watts",
        "float",
        "watts",
        "Power of a host's processors, memory, network and fans for one GPU",
        minimum=0,
        maximum=1e5,
    ),
    latency("collective_seconds", "Fixed cost of a collective operation, besides its hops"),
    fraction("communication_sm_fraction", "Share of the multiprocessors that transfers occupy"),
    Column(
        "overlap_slowdown",
        "float",
        "",
        "Least slowdown of products that run during transfers of NCCL",
        minimum=1,
        maximum=10,
    ),
    fraction(
        "tensor_exchange_sm_fraction",
        "Share of the multiprocessors that tensor exchanges occupy where they travel in pieces",
    ),
    *(
        fraction(f"{name}_overlap_fraction", f"Share of {what} that may run during arithmetic")
        for name, what in (
            ("gradient", "the exchange of gradients"),
            ("parameter", "the gathering of parameters"),
            ("tensor", "tensor-parallel collectives of the backward pass"),
            ("context", "the exchange of keys and values"),
            ("expert", "the exchange of tokens between experts"),
            ("pipeline", "transfers between stages"),
        )
    ),
    Column(
        "reduces_all_gradients",
        "bool",
        "",
        "Whether gradients are reduced to all replicas where ZeRO shards the optimizer only",
    ),
    Column(
        "waits_for_sharded_gradients",
        "bool",
        "",
        "Whether the exchange of gradients waits for the last backward pass where ZeRO shards",
    ),
    Column(
        "aligns_exchanges",
        "bool",
        "",
        "Whether the gradients of a pipeline chunk are exchanged as soon as they are final",
    ),
    Column(
        "keeps_gathered_weights",
        "bool",
        "",
        "Whether ZeRO 3 keeps gathered weights: last layer and vocabulary, in a pipeline all",
    ),
    Column(
        "splits_tensor_exchanges",
        "bool",
        "",
        "Whether a tensor-parallel exchange runs in pieces during pieces of its product",
    ),
    Column(
        "starts_with_own_shard",
        "bool",
        "",
        "Whether a product of a tensor-parallel rank starts with its own part of the input",
    ),
    Column(
        "regathers_for_recompute",
        "bool",
        "",
        "Whether ZeRO 3 gathers a recomputed layer's weights once more for its gradients",
    ),
    latency(
        "pipeline_hop_seconds",
        "Time of a transfer between stages beyond one message: further messages, waits of the host",
    ),
    latency(
        "shard_copy_seconds",
        "Time of the host to copy a replica's part of a layer to its place after gathering",
    ),
    Column(
        "balances_stages",
        "bool",
        "",
        "Whether the stage with the output layer has fewer layers for it, by their products",
    ),
    Column(
        "recomputes_operations",
        "bool",
        "",
        "Whether selective recomputation keeps attention and every other product and repeats the "
        "rest, not the core of attention alone",
    ),
    Column("uses_dropout", "bool", "", "Whether hidden states and attention have dropout"),
    Column(
        "fuses_elementwise",
        "bool",
        "",
        "Whether bias, dropout, residual, activation and norms are single kernels",
    ),
    *(
        Column(name, "float", "bytes", meaning, minimum=0, maximum=1e4, shown_as=BYTES_OF_ELEMENT)
        for name, meaning in (
            ("stored_weight_bytes", "Bytes kept of one weight of the forward pass"),
            ("stored_gradient_bytes", "Bytes kept of one gradient"),
            ("stored_optimizer_bytes", "Bytes kept of one parameter's optimizer state"),
            ("reduced_gradient_bytes", "Bytes exchanged of one gradient"),
            ("gathered_weight_bytes", "Bytes gathered of one weight"),
            ("optimizer_traffic_bytes", "Memory traffic of the optimizer for one parameter"),
            ("buffer_traffic_bytes", "Memory traffic of a gradient's buffer, also where sharded"),
            ("gate_forward_bytes", "Memory traffic of the gate for one element, forward"),
            ("gate_backward_bytes", "Memory traffic of the gate for one element, backward"),
            ("stored_gate_bytes", "Bytes kept of one element of a gated layer's width"),
            (
                "forward_copy_bytes",
                "Memory traffic of copies of one element of queries, keys and values, forward",
            ),
            (
                "backward_copy_bytes",
                "Memory traffic of copies and sums of one element of their gradients, backward",
            ),
            (
                "exchange_copy_bytes",
                "Memory traffic of copies of one element that tensor exchanges gather or scatter",
            ),
            ("accumulation_traffic_bytes", "Memory traffic of adding one gradient to its buffer"),
            ("loss_traffic_bytes", "Memory traffic of the loss for one logit, both ways"),
            (
                "embedding_gradient_bytes",
                "Memory traffic of a microbatch's gradient of one weight of the embedding",
            ),
            ("stored_logit_bytes", "Bytes of one logit at the peak of output layer and loss"),
            (
                "reserved_logit_bytes",
                "Bytes that the allocator holds of one logit, with holes that no later one fits",
            ),
            (
                "stored_norm_bytes",
                "Bytes kept of one element of a layer's norms besides their inputs and results",
            ),
            (
                "stored_routed_bytes",
                "Bytes kept of one element of the residual stream of a row routed to an expert",
            ),
            (
                "exchange_buffer_bytes",
                "Bytes of buffers for tensor exchanges, of one element of all tokens of a group",
            ),
            (
                "waiting_exchange_bytes",
                "Bytes of a layer's results that wait for tensor exchanges, of one such element",
            ),
        )
    ),
    Column(
        "copies_grouped_queries",
        "bool",
        "",
        "Whether queries that share a key are copied out of the merged product, and the gradients "
        "of queries, keys and values joined",
    ),
    latency(
        "unvectorized_seconds",
        "Time that a multiprocessor takes for an element in kernels that load them one by one",
    ),
    *(
        Column(
            name,
            "float",
            "elements",
            f"Elements that such kernels handle, {meaning}",
            minimum=0,
            maximum=1e4,
        )
        for name, meaning in (
            ("unvectorized_gate_forward", "of one of a gated layer's width, forward"),
            ("unvectorized_gate_backward", "of one of a gated layer's width, backward"),
            ("unvectorized_copy_forward", "of one of queries, keys and values, forward"),
            ("unvectorized_copy_backward", "of one of queries, keys and values, backward"),
            ("unvectorized_loss", "of one logit, both ways"),
        )
    ),
    Column(
        "fragmentation",
        "float",
        "",
        "Memory that the allocator holds over memory in use",
        minimum=1,
        maximum=4,
    ),
    Column(
        "exchange_buckets",
        "float",
        "",
        "Most calls in which the gradients of a stage are exchanged",
        minimum=1,
        maximum=1e6,
    ),
    latency(
        "host_seconds_per_layer",
        "Least time that the host needs to launch a layer one way",
        shown_as=PLAIN,
    ),
    latency(
        "host_seconds_per_launch",
        "Time of the host to launch a kernel, with the Python around it",
        shown_as=PLAIN,
    ),
    *(
        Column(f"{name}_launches", "float", "", f"Kernels of {what}", minimum=0, maximum=1e6)
        for name, what in (
            ("forward", "a dense layer forward, without collectives and casts"),
            ("backward", "a dense layer backward, without collectives, casts and recomputation"),
            ("vocabulary", "embedding, output layer and loss, both ways"),
            ("optimizer", "the optimizer for a layer"),
        )
    ),
    Column(
        "uses_cuda_graphs",
        "bool",
        "",
        "Whether the kernels of a layer are launched together, as a captured CUDA graph",
    ),
    Column(
        "captures_attention",
        "bool",
        "",
        "Whether the CUDA graph of a mixture's layer holds attention, not the router alone",
    ),
    Column(
        "captures_whole_steps",
        "bool",
        "",
        "Whether a captured CUDA graph holds whole steps, with the experts of a mixture",
    ),
    Column(
        "framework_bytes",
        "float",
        "bytes",
        "Memory of one GPU for the context of CUDA and loaded kernels",
        minimum=0,
        maximum=1e15,
    ),
    *(
        Column(name, "float", "bytes", meaning, minimum=0, maximum=1e15)
        for name, meaning in (
            ("communicator_bytes", "Memory of one GPU for one group that it exchanges with"),
            ("graph_bytes", "Memory of one GPU for captured CUDA graphs, where they are used"),
        )
    ),
)

PARTS = (
    measure("gemm_seconds", "seconds", "Part of the step: matrix products of the layers"),
    measure("attention_seconds", "seconds", "Part of the step: the core of attention"),
    measure("elementwise_seconds", "seconds", "Part of the step: memory-bound work of the layers"),
    measure(
        "vocabulary_seconds",
        "seconds",
        "Part of the step: embedding, output layer and loss, and layers that predict further "
        "tokens",
    ),
    measure(
        "recompute_seconds", "seconds", "Part of the step: recomputation for the backward pass"
    ),
    measure("host_seconds", "seconds", "Part of the step: waiting for launches"),
    measure(
        "context_comm_seconds",
        "seconds",
        "Part of the step: exposed keys and values; in view configuration a part of "
        "tensor_comm_seconds",
    ),
    measure(
        "expert_comm_seconds",
        "seconds",
        "Part of the step: exposed exchange of tokens; in view configuration a part of "
        "tensor_comm_seconds",
    ),
    measure("accumulation_seconds", "seconds", "Part of the step: adding up gradients"),
    measure("optimizer_seconds", "seconds", "Part of the step: the optimizer"),
    measure("logits_bytes", "bytes", "Logits and loss kept on one GPU"),
    measure(
        "gathered_bytes", "bytes", "Weights and gradients gathered for the layers at work on a GPU"
    ),
    measure("unused_bytes", "bytes", "Memory that the allocator holds and nobody uses"),
    measure("library_bytes", "bytes", "Memory of communicators and CUDA graphs on one GPU"),
    measure("allocated_bytes", "bytes", "Memory of tensors on one GPU at the peak"),
    measure("reserved_bytes", "bytes", "Memory that the allocator holds on one GPU"),
    fraction(
        "fit_probability",
        "Probability that the run fits in the memory of a GPU",
        shown_as=FIT,
        is_optional=True,
    ),
    measure(
        "layer_joules",
        "joules",
        "Energy above idle of the layers and the vocabulary of a step, of a GPU on average",
    ),
    Column(
        "relative_clock",
        "float",
        "",
        "Clock of products and attention under the power limit, relative to the full one",
        above=0,
        maximum=1,
    ),
    Column(
        "gpu_watts",
        "float",
        "watts",
        "Mean power of a board during a step; NULL where its power limit is not known",
        minimum=0,
        maximum=1e6,
    ),
    Column(
        "slot_watts",
        "float",
        "watts",
        "Mean power of a board during a step, with its share of the host",
        minimum=0,
        maximum=1e6,
    ),
    measure("hfu", "", "FLOP/s of one GPU with recomputation, over its peak", MEGATRON),
)

ATTENTION = (
    text("attention_rate", "Key of a rate: program, accelerator and head size, @ between"),
    text("attention_default", "Framework, after @ the accelerator that the program is taken on"),
    positive(
        "attention_flops_per_second",
        "FLOP/s",
        "Rate of the forward pass on long sequences, counting half of the scores",
    ),
    Column(
        "half_rate_length",
        "float",
        "tokens",
        "Sequence length at which the forward pass has half of that rate",
        minimum=0,
    ),
    positive("least_waves", "", "Blocks of 128 queries a multiprocessor needs to be full"),
    positive("backward_rate_ratio", "", "Rate of the backward pass over the forward, long ones"),
    Column(
        "backward_half_length",
        "float",
        "tokens",
        "Sequence length at which the backward pass has half of that ratio",
        minimum=0,
    ),
)

STEP_CONSTANT = (
    text("step_constant", "Key of a constant: its column, then @ and the name that it is for"),
    text("recipe_constant", "Key of a constant under a recipe: its column, program and recipe"),
    text("constant", "Column that the constant is the default of"),
    Column(
        "constant_value", "float", "", "Its value, in the unit of that column; 1 or 0 of a flag"
    ),
    Column("lowest_value", "float", "", "Least value that sources or physics admit"),
    Column("highest_value", "float", "", "Largest value that sources or physics admit"),
    Column("is_assumed", "bool", "", "Whether the value is an assumption: no source gives it"),
    text("software", "Program, with its version, that a published figure was measured with"),
    text("number_format", "Number format of a product's operands"),
    count("num_products", "Products that the figures are of"),
    positive("board_watts", "watts", "Power of a board, mean over a run"),
    positive("lowest_board_watts", "watts", "The same for the products that draw least power"),
    positive("sustained_flops_per_second", "FLOP/s", "Rate of products run for a second and more"),
    positive("short_flops_per_second", "FLOP/s", "Rate of the same products run for milliseconds"),
    positive(
        "version_ratio",
        "",
        "Time of a long over that of a short run of products that no power limit slows",
    ),
    text("scheme", "Scheme of parallelism as the published table names it"),
    positive("training_days_as_printed", "days", "Time of a whole run as published, rounded there"),
)

TRAINING_STEP = SHAPE + RUN + CONSTANTS + PARTS + ATTENTION + STEP_CONSTANT
