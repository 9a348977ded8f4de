"""All estimators, one entry each. Register an estimator here; nothing scans for it."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from estimators.estimator import Estimator

ESTIMATORS: dict[str, str] = {
    "roofline": "estimators.roofline.estimator:ROOFLINE",
    "dataflow": "estimators.dataflow.estimator:DATAFLOW",
    "linear_layer": "estimators.linear_layer:LINEAR_LAYER",
    "run_optimizer": "estimators.run_optimizer.estimator:RUN_OPTIMIZER",
    "pipeline": "estimators.pipeline.estimator:PIPELINE",
    "cluster": "estimators.cluster.estimator:CLUSTER",
    "training_step": "estimators.training_step.estimator:TRAINING_STEP",
    "megatron_flops": "estimators.megatron_flops.estimator:MEGATRON_FLOPS",
}
"""Name -> ``module:object``, imported at the first use."""


def get(name: str) -> Estimator:
    """Return the estimator called `name`; capitals, hyphens and underscores do not matter.

    Raises
    ------
    RefusedError
        If there is none of that name.
    """
    module, _, attribute = ESTIMATORS[known_name(name)].partition(":")
    return cast("Estimator", getattr(import_module(module), attribute))


def known_name(name: str) -> str:
    """Return the name of the estimator that `get` returns for `name`; imports no estimator.

    Raises
    ------
    RefusedError
        If there is none of that name.
    """
    # Imported here: the command line lists the names before it needs an estimator.
    from estimators.contract import Refusal, RefusedError
    from estimators.names import folded

    for known in ESTIMATORS:
        if folded(known) == folded(name):
            return known
    hint = f"known: {', '.join(ESTIMATORS)}"
    raise RefusedError([Refusal("estimator", name, "is not known", hint)])


def all_estimators() -> list[Estimator]:
    """Return every registered estimator, in order of registration."""
    return [get(name) for name in ESTIMATORS]


_DEFAULTS = {
    **dict.fromkeys(("plan", "why", "explain", "measure", "calibrate"), "training_step"),
    "operations": "roofline",
}


def default(command: str) -> str:
    """Return the default estimator of a command.

    Raises
    ------
    KeyError
        If the command has no default.
    """
    return _DEFAULTS[command]


def with_capability(name: str) -> list[str]:
    """Return the estimators that have a capability, in order of registration.

    Parameters
    ----------
    name
        Attribute that is empty, None or false in estimators without the capability: ``can_plan``,
        ``step.formulas``, ``step.operations``, ``constants.names``, ``source.tables`` ...
    """
    capability = attrgetter(name)
    return [estimator.name for estimator in all_estimators() if capability(estimator)]
