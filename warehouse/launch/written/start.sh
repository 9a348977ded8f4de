torchrun --nproc-per-node ~{per_node} --nnodes ~{nodes} --node-rank "${NODE_RANK:-0}" \
    --master-addr "${MASTER_ADDR:-localhost}" --master-port "${MASTER_PORT:-29500}" \
    