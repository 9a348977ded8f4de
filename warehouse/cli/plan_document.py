"""A plan as one JSON object, in base units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from estimators.training_step.inputs import SHAPE
from warehouse.plan.queries import SHARES
from warehouse.show.formats import json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.plan.answer import Answer


def document(answer: Answer, top: int, grid: str | None) -> dict[str, Any]:
    """Return the answer in base units."""
    run, best = answer.run, answer.layouts[0]
    asked, sure = run.asked, answer.sureness
    place = [line["num_gpus"] for line in answer.counts].index(answer.num_gpus)
    energy = answer.energies[0] if answer.energies else {}
    terms = next(line for line in answer.counts if line["num_gpus"] == answer.num_gpus)
    factor = best["training_seconds"] / best["step_seconds"]
    basis = asked.basis if asked.price is None else "given"
    plain: dict[str, Any] = _plain(
        {
            "question": {
                "estimator": run.estimator.name,
                "variant": run.variant,
                "model": run.facts.problem["model"],
                "accelerator": run.facts.problem["accelerator"],
                "dataset_tokens": asked.tokens,
                "global_batch_size": run.batch,
                "is_default_batch": run.is_default_batch,
                "seq_len": run.facts.problem["seq_len"],
                "shape": {n: run.facts.problem[n] for n in SHAPE if n in run.facts.problem},
                "nvlink_size": run.facts.problem["nvlink_size"],
                "framework": run.facts.problem.get("framework"),
                "inputs": dict(asked.inputs),
                "held": dict(asked.held),
                "headroom_bytes": asked.headroom_bytes,
                "goodput": asked.goodput or 1.0,
                "basis": basis,
                "usd_per_gpu_hour": asked.price,
                "pue": asked.pue,
                "usd_per_kwh": asked.usd_per_kwh,
                "kg_co2e_per_kwh": asked.kg_co2e_per_kwh,
                "watts_per_gpu": asked.watts,
                **vars(asked.limits),
            },
            "swept": {
                "cells": sum(one.missing_cells for one in answer.sweeps),
                "rows": sum(one.missing_rows for one in answer.sweeps),
            },
            "num_gpus": answer.num_gpus,
            "problem_id": answer.problem_id,
            "training_seconds": best["training_seconds"],
            "gpu_hours": best["gpu_hours"],
            "cost_usd": terms["cost_usd"],
            "cost_basis": basis,
            "energy_kwh": energy.get("energy_kwh"),
            "power_watts": energy.get("power_watts"),
            "headroom_bytes": best["headroom_bytes"],
            "limited_by": max(
                (name for name in SHARES if best[name] is not None), key=lambda name: best[name]
            ),
            "layouts": list(answer.layouts[:top]),
            "runner_up": answer.runner_up,
            "other_kind": answer.other,
            "roomier": answer.roomier,
            "costs": list(answer.costs),
            "energies": energies(answer, grid),
            "counts": list(answer.counts),
            "next_smaller": answer.counts[place - 1] if place else None,
            "next_larger": answer.counts[place + 1] if place + 1 < len(answer.counts) else None,
            "likely_training_seconds": sure.likely and [factor * end for end in sure.likely],
            "extreme_training_seconds": sure.extreme and [factor * end for end in sure.extreme],
            "unlike_published": list(sure.unlike),
            "errors": list(sure.errors),
            "memory_errors": list(sure.memory),
            "errors_note": sure.note or None,
            "queries": dict(answer.queries),
        }
    )
    return plain


def energies(answer: Answer, grid: str | None) -> list[Mapping[str, Any]]:
    """Return the energies; carbon that was given by the name of a grid has that name."""
    return [{**line, "grid": grid or line["grid"]} for line in answer.energies]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return json_value(value)
