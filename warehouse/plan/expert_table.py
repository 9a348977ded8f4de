"""The best layout of each degree of expert parallelism, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer


def expert_rows(answer: PlanAnswer) -> list[dict[str, Any]]:
    """Return step, memory and layout of each degree; `more` is the step over that of the best."""
    best = answer.best["step_seconds"]
    return [
        {
            "expert_parallel": line["expert_parallel"],
            "step_seconds": line["step_seconds"],
            "more_time_fraction": line["step_seconds"] / best - 1,
            "memory_bytes": line["memory_bytes"],
            "layout": answer.in_words(line),
        }
        for line in answer.expert_degrees
    ]
