"""The rules of a pipeline: where its layers are, and in which order microbatches pass.

Source: NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py `__post_init__`
and pipeline_parallel/schedules.py; dual pipes: deepseek-ai/DualPipe @3da1bbe dualpipe/dualpipe.py
lines 332 and 333, dualpipev.py line 318; a program that balances stages: huggingface/nanotron
@67c5ebb6 src/nanotron/parallel/pipeline_parallel/engine.py, models/base.py and trainer.py.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import Values
from estimators.decoder import Shape
from estimators.rules import Explanation, Rule
from estimators.structure import flag, number
from estimators.training_step.pipelines import case_columns, cases_of, stages_before_output
from estimators.training_step.placement import NOT_BALANCED, admits_chunks, fault
from estimators.training_step.problem import Choices, Layout

if TYPE_CHECKING:
    from estimators.training_step.placement import Case
    from estimators.values import Array

OPTIONS = (
    *("pipeline_layout", "layers_in_first_stage", "layers_in_last_stage"),
    *("counts_embedding", "counts_loss"),
)
"""Choices that say where layers are."""

_PLACED_BY = (
    *("num_layers", "num_mtp_layers", "pipeline_parallel", "virtual_pipeline", "schedule"),
    *OPTIONS,
)
BATCH = ("global_batch_size", "data_parallel", "microbatch_size")
"""Columns that decide the number of microbatches."""


def num_microbatches(values: Values) -> Any:
    """Return the microbatches of a step on one replica."""
    return values["global_batch_size"] // np.maximum(
        values["data_parallel"] * values["microbatch_size"], 1
    )


def _has_chunks(values: Values) -> Any:
    """Return whether a pipeline has no chunks, or those that its layers admit by default."""
    chunks, stages = values["virtual_pipeline"], np.maximum(values["pipeline_parallel"], 1)
    admits = admits_chunks(values["num_layers"], stages, np.maximum(chunks, 1))
    several = values["pipeline_parallel"] > 1
    return np.equal(chunks, 1) | (several & (admits | (blamed(values) != "")))


def blamed(values: Values) -> Array:
    """Return the column that names the choice which places layers; "" where none does."""
    has_text = np.asarray(values["pipeline_layout"], dtype=object).astype(bool)
    ends = number(values["layers_in_first_stage"]) + number(values["layers_in_last_stage"])
    counts = flag(values["counts_embedding"]) | flag(values["counts_loss"])
    of_others = np.where(counts, "pipeline_parallel", "")
    return np.where(
        has_text, "pipeline_layout", np.where(ends > 0, "layers_in_first_stage", of_others)
    )


def _fits(values: Values, column: str) -> Array:
    """Return whether layers fit the stages as a choice places them; true for other columns."""
    is_blamed = np.equal(blamed(values), column)
    size = np.broadcast(*itemgetter(*_PLACED_BY)(values)).shape
    if not np.any(is_blamed) or 0 in size:  # earlier rules may leave a search no layout
        return np.ones(size, dtype=bool)
    cases, place = _cases(values, max(1, *size, 1))
    fits = np.array([not fault(case) for case in cases])[place].reshape(size)
    return fits | ~is_blamed


def _cases(values: Values, size: int) -> tuple[list[Case], Array]:
    """Return the distinct pipelines of some rows, and the place of each row among them."""
    columns = {**_UNUSED, **values}
    shape, layout = Shape.of(columns), Layout.of(columns)
    cases, place = cases_of(
        case_columns(shape, Choices.of(columns), layout, NOT_BALANCED),
        size,
    )
    return [case for case, _ in cases], place


_UNUSED: dict[str, Any] = {"num_experts": 1, "num_dense_layers": 0, "moe_period": 1}
"""Columns that do not matter where a choice places layers."""


def _placed(name: str, column: str, advice: Explanation) -> Rule:
    """Return the rule that layers fit the stages where the choice to blame is that of `column`."""

    def reason(row: Values) -> str:
        [case] = _cases(row, 1)[0]
        return fault(case)

    return Rule(name, column, _PLACED_BY, lambda v: _fits(v, column), reason, advice)


PIPELINE_RULES = (
    Rule(
        "stages have a layer each",
        "pipeline_parallel",
        ("pipeline_parallel", "num_layers", *OPTIONS),
        # a choice may leave stages with the embedding or the loss alone
        lambda v: np.less_equal(v["pipeline_parallel"], v["num_layers"]) | (blamed(v) != ""),
        lambda row: f"is more than `num_layers` {row['num_layers']}",
    ),
    Rule(
        "chunks are even and interleaved over stages",
        "virtual_pipeline",
        ("virtual_pipeline", "pipeline_parallel", "num_layers", *OPTIONS),
        _has_chunks,
        lambda row: (
            f"does not split `num_layers` {row['num_layers']} into even chunks on "
            f"{row['pipeline_parallel']} stages"
        ),
        varies=("virtual_pipeline", "pipeline_parallel"),
    ),
    _placed(
        "a pipeline layout places all layers",
        "pipeline_layout",
        lambda _row: "such as Et|(tt|)*30mL: 61 layers, one m, 32 stages of 8 ranks with 4 chunks",
    ),
    _placed(
        "ends leave even stages between them",
        "layers_in_first_stage",
        lambda _row: (
            "use ends that leave the others equal layers, all divisible by `virtual_pipeline`"
        ),
    ),
    _placed(
        "stages are even with embedding and loss",
        "pipeline_parallel",
        lambda row: (
            "use `pipeline_parallel` and `virtual_pipeline` whose stages divide "
            f"{row['num_layers'] + bool(row['counts_embedding']) + bool(row['counts_loss'])}"
        ),
    ),
    Rule(
        "only 1f1b interleaves chunks",
        "virtual_pipeline",
        ("virtual_pipeline", "schedule"),
        lambda v: np.equal(v["virtual_pipeline"], 1) | np.equal(v["schedule"], "1f1b"),
        lambda row: f"interleaves chunks, which `schedule` {row['schedule']} does not",
        varies=("virtual_pipeline", "schedule"),
    ),
    Rule(
        "a schedule in a V has two chunks a stage",
        "schedule",
        ("schedule", "pipeline_parallel", "num_layers"),
        lambda v: (
            ~np.isin(v["schedule"], ("zbv", "dualpipev"))
            | (v["num_layers"] >= 2 * v["pipeline_parallel"])
        ),
        lambda row: (
            f"needs two layers a stage; `num_layers` is {row['num_layers']}, `pipeline_parallel` "
            f"{row['pipeline_parallel']}"
        ),
        varies=("pipeline_parallel", "schedule"),
    ),
    Rule(
        "a dual pipe has an even number of stages",
        "schedule",
        ("schedule", "pipeline_parallel"),
        lambda v: (
            np.not_equal(v["schedule"], "dualpipe") | (np.remainder(v["pipeline_parallel"], 2) == 0)
        ),
        lambda row: f"needs an even `pipeline_parallel`, not {row['pipeline_parallel']}",
        varies=("pipeline_parallel", "schedule"),
    ),
)
"""Rules of where the layers of a pipeline are."""

STAGES_OF_LOSS = 2.0
"""Stages behind the output layer that have work: one casts the logits, the next has the loss."""


def _behind_output(values: Values) -> Any:
    """Return the stages behind the one with the output layer, of a program that balances stages.

    The cast of the logits and the loss have no products, so each takes one more stage, if there are
    stages left. Further stages are empty, and `train_step_logs` of nanotron's trainer.py then reads
    the loss from a stage without one.

    The rule does not refuse layouts with one replica: a published run has such a layout. Its
    revision of nanotron is not known.
    """
    stages = np.maximum(number(values["pipeline_parallel"], 1.0), 1.0)
    return stages - 1 - stages_before_output(Shape.of({**_UNUSED, **values}), stages)


def _has_group(values: Values) -> Any:
    """Return whether the group of microbatches, if given, is one that a pipeline can run."""
    given, count = number(values["microbatch_group"], np.nan), num_microbatches(values)
    group = np.maximum(np.where(np.isnan(given), 1, given), 1)
    rest = np.remainder(count, group)
    stages = values["pipeline_parallel"]
    fits = (group >= stages) & (group <= count) & ((rest == 0) | (rest >= stages))
    return np.isnan(given) | np.equal(values["virtual_pipeline"], 1) | fits


FILLING_RULES = (
    Rule(
        "a dual pipe has enough microbatches",
        "schedule",
        ("schedule", "pipeline_parallel", *BATCH),
        lambda v: (
            ~np.isin(v["schedule"], ("dualpipe", "dualpipev"))
            | (
                (num_microbatches(v) >= 2 * v["pipeline_parallel"])
                & (
                    np.equal(v["schedule"], "dualpipev")
                    | (np.remainder(num_microbatches(v), 2) == 0)
                )
            )
        ),
        lambda row: (
            f"needs an even number of microbatches, twice `pipeline_parallel` or more; they are "
            f"{num_microbatches(row)}"
        ),
        lambda row: (
            f"use `global_batch_size` "
            f"{2 * row['pipeline_parallel'] * row['data_parallel'] * row['microbatch_size']} or "
            f"more, or another schedule"
        ),
    ),
    Rule(
        "a group of microbatches fills the stages",
        "microbatch_group",
        ("microbatch_group", "virtual_pipeline", "pipeline_parallel", *BATCH),
        _has_group,
        lambda row: (
            f"must lie between `pipeline_parallel` {row['pipeline_parallel']} and the "
            f"{num_microbatches(row)} microbatches, and leave a rest of none or of "
            f"{row['pipeline_parallel']} or more"
        ),
        lambda row: f"use {row['pipeline_parallel']}, or leave it out",
    ),
    Rule(
        "the last used stage has the loss",
        "pipeline_parallel",
        (
            *("pipeline_parallel", "data_parallel", "balances_stages", "num_layers"),
            *("hidden_size", "num_heads", "head_size", "ffn_hidden_size", "vocab_size"),
        ),
        lambda v: (
            np.logical_not(flag(v["balances_stages"]))
            | np.equal(v["data_parallel"], 1)
            | (_behind_output(v) <= STAGES_OF_LOSS)
        ),
        lambda row: (
            f"leaves {_behind_output(row):.0f} stages behind the output layer; this program "
            f"reports from the last one in use, which has no loss then"
        ),
    ),
)
"""Rules of how microbatches fill a pipeline."""
