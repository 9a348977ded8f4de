"""Configurations a second of the source's own programs and of ours, in one run.

``python -m benchmarks.source CLONE`` runs the programs of a clone of davidsj/ml_par_sim on the
examples of its README, one configuration a process, as they are used; then the sweeps of ours
that widen the same examples, evaluated and stored. With ``--calculon CLONE`` a clone of
calculon-ai/calculon, which needs pandas and psutil, searches the layouts of a small model on one
core, and training_step evaluates and stores its own grid.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.__main__ import dense_grid
from benchmarks.tasks import alone, sweep
from warehouse.database.resources import studies_directory
from warehouse.studies.study import Study, load_study

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


_CALCULON = (
    "bin/calculon llm-optimal-execution models/megatron-5B.json 4 4 float16"
    " systems/a100_80g.json {out} -c 1 -n"
)
_RATE = re.compile(r"Calculation rate: ([0-9.]+) calcs/sec")


def _rate_of_calculon(clone: Path) -> float:
    """Return the configurations a second that Calculon says it evaluated."""
    with tempfile.TemporaryDirectory() as directory:
        command = _CALCULON.format(out=Path(directory) / "best.json")
        path = os.pathsep.join((str(clone), *sys.path))
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=clone,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
    found = _RATE.search(done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"error: {command} did not say its rate:\n{done.stdout}{done.stderr}")
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.source", description=__doc__)
    parser.add_argument("clone", type=Path, help="directory of a clone of davidsj/ml_par_sim")
    parser.add_argument("--calculon", type=Path, help="directory of a clone of calculon")
    parser.add_argument("--times", type=int, default=50, help="runs of each program (50)")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default 2)")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    for study, command in EXAMPLES.items():
        program = command.split()[0]
        seconds = _seconds_of_source(options.clone, command, options.times)
        _compare(program, 1 / seconds, load_study(studies_directory() / f"{study}.toml"))
    if options.calculon:
        _compare("calculon", _rate_of_calculon(options.calculon), dense_grid())


def _compare(program: str, rate: float, study: Study) -> None:
    """Print the rate of a program [configurations/s], and ours of a study."""
    with tempfile.TemporaryDirectory() as directory:
        ours = alone(sweep, study, Path(directory) / "benchmark.duckdb")
    print(f"{program:22} {rate:12,.0f} configurations/s")
    print(
        f"{study.name:22} {ours.rows_per_second:12,.0f} configurations/s evaluated and stored"
        f" ({ours.rows:,} in {ours.seconds:.2f} s, {ours.file_bytes / ours.rows:.0f} bytes a"
        f" row): {ours.rows_per_second / rate:,.0f} times as many"
    )


if __name__ == "__main__":
    main()
