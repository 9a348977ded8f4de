"""Configurations a second of the source's own programs and of ours, in one run.

``python -m benchmarks.source CLONE`` runs the programs of a clone of davidsj/ml_par_sim on the
examples of its README, one configuration a process, as they are used; then the sweeps of ours
that widen the same examples, evaluated and stored.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.__main__ import alone
from benchmarks.tasks import sweep
from warehouse.database.resources import studies_directory

EXAMPLES = {
    "dataflow_bandwidth": (
        "transformer.py --cluster_flop_rate 156e12 --num_experts 8 --batch_size 8192"
        " --seq_len 8192 --dataset_size 13e12 --num_layers 120 --d_model 15360 --p_pipe 15"
        " --p_data 16 --p_seq 1 --p_exp 8 --p_tensor_int 8 --p_tensor_ext 1"
    ),
    "pipeline_bandwidth": (
        "simple_transformer.py --chip_type A100_40GB --n_layers 120 --d_model 12288"
        " --batch_size 30720 --microbatch_size 48 --n_experts 16 --n_routed_experts 2 --pp 15"
        " --pipeline_interleaving 8 --tp 8 --dp 12"
    ),
}
"""Our study -> the source's command whose example it widens."""


def _seconds_of_source(clone: Path, command: str, times: int) -> float:
    """Return the mean time of one run of `command`."""
    started = time.perf_counter()
    for _ in range(times):
        subprocess.run(
            [sys.executable, *command.split()], cwd=clone, check=True, capture_output=True
        )
    return (time.perf_counter() - started) / times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.source", description=__doc__)
    parser.add_argument("clone", type=Path, help="directory of a clone of davidsj/ml_par_sim")
    parser.add_argument("--times", type=int, default=50, help="runs of each program (50)")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default 2)")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    for study, command in EXAMPLES.items():
        program = command.split()[0]
        seconds = _seconds_of_source(options.clone, command, options.times)
        with tempfile.TemporaryDirectory() as directory:
            ours = alone(sweep, studies_directory() / f"{study}.toml", Path(directory))
        print(f"{program:22} {1 / seconds:12,.0f} configurations/s")
        print(
            f"{study:22} {ours.rows_per_second:12,.0f} configurations/s evaluated and stored"
            f" ({ours.rows:,} in {ours.seconds:.2f} s, {ours.file_bytes / ours.rows:.0f} bytes a"
            f" row): {ours.rows_per_second * seconds:,.0f} times as many"
        )


if __name__ == "__main__":
    main()
