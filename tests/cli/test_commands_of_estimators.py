"""why, explain and operations: every estimator is taken, or refused with those that can."""

from __future__ import annotations

import json
import math
from operator import attrgetter

import pytest

from estimators.registry import ESTIMATORS, get, with_capability
from tests.shared import Command

NAMES = (*ESTIMATORS, "toy")
CAPABILITIES = {"why": "can_plan", "explain": "step.formulas", "operations": "step.operations"}
QUESTION = {
    "toy": ("model=gpt3_1.3B", "accelerator=H100", "num_gpus=8", "tensor_parallel=4"),
    "training_step": ("model=gpt3_1.3B", "accelerator=H100", "num_gpus=8", "tensor_parallel=4"),
    "roofline": ("model=gpt3", "accelerator=H200", "num_gpus=64", "tensor_parallel=8"),
}


@pytest.mark.parametrize("command", CAPABILITIES)
@pytest.mark.parametrize("estimator", NAMES)
@pytest.mark.long
def test_an_estimator_is_taken_or_refused_with_those_that_can(
    warehouse: Command, request: pytest.FixtureRequest, command: str, estimator: str
) -> None:
    if estimator == "toy":
        request.getfixturevalue("toy")
    capability = CAPABILITIES[command]
    can = bool(attrgetter(capability)(get(estimator)))
    pairs = QUESTION[estimator] if can else ("num_gpus=8",)
    code, out, err = warehouse(command, *pairs, "--estimator", estimator, "--json")
    if can:
        assert code == 0, err
        assert json.loads(out)
        return
    assert (code, out) == (2, "")
    refusal, hint = err.splitlines()
    assert refusal.startswith(f"error: `--estimator` {estimator} ")
    assert hint == f"hint: use {' or '.join(with_capability(capability))}"


@pytest.mark.usefixtures("toy")
def test_a_toy_layout_is_ranked_by_hand(warehouse: Command) -> None:
    """8 GPUs as d x t, with and without recomputation; one replica has nothing to exchange."""
    question = ("why", *QUESTION["toy"], "global_batch_size=8", "activation_recompute=none")
    code, out, _ = warehouse(*question, "--estimator", "toy", "--json")
    assert code == 0
    found = json.loads(out)
    # t = 1, 2, 4 or 8, times 2 choices of recomputation
    assert found["num_layouts"] == 8
    assert found["best"]["tensor_parallel"] == 8
    assert found["is_searched"]
    parts = {part["name"]: part for part in found["parts"]}
    assert set(parts) == {"compute_seconds", "data_comm_seconds"}
    assert parts["data_comm_seconds"]["best_seconds"] == 0
    losses = [part["difference_seconds"] for part in found["parts"]]
    assert math.fsum(losses) == pytest.approx(found["loss_seconds"])
    assert math.fsum(found["memory"].values()) == pytest.approx(found["results"]["memory_bytes"])


@pytest.mark.usefixtures("toy")
def test_a_rule_of_the_toy_estimator_is_named(warehouse: Command) -> None:
    question = ("why", *QUESTION["toy"], "global_batch_size=8", "data_parallel=3")
    code, out, _ = warehouse(*question, "--estimator", "toy", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["is_admitted"] is False
    rules = {rule["rule"]: rule for rule in found["rules"]}
    assert rules["degrees multiply to the GPUs"]["reason"] == "is not 3 x 4"
    assert rules["degrees multiply to the GPUs"]["hint"] == "use 12"


@pytest.mark.usefixtures("toy")
def test_the_rates_of_the_toy_estimator_have_elasticities(warehouse: Command) -> None:
    question = ("explain", *QUESTION["toy"], "global_batch_size=8", "--estimator", "toy")
    code, out, _ = warehouse(*question, "--json")
    assert code == 0
    found = json.loads(out)
    shares = {part["part"]: part["step_fraction"] for part in found["parts"]}
    assert math.fsum(shares.values()) == pytest.approx(1)
    # the step is the sum of two parts, each inverse to its own rate
    constants = {one["name"]: one["elasticity"] for one in found["constants"]}
    assert constants["matrix_flops_per_second"] == pytest.approx(
        -shares["compute_seconds"], rel=1e-3
    )
    assert constants["network_bytes_per_second"] == pytest.approx(
        -shares["data_comm_seconds"], rel=1e-3
    )
    # no constant has a range
    assert found["likely_step_seconds"] == [found["step_seconds"]] * 2


@pytest.mark.parametrize("command", ["why", "explain", "operations"])
@pytest.mark.parametrize("form", ["csv", "table"])
@pytest.mark.long
def test_a_report_is_written_to_a_file_as_it_is_printed(
    warehouse: Command, tmp_path_factory: pytest.TempPathFactory, command: str, form: str
) -> None:
    question = (command, *QUESTION["roofline" if command == "operations" else "training_step"])
    code, printed, _ = warehouse(*question, "--format", form)
    assert code == 0
    target = tmp_path_factory.mktemp("out") / "report.txt"
    code, out, _ = warehouse(*question, "--format", form, "--out", target)
    assert (code, out) == (0, "")
    assert target.read_text(encoding="utf-8") == printed
    assert printed
