"""Logs of runs, and metrics as CSV: seconds of a step, what is dropped, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from warehouse.errors import InputError
from warehouse.launch.logs import LoggedStep, read_log

RUN = {"num_gpus": "8", "global_batch_size": "128", "seq_len": "4096"}
Log = Callable[..., LoggedStep]


def megatron(iterations: Iterable[int], seconds: float = 2.0, batch: int = 128) -> str:
    """Return lines of Megatron-LM; every tenth iteration saves a checkpoint."""
    return "".join(
        f" [2026-11-01 10:00:00.1] iteration {number:8d}/  500000 | consumed samples: {number} | "
        f"elapsed time per iteration (ms): {1000 * (seconds + 5 * (number % 10 == 0)):.1f} | "
        f"learning rate: 1.0E-04 | global batch size: {batch:5d} | lm loss: 1.0E+01 |\n"
        for number in iterations
    )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    def log(text: str, name: str = "run.log", **other: str) -> LoggedStep:
        path = tmp_path / name
        path.write_text(text)
        return read_log(path, {**RUN, **other})

    return log


def refusal(log: Log, text: str, name: str = "run.log", **other: str) -> str:
    with pytest.raises(InputError) as error:
        log(text, name, **other)
    assert name in str(error.value)
    return str(error.value)


def test_warm_up_and_outliers_are_dropped(log: Log) -> None:
    slow = megatron(range(1, 6), 60.0)
    found = log("using world size: 8, data-parallel size: 8\n" + slow + megatron(range(6, 41)))
    assert found.seconds == 2.0
    # of 35 lines four are those of checkpoints
    assert "5 within the first 5 iterations dropped" in found.note
    assert "4 far from the median dropped" in found.note
    assert "median of 31" in found.note


def test_the_spread_is_kept(log: Log) -> None:
    lines = "".join(megatron([n], 1.9 + 0.01 * (n % 10 + 1)) for n in range(1, 60) if n % 10)
    found = log(lines)
    assert (found.low, found.high) == pytest.approx((1.92, 2.0), abs=0.011)
    assert found.low < found.seconds < found.high


def test_a_mean_of_many_iterations_is_dropped_with_the_first(log: Log) -> None:
    found = log(megatron([10], 50.0) + megatron(range(20, 60, 10)).replace("7000.0", "2000.0"))
    assert (found.seconds, "1 within the first 5" in found.note) == (2.0, True)


def test_a_second_run_is_refused(log: Log) -> None:
    message = refusal(log, megatron(range(1, 20)) + megatron(range(1, 20)))
    assert "line 20: a second run begins, at iteration 1" in message


def test_an_interrupted_run_goes_on(log: Log) -> None:
    parts = megatron(range(1, 30)) + megatron(range(21, 26), 40.0) + megatron(range(26, 50))
    found = log(parts)
    assert found.seconds == 2.0
    assert "the run began again at line 30" in found.note
    assert "10 within the first 5 iterations dropped" in found.note
    assert "4 printed or run again dropped" in found.note


def test_a_log_of_two_speeds_is_refused(log: Log) -> None:
    lines = megatron(range(1, 40)) + megatron(range(40, 60), 2.5)
    assert "are far from the median" in refusal(log, lines)


def test_a_line_that_was_cut_is_no_line(log: Log) -> None:
    whole = megatron(range(1, 20))
    assert log(whole + megatron([20])[:60]).note == log(whole).note


def test_only_lines_of_the_batch_of_the_run_count(log: Log) -> None:
    ramp = megatron(range(1, 30), 1.0, 64) + megatron(range(30, 60))
    found = log(ramp)
    assert found.seconds == 2.0
    assert "24 of another batch dropped" in found.note
    assert "has batches of 64, 128, the run has 256" in refusal(log, ramp, global_batch_size="256")
    assert "has several batches: 64, 128" in refusal(log, ramp, global_batch_size="")


def test_a_log_of_other_gpus_is_refused(log: Log) -> None:
    text = "using world size: 16, data-parallel size: 16\n" + megatron(range(1, 20))
    assert "line 1: ran on 16 GPUs, the run has 8" in refusal(log, text)


@pytest.mark.parametrize("number", [0, 4, 7])
def test_a_short_log_is_refused(number: int, log: Log) -> None:
    message = refusal(log, megatron(range(1, number + 1)))
    assert ("leaves fewer than 3 lines" in message) == (number > 0)
    assert ("has no line of an iteration" in message) == (number == 0)


def test_lines_of_torchtitan_follow_from_tokens(log: Log) -> None:
    # 128 x 4096 tokens on 8 GPUs in 4 s
    lines = "".join(
        f"[rank0]:[titan] 2026-11-01 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 8.1  "
        f"grad_norm: 1.0  \x1b[38;2;54;234;195mmemory: 20.96GiB(22.06%)  \x1b[34mtps: 16,384  "
        f"tflops: 300.1  mfu: 30.10%\x1b[39m\nvalidate step: {step:2}  loss: 8.1  tps: 99,999\n"
        for step in (1, *range(10, 100, 10))
    )
    found = log(lines)
    assert found.seconds == 4.0
    assert "10 lines of iterations; 2 within" in found.note
    assert "no batch, sequence or GPUs to divide by" in refusal(log, lines, seq_len="")


def test_lines_of_nemo_are_read(log: Log) -> None:
    lines = "".join(
        f"Training epoch 0, iteration {step}/99 | lr: 1e-05 | global_batch_size: 128 | "
        f"global_step: {step} | train_step_timing in s: 3.5 | consumed_samples: 1\n"
        for step in range(30)
    )
    bar = "".join(
        f"Epoch 0: :  1%|  | {step}/1000 [00:50<1:20, v_num=1, global_step={step:.3f}, "
        "train_step_timing in s=3.500]\n"
        for step in range(30)
    )
    assert (log(lines).seconds, log(bar).seconds) == (3.5, 3.5)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Wall time,Step,Value", "{clock},{step},1"),
        ("_timestamp,_step,loss", "{clock},{step},8.1"),
        ('"Step","run - iteration-time","run - iteration-time__MIN"', '"{step}","2.5","1.0"'),
        ("Step,elapsed time per iteration (ms)", "{step},2500"),
        ("trainer/global_step,train_step_timing in s,loss", "{step},2.5,8"),
        # 128 x 4096 tokens on 8 GPUs
        ("step,throughput(tps)", "{step},26214.4"),
    ],
)
def test_exports_of_metrics_are_read(header: str, row: str, log: Log) -> None:
    rows = [row.format(step=step, clock=1.7e9 + 2.5 * step) for step in range(1, 40)]
    text = "\n".join([header, *rows[:20], "x,y,z", "", *rows[20:]])
    assert log(text, "metrics.csv").seconds == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2", "has no column of steps with one of seconds"),
        ("", "has no column of steps with one of seconds"),
        ("Step,Value\n1,2", "has no column of steps with one of seconds"),
        ("Step,a - iteration-time,b - iteration-time\n1,2,3", "has iteration-time of 2 runs"),
        ("step,iteration-time\n" + "1,x\n" * 20, "has no line of an iteration"),
    ],
)
def test_other_tables_are_refused(text: str, reason: str, log: Log) -> None:
    assert reason in refusal(log, text, "metrics.csv")


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    for name, reason in (("none.log", "there is no such file"), (".", "is no file")):
        with pytest.raises(InputError, match=reason):
            read_log(tmp_path / name, RUN)


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"\xff\xfe\0" * 100_000 + b"\n" + megatron(range(1, 30)).encode())
    assert read_log(path, RUN).seconds == 2.0
