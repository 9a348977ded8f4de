#!/usr/bin/env bash
~{header}# torchtitan, with the fields of pytorch/torchtitan @b5bcd76c; run it in a checkout. It writes
# planned.py there, and starts it.
~{about}
set -euo pipefail

# The estimate does not read data, tokenizer and learning rate: those of ~{config}, or yours.
cat > planned.py << 'PYTHON'
~{body}PYTHON

~{start}-m torchtitan.train --module planned --config planned
