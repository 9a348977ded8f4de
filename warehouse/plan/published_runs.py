"""Published runs of a plan's model: their distance from the plan, with reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from estimators.catalog import product_behind
from warehouse.show.units import run_time_in_words

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer

Line = Mapping[str, Any]

COLUMNS = (
    *("model", "run_kind", "accelerator", "num_gpus", "dataset_tokens", "gpu_hours"),
    "planned_gpu_hours",
)
"""Columns of a published run that people see."""


def published_in_words(answer: PlanAnswer) -> list[str]:
    """Return how the GPU-hours of a published run of the model compare with the plan's.

    Of several runs on the plan's product the shortest is taken; runs on another do not compare.
    """
    runs = answer.published_runs
    same = [line for line in runs if _is_same_product(answer, line)]
    if not same:
        others = sorted({str(line["accelerator"]) for line in runs})
        return [f"the published run was on {' and '.join(others)}"] if others else []
    line = same[0]
    seconds = answer.best["training_seconds"] / line["planned_share"]
    is_same = line["dataset_tokens"] == answer.run.tokens
    scaled = "" if is_same else " for as many tokens"
    lost = ", lost time included" if answer.run.goodput == 1 else ""
    return [
        f"{line['model']} as published: {run_time_in_words(seconds)} on as many GPUs{scaled}{lost} "
        f"({1 / line['planned_share']:.2f} times the plan)"
    ]


def published_lines(answer: PlanAnswer) -> Iterator[str]:
    """Yield for each published run why its hours differ, and the command that plans it."""
    commands = []
    for line in answer.published_runs:
        name = f"{line['model']} ({line['run_kind']})"
        if not _is_same_product(answer, line):
            yield (
                f"{name}: other GPUs ({line['accelerator']}) than the plan's, so hours and days do "
                "not compare"
            )
            continue
        yield f"{name}: {'; '.join(_reasons(answer, line))}"
        if (command := _command(answer, line)) and command not in commands:
            commands.append(command)
    for command in commands:
        yield f"plan it with the published settings: {command}"


def _is_same_product(answer: PlanAnswer, line: Line) -> bool:
    catalog = answer.run.catalog
    theirs = catalog.known("accelerator", str(line["accelerator"]))
    product = product_behind(catalog, answer.run.problem["accelerator"])
    return theirs is not None and theirs is catalog.known("accelerator", str(product))


def _reasons(answer: PlanAnswer, line: Line) -> list[str]:
    run, mfu = answer.run, answer.best["mfu"]
    reasons = [f"the plan has goodput {run.goodput:g}"]
    if run.goodput == 1:
        reasons = ["its hours include lost time, the plan none (goodput 1)"]
    precision, batch = line["published_precision"], line["global_batch_size"]
    planned = str(run.problem.get("precision") or "") or None
    differing = []
    if precision is not None and planned is not None and precision != planned:
        differing.append((precision.upper(), planned.upper()))
    if batch is not None and batch != run.batch:
        differing.append((f"a batch of {batch:,}", f"{run.batch:,}"))
    if differing:
        theirs, ours = (" and ".join(words) for words in zip(*differing, strict=True))
        reasons.append(f"it used {theirs}, the plan assumes {ours}")
    settings = (("number format", precision), ("batch", batch))
    if unknown := [name for name, value in settings if value is None]:
        verb = "is" if len(unknown) == 1 else "are"
        reasons.append(f"its {' and '.join(unknown)} {verb} not published")
    if mfu is not None and precision in (None, planned):
        reasons.append(
            f"over its hours it reached {100 * mfu * line['planned_share']:.0f} % of the peak, "
            f"the plan {100 * mfu:.0f} %"
        )
    return reasons


def _command(answer: PlanAnswer, line: Line) -> str:
    """Return the command that plans a run as it was published; empty if that is this plan."""
    run = answer.run
    known = {
        name: line[column]
        for name, column in (("precision", "published_precision"), ("number_recipe",) * 2)
        if line[column] is not None and name in run.estimator.problem_columns
    }
    batch, gpus = line["global_batch_size"] or run.batch, line["num_gpus"] or answer.num_gpus
    if batch == run.batch and all(run.problem.get(name) == known[name] for name in known):
        return ""
    inputs = {name: v for name, v in run.request.inputs.items() if name != "nvlink_size"}
    words = [
        *("warehouse", "plan", "--model", str(run.model)),
        *("--accelerator", str(run.problem["accelerator"]), "--gpus", str(gpus)),
        *("--tokens", f"{line['dataset_tokens'] / 1e12:g}T", "--batch", str(batch)),
        *(f"{name}={value}" for name, value in {**inputs, **known}.items()),
    ]
    return shlex.join(words)
