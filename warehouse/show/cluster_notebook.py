"""The tables of the cluster estimator's source, as its notebook prints them, in either variant.

Every cell comes from the estimator; only units and wording are the notebook's, and where a mend is
about what is printed (C4, C8) the mended wording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimators.cluster.relations import RELATIONS
from estimators.contract import Refusal, RefusedError
from warehouse.evaluate.one import show_configuration

if TYPE_CHECKING:
    from estimators.contract import Catalog, Estimator, Mends, Scalar

BATCHES = (8192, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 32_000_000)
ACCUMULATIONS = (1, 5, 10, 100)
DATASETS = (None, 20e12)
"""Tokens of a data set: 20 a parameter, and 20 trillion for models of up to 100 billion."""

SMALL_MODEL = 100e9
SYNC_INTERVAL = 500
PAIRS = (("JZ", "JC", "JOLIOT_CURIE"), ("JZ", "EC", "EL_CAPITAN"))

KEYS = frozenset(name for relation in RELATIONS for name in relation.keys)
"""What tells the rows of some relation apart."""

Figures = Mapping[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Evaluator:
    """Evaluates configurations of one estimator: what was given to the command, and changes."""

    estimator: Estimator
    catalog: Catalog
    mends: Mends
    given: Mapping[str, str]

    def figures(self, relation: str, **changes: object) -> dict[str, Scalar]:
        """Return inputs and results of one configuration.

        Raises
        ------
        RefusedError
            If it is refused.
        """
        grain = next(r for r in self.estimator.relations if r.name == relation)
        asked = {name: str(value) for name, value in changes.items() if value is not None}
        known = {n: v for n, v in self.given.items() if n not in grain.unread}
        shown = show_configuration(
            self.estimator, grain, {**known, **asked}, self.mends, self.catalog
        )
        return shown.values


def critical_batch(run: Evaluator) -> Iterator[Row]:
    """Yield the critical batch of the model."""
    found: Figures = run.figures("cluster_compute")
    yield {
        "Model Size (B params)": short(found["parameters"]),
        "Critical Batch Size (tokens)": f"{found['critical_batch_tokens'] / 1e6:1f}M",
    }


def compute(run: Evaluator) -> Iterator[Row]:
    """Yield GPUs, cost and time for each data set and batch."""
    for tokens in DATASETS:
        for batch in BATCHES:
            runs: list[Figures] = [
                run.figures(
                    "cluster_compute",
                    dataset_tokens=tokens,
                    global_batch_tokens=batch,
                    gradient_accumulation=times,
                )
                for times in ACCUMULATIONS
            ]
            first = runs[0]
            if tokens and first["parameters"] > SMALL_MODEL:
                continue
            row = {
                "Model Size (Params)": short(first["parameters"]),
                "Dataset Size (Tokens)": short(first["dataset_tokens"]),
                "gbs": f"{batch / 1e6}M",
                "Total Steps": int(first["num_steps"]),
                "Total FLOPs": f"{first['total_flops'] / 1e18:,} EFLOPs",
                "FLOPs per Step": f"{first['step_flops'] / 1e15:,} PFLOPs",
                "H100 GPUs Needed": first["num_gpus"],
                "Total H100s cost": millions(first["cost_usd"]),
                "training_time_and_mem_with_0_grad_accum": days(first["training_seconds"]),
            }
            for times, found in zip(ACCUMULATIONS[1:], runs[1:], strict=True):
                name = f"training_time_and_mem_with_{times}_grad_accum"
                row[name] = f"{years(found['training_seconds'])} | {found['num_gpus']} gpus"
            yield row


def communication(run: Evaluator) -> Iterator[Row]:
    """Yield what exchanging gradients between sites takes, in bf16, in fp8 and every 500 steps."""
    for batch in BATCHES:
        shared = {"dataset_tokens": DATASETS[1], "global_batch_tokens": batch}
        bf16, fp8, diloco = (
            run.figures(
                "cluster_communication",
                gradient_bytes_per_parameter=width,
                sync_interval_steps=interval,
                **shared,
            )
            for width, interval in ((2, 1), (1, 1), (2, SYNC_INTERVAL))
        )
        shown: Figures = fp8 if "C4" in run.mends else bf16
        sync: dict[str, Any] = {"bf16": bf16["sync_seconds"], "fp8": fp8["sync_seconds"]}
        share: dict[str, Any] = {"bf16": bf16["sync_fraction"], "fp8": fp8["sync_fraction"]}
        seldom: Figures = diloco
        total = "Total communication time in"
        yield {
            "Model Size (Params)": short(seldom["parameters"]),
            "Global batch size": f"{batch / 1e6}M",
            "Total bfloat16 gradient storage": terabytes(2 * seldom["parameters"]),
            "Total fp8 gradient storage": terabytes(seldom["parameters"]),
            "Bandwidth": f"{seldom['site_bytes_per_second'] / 1e9:.3f} GB/s",
            f"{total} bfloat16 - comm/compute ratio": (
                f"{days(sync['bf16'])} / {years(sync['bf16'])} - {share['bf16'] * 100:.2f}%"
            ),
            f"{total} fp8 - comm/compute ratio": (
                f"{days(shown['sync_seconds'])} / {years(sync['fp8'])} - {share['fp8'] * 100:.2f}%"
            ),
            "Total GPU idle cost for bfloat16 comm": billions(bf16["idle_cost_usd"]),
            "Total GPU idle cost for fp8 comm": billions(fp8["idle_cost_usd"]),
            "DiLoCo's total communication time in bfloat16 (500 inner steps) - comm/compute "
            "ratio": f"{days(seldom['sync_seconds'])}  - {seldom['sync_fraction'] * 100:.2f}%",
        }


def latency(run: Evaluator) -> Iterator[Row]:
    """Yield what light between sites takes over a run: the notebook stops before it prints it."""
    for batch in BATCHES:
        row: Row = {}
        for here, there, site in PAIRS:
            found: Figures = run.figures(
                "cluster_latency", global_batch_tokens=batch, site_a="JEAN_ZAY", site_b=site
            )
            row |= {
                "Model Size (Params)": short(found["parameters"]),
                "Dataset Size (Tokens)": short(found["dataset_tokens"]),
                "Global Batch Size": f"{batch / 1e6}M",
            }
            idle = days if there == "JC" else years
            row |= {
                f"Total minimum communication latency between {here} and {there}": found[
                    "total_latency_seconds"
                ],
                f"Total GPU idle time for minimum comm between {here} and {there}": idle(
                    found["idle_gpu_seconds"]
                ),
                f"GPU idle cost during {here}-{there} minimum communication latency": millions(
                    found["idle_cost_usd"]
                ),
            }
        yield row


def electricity(run: Evaluator) -> Iterator[Row]:
    """Yield power and energy: the notebook stops before it prints them."""
    for batch in BATCHES:
        found: Figures = run.figures("cluster_electricity", global_batch_tokens=batch)
        step = amount(found["power_watts"], 1e6, ".3f", "MW")
        whole = amount(found["energy_joules"], 1e12, ".3f", "TW")
        if "C8" in run.mends:
            step = amount(found["step_energy_kwh"], 1, ".3f", "kWh")
            whole = amount(found["energy_kwh"], 1e3, ",.1f", "MWh")
        yield {
            "Model Size (Params)": short(found["parameters"]),
            "Dataset Size (Tokens)": short(found["dataset_tokens"]),
            "Global batch size": f"{batch / 1e6}M",
            "Number of GPUs": found["num_gpus"],
            "Total electricity per step (without grad accum)": step,
            "Total electricity for the entire training (without grad accum)": whole,
        }


TABLES: Mapping[str, Callable[[Evaluator], Iterator[Row]]] = {
    "critical_batch": critical_batch,
    "compute": compute,
    "communication": communication,
    "latency": latency,
    "electricity": electricity,
}
"""Name -> the rows of a table of the notebook, in its order."""

NEVER_PRINTED = {
    "latency": "C6: the notebook stops here; these are the figures with that alone mended",
    "electricity": "C7: the notebook stops here; these are the figures with that alone mended",
}
AXES = frozenset(
    {
        *("global_batch_tokens", "gradient_accumulation", "sync_interval_steps"),
        *("gradient_bytes_per_parameter", "site_a", "site_b"),
    }
)
"""Inputs that the tables go through, or that tell their columns apart."""

_PLACES = frozenset(f"{place}_{end}" for end in "ab" for place in ("latitude", "longitude"))
_RATES = frozenset(
    {
        *("accelerator", "peak_flops_per_second", "hbm_bytes", "usd_per_gpu_hour", "mfu"),
        *("target_step_seconds", "available_gpus", "goodput", "activation_recompute"),
    }
)
WITHOUT_EFFECT: Mapping[str, tuple[str, frozenset[str]]] = {
    "critical_batch": ("cluster_compute", _RATES),
    "compute": ("cluster_compute", frozenset()),
    # its runs have 20 trillion tokens
    "communication": (
        "cluster_communication",
        frozenset({"dataset_tokens", "tokens_per_parameter"}),
    ),
    "latency": ("cluster_latency", _PLACES),
    # it shows the computers alone, and no money
    "electricity": (
        "cluster_electricity",
        frozenset({"pue", "usd_per_kwh", "kg_co2e_per_kwh", "usd_per_gpu_hour"}),
    ),
}
"""Table -> its relation, and which inputs of that relation change nothing that it shows."""


def source_table(run: Evaluator, name: str) -> list[Row]:
    """Return the rows of a table.

    Raises
    ------
    RefusedError
        If there is no such table, if what was given is an axis of the tables or changes nothing
        in this one, or if a configuration is refused.
    """
    refusals = [
        Refusal(key, value, "is an axis of the table", "leave it out, or leave --table out")
        for key, value in run.given.items()
        if key in AXES
    ]
    if name in TABLES:
        relation, idle = WITHOUT_EFFECT[name]
        grain = next(r for r in run.estimator.relations if r.name == relation)
        unread = {key for key in run.given if key in idle or key in grain.unread}
        unread |= {key for key in run.given if key in KEYS and key not in grain.keys}
        refusals += [
            Refusal(key, run.given[key], f"has no effect on table `{name}`", "leave it out")
            for key in sorted(unread - AXES)
        ]
    else:
        hint = f"use {', '.join(TABLES)}"
        refusals.append(Refusal("table", name, f"is not one of {run.estimator.name}", hint))
    if refusals:
        raise RefusedError(refusals)
    return list(TABLES[name](run))


def short(number: float) -> str:
    """Return a number in billions, or from a tenth of a trillion on in trillions."""
    return f"{number / 1e12:.1f}T" if abs(number / 1e12) >= 0.1 else billions(number)


def billions(number: Any) -> str:
    """Return a number in billions; a dash where it is not known."""
    return "-" if number is None else f"{number / 1e9:,.2f}B"


def millions(number: Any) -> Any:
    """Return a number in millions; below a tenth of one as it is."""
    if number is None:
        return "-"
    return f"{number / 1e6:,.1f}m" if abs(number / 1e6) >= 0.1 else number


def amount(number: Any, scale: float, digits: str, unit: str) -> str:
    """Return a number in a unit; a dash where it is not known."""
    return "-" if number is None else f"{number / scale:{digits}} {unit}"


def days(seconds: Any) -> str:
    """Return seconds in days."""
    return f"{seconds / 86400:.1f} days"


def years(seconds: Any) -> str:
    """Return seconds in years of 365.25 days."""
    return f"{seconds / 31_557_600:.2f} years"


def terabytes(number: Any) -> str:
    """Return bytes in terabytes."""
    return f"{number / 1e12:.3f} TB"
