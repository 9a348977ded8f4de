"""A plan as one object in base units, as JSON holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.plan.accuracy import room_probability
from warehouse.plan.count_table import batch_to_try
from warehouse.plan.queries import EXPERT_COLUMNS, STEP_PARTS
from warehouse.show.values import json_value

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.question import TrainingRun


def document(answer: PlanAnswer, top: int) -> dict[str, Any]:
    """Return the plan as one JSON-able object, in base units."""
    run, best, sure = answer.run, answer.best, answer.uncertainty
    place = list(answer.counts).index(answer.own_count)
    energy = answer.energies[0] if answer.energies else {}
    steps = best["training_seconds"] / best["step_seconds"]
    plain: dict[str, Any] = _plain(
        {
            "question": _question(run),
            "swept": {
                "cells": sum(one.missing_cells for one in answer.sweeps),
                "rows": sum(one.missing_rows for one in answer.sweeps),
            },
            "num_gpus": answer.num_gpus,
            "problem_id": answer.problem_id,
            "training_seconds": best["training_seconds"],
            "gpu_hours": best["gpu_hours"],
            "cost_usd": answer.own_count["cost_usd"],
            "cost_basis": _basis(run),
            "energy_kwh": energy.get("energy_kwh"),
            "power_watts": energy.get("power_watts"),
            "headroom_bytes": best["headroom_bytes"],
            "limited_by": max(
                (name for name in STEP_PARTS if best[name] is not None), key=lambda name: best[name]
            ),
            "layouts": list(answer.layouts[:top]),
            "runner_up": answer.runner_up,
            "other_kind": answer.other_kind,
            "surer": answer.surer,
            "safer": answer.safer,
            "safer_room_probability": answer.safer
            and room_probability(run, answer.safer, sure.memory_factor),
            "expert_degrees": [
                {name: line[name] for name in EXPERT_COLUMNS} for line in answer.expert_degrees
            ],
            "costs": list(answer.costs),
            "energies": list(answer.energies),
            "published_runs": list(answer.published_runs),
            "counts": list(answer.counts),
            "next_smaller": answer.counts[place - 1] if place else None,
            "next_larger": answer.counts[place + 1] if place + 1 < len(answer.counts) else None,
            "batch_to_try": batch_to_try(answer),
            "likely_training_seconds": sure.likely and [steps * end for end in sure.likely],
            "extreme_training_seconds": sure.extreme and [steps * end for end in sure.extreme],
            "unlike_published": list(sure.unlike),
            "errors": list(sure.errors),
            "own_runs": list(sure.own_runs),
            "track_record": None if sure.record is None else vars(sure.record),
            "room_probability": sure.room,
            "own_memory_bias": sure.own_memory_bias,
            "memory_errors": list(sure.memory),
            "errors_note": sure.note or None,
            "queries": dict(answer.queries),
        }
    )
    return plain


def _question(run: TrainingRun) -> dict[str, Any]:
    request, terms, values = run.request, run.terms, run.problem
    shape = run.estimator.shape_columns
    return {
        "estimator": run.estimator.name,
        "variant": run.variant,
        "model": values["model"],
        "accelerator": values["accelerator"],
        "dataset_tokens": request.tokens,
        "global_batch_size": run.batch,
        "is_default_batch": run.is_default_batch,
        "seq_len": values["seq_len"],
        "shape": {name: values[name] for name in shape if name in values},
        "nvlink_size": values.get("nvlink_size"),
        "framework": values.get("framework"),
        "inputs": dict(request.inputs),
        "held": dict(request.held),
        "headroom_bytes": request.headroom_bytes,
        "goodput": run.goodput,
        "basis": _basis(run),
        "usd_per_gpu_hour": terms.price,
        "pue": terms.pue,
        "usd_per_kwh": terms.usd_per_kwh,
        "kg_co2e_per_kwh": [each.value for each in terms.carbons] or None,
        "watts_per_gpu": terms.watts,
        **vars(request.limits),
    }


def _basis(run: TrainingRun) -> str:
    return run.terms.basis if run.terms.price is None else "given"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return json_value(value)
