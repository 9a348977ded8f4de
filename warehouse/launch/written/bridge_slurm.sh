#!/usr/bin/env bash
~{header}# Megatron-Bridge, with the keys of NVIDIA-NeMo/Megatron-Bridge @067f987d. It writes run_config.yaml
# and run.py here, and starts them.
~{about}
set -euo pipefail

# The estimate does not read dataset, tokenizer, scheduler and the learning rate: yours. As they
# stand, they measure a step on random tokens.
cat > run_config.yaml << 'YAML'
~{keys}YAML
cat > run.py << 'PYTHON'
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain

pretrain(ConfigContainer.from_yaml("run_config.yaml"), forward_step)
PYTHON

~{start}run.py
