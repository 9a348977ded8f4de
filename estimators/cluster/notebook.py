"""The tables of the source's notebook, with its units and wording, in either variant.

Every cell comes from the estimator. Mends C4 and C8 change the wording as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from estimators.cluster.relations import COMMUNICATION, COMPUTE, ELECTRICITY, LATENCY
from estimators.contract import Evaluate, Mends, Relation, SourceTable, TableRow, Values

BATCHES = (8192, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 32_000_000)
ACCUMULATIONS = (1, 5, 10, 100)
DATASETS = (None, 20e12)
"""Tokens of a data set: 20 a parameter, and 20 trillion for models of up to 100 billion."""

SMALL_MODEL = 100e9
SYNC_INTERVAL = 500
PAIRS = (("JZ", "JC", "JOLIOT_CURIE"), ("JZ", "EC", "EL_CAPITAN"))


@dataclass(frozen=True)
class Notebook:
    """Evaluates configurations from the inputs of the whole table and the changes of a cell."""

    evaluate: Evaluate
    given: Mapping[str, str]
    mends: Mends

    def figures(self, relation: Relation, **changes: object) -> Values:
        """Return inputs and results of one configuration.

        Raises
        ------
        RefusedError
            If it is refused.
        """
        changed = {name: str(value) for name, value in changes.items() if value is not None}
        read = {name: text for name, text in self.given.items() if name not in relation.unread}
        return self.evaluate(relation, {**read, **changed})


def critical_batch(run: Notebook) -> Iterator[TableRow]:
    """Yield the critical batch of the model."""
    found = run.figures(COMPUTE)
    yield {
        "Model Size (B params)": short(found["parameters"]),
        "Critical Batch Size (tokens)": f"{found['critical_batch_tokens'] / 1e6:1f}M",
    }


def compute(run: Notebook) -> Iterator[TableRow]:
    """Yield GPUs, cost and time for each data set and batch."""
    for tokens in DATASETS:
        for batch in BATCHES:
            runs = [
                run.figures(
                    COMPUTE,
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


def communication(run: Notebook) -> Iterator[TableRow]:
    """Yield time and cost of exchanging gradients, in bf16, in fp8 and every 500 steps."""
    for batch in BATCHES:
        shared = {"dataset_tokens": DATASETS[1], "global_batch_tokens": batch}
        bf16, fp8, diloco = (
            run.figures(
                COMMUNICATION,
                gradient_bytes_per_parameter=width,
                sync_interval_steps=interval,
                **shared,
            )
            for width, interval in ((2, 1), (1, 1), (2, SYNC_INTERVAL))
        )
        shown = fp8 if "C4" in run.mends else bf16
        sync: dict[str, Any] = {"bf16": bf16["sync_seconds"], "fp8": fp8["sync_seconds"]}
        share: dict[str, Any] = {"bf16": bf16["sync_fraction"], "fp8": fp8["sync_fraction"]}
        seldom = diloco
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


def latency(run: Notebook) -> Iterator[TableRow]:
    """Yield the latency of light between sites over a run; the notebook stops before this table."""
    for batch in BATCHES:
        row: TableRow = {}
        for here, there, site in PAIRS:
            found = run.figures(LATENCY, global_batch_tokens=batch, site_a="JEAN_ZAY", site_b=site)
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


def electricity(run: Notebook) -> Iterator[TableRow]:
    """Yield power and energy; the notebook stops before this table."""
    for batch in BATCHES:
        found = run.figures(ELECTRICITY, global_batch_tokens=batch)
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


AXES = frozenset(
    {
        *("global_batch_tokens", "gradient_accumulation", "sync_interval_steps"),
        *("gradient_bytes_per_parameter", "site_a", "site_b"),
    }
)
"""Inputs that the tables vary from row to row, or from column to column."""

_PLACES = frozenset(f"{place}_{end}" for end in "ab" for place in ("latitude", "longitude"))
_RATES = frozenset(
    {
        *("accelerator", "peak_flops_per_second", "hbm_bytes", "usd_per_gpu_hour", "mfu"),
        *("target_step_seconds", "available_gpus", "goodput", "activation_recompute"),
    }
)
_STOPS = "the notebook stops here; these are the figures with that alone mended"


def _table(
    rows: Callable[[Notebook], Iterator[TableRow]],
    relation: Relation,
    without_effect: frozenset[str] = frozenset(),
    note_as_published: str = "",
) -> SourceTable:
    return SourceTable(
        relation,
        lambda *given: rows(Notebook(*given)),
        AXES,
        without_effect,
        note_as_published,
    )


TABLES: Mapping[str, SourceTable] = {
    "critical_batch": _table(critical_batch, COMPUTE, _RATES),
    "compute": _table(compute, COMPUTE),
    "communication": _table(
        # the source's runs have 20 trillion tokens
        communication,
        COMMUNICATION,
        frozenset({"dataset_tokens", "tokens_per_parameter"}),
    ),
    "latency": _table(latency, LATENCY, _PLACES, f"C6: {_STOPS}"),
    "electricity": _table(
        # the table shows only the computers, and no money
        electricity,
        ELECTRICITY,
        frozenset({"pue", "usd_per_kwh", "kg_co2e_per_kwh", "usd_per_gpu_hour"}),
        f"C7: {_STOPS}",
    ),
}
"""Name -> a table of the notebook, in its order."""


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
