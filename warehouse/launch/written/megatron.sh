#!/usr/bin/env bash
~{header}# Megatron-LM, with the arguments of NVIDIA/Megatron-LM @d98e8a64; run it in a checkout.
~{about}
set -euo pipefail

# The estimate assumes these.
~{exports}

# The estimate does not read these: your data, tokenizer and learning rate, and rotary base, norm
# epsilon and the like of the model. As it stands, the script measures a step on random tokens.
DATA=(--mock-data --tokenizer-type NullTokenizer)
LEARNING=(--lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --lr-warmup-fraction 0.01)
RUN=(--train-iters ~{steps} --eval-iters 0 --log-interval 10 --log-throughput)

~{arrays}

~{start}pretrain_gpt.py \
    ~{arguments} \
    "${DATA[@]}" "${LEARNING[@]}" "${RUN[@]}"
