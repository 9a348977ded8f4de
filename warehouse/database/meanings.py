"""Words for what the data dictionary does not name: reference tables, layers, macros' arguments.

`estimators/columns` has every column that a table, file or study has. Here stand the few columns
that only views pass to one another, and those of `warehouse_meta`.
"""

from __future__ import annotations

from estimators.columns import COLUMNS, Column

LAYERS = {
    "marts": "Views to ask: ranks, comparisons, costs, accuracy",
    "functions": "Table macros to ask: views that take arguments",
    "macros": "Functions for queries: units, FLOPs, utilization",
    "reference": "Reference tables: published figures, each row with its source",
    "records": "What was asked and stored: problems, cells, studies, calibrations",
    "intermediate": "Views that marts share",
    "staging": "An estimator's rows under the names that all estimators share",
    "current": "Stored rows of the newest versions, with their problem and choices",
    "results": "Stored rows, as they were written",
    "own": "Not of this package: made by hand in this database",
}
"""Layers in the order in which people need them, with what they hold."""

REFERENCE_TABLES = {
    "accelerator": "Accelerators: peak rates, memory, links, power and purchase. "
    "One row per accelerator",
    "accelerator_alias": "Other names of accelerators. One row per name",
    "cost_parameter": "Parameters of cost and power: life of a server, utilization, overheads. "
    "One row per parameter",
    "device": "Devices of the simulators. One row per device",
    "electricity_price": "Prices of electricity. One row per region and year",
    "erratum": "Faults of the sources, and how they are mended. One row per erratum",
    "facility_pue": "Energy of data centres over that of their computers. One row per facility",
    "framework": "Training programs: what each does unless told otherwise. One row per framework",
    "framework_alias": "Other names of training programs. One row per name",
    "goodput": "Share of the time of large runs that made progress. One row per run",
    "gpu_hour_price": "Published prices of an hour of one accelerator. "
    "One row per quote: date, hardware and vendor",
    "grid_carbon": "Emissions of electricity. One row per grid",
    "model": "Models: their shapes. One row per model",
    "model_alias": "Other names of models. One row per name",
    "priced_as": "Accelerators of a system that take the price and power of another. "
    "One row per accelerator",
    "published_megatron_h100_scaling": "Megatron-Core's published rates on H100s. "
    "One row per published configuration",
    "published_megatron_recompute": "Megatron's published step times with full and selective "
    "recomputation. One row per published configuration",
    "published_megatron_scaling": "Megatron's published rates on up to 3,072 A100s. "
    "One row per published configuration",
    "published_megatron_training_time": "Published times of whole runs, Megatron and ZeRO-3. "
    "One row per published configuration",
    "published_training_runs": "Published runs: GPU-hours, power, energy, carbon and cost. "
    "One row per run or part of one",
    "published_training_stage": "Published step times and rates of stages of large runs. "
    "One row per stage",
    "site": "Sites of clusters that train together. One row per site",
    "step_constant": "Constants that estimates take, with the lowest and highest plausible "
    "value. One row per constant, and accelerator or framework where it differs there",
    "system": "Systems: rates, links, latencies. One row per accelerator",
}
"""What each reference table holds, and its grain; every row names its source."""

OTHER_COLUMNS = (
    Column("best", "str", "", "The fastest layout that fits, with its figures, as one struct"),
    Column("conditions", "str", "", "What else makes up the problem, as one struct"),
    Column("coverage", "str", "", "What a cell covers of its problem, to compare like with like"),
    Column(
        "hardware_flops", "float", "FLOP", "FLOPs of a step, with those that recomputation repeats"
    ),
    Column("key", "str", "", "What is told of the database: a version, or whose hash it is"),
    Column("known_name", "str", "", "The name that it is stored or known under"),
    Column(
        "least_seconds",
        "float",
        "seconds",
        "Time of the fastest layout were the network without limit; NULL where it is modelled",
    ),
    Column("name_kind", "str", "", "What is called so: a model, an accelerator, a problem, a cell"),
    Column("spelling_place", "int", "", "Which of a spelling's meanings counts: the least"),
    Column("value", "str", "", "The version, hash or list of names"),
)
"""Columns that only views pass to one another, or that the database keeps about itself."""

ARGUMENTS = {
    "argument_name": "Name of an argument, for the error",
    "asked": "What it was given: a name or an id",
    "asked_model": "A model, by any of its names",
    "asked_num_gpus": "Number of GPUs; NULL: every one that was evaluated",
    "asked_tokens": "Tokens to train on; NULL takes each run's own",
    "assumed_goodput": "Share of the time that makes progress, above 0 to 1; NULL: the run's own",
    "base_accelerator": "Accelerator to compare with, by any of its names; NULL: the fastest",
    "base_nvlink_size": "Its GPUs in an NVLink domain; NULL: the fastest",
    "bytes": "An amount of memory or traffic [bytes]",
    "cluster_row": "A row of a table of the estimator cluster",
    "erratum": "The id of an erratum, such as 'R2'",
    "first_name": "A model or an accelerator by any name, or the id of a problem or cell",
    "flops_per_second": "A rate of arithmetic [FLOP/s]",
    "fraction": "A ratio, 0.25 for a quarter",
    "given": "What was given for it; NULL: nothing",
    "given_kg_co2e_per_kwh": "Emissions of electricity [kg/kWh]; NULL: every published grid's",
    "given_price": "Price of an hour of one GPU [USD/GPU-hour]; NULL: every published one",
    "given_pue": "Energy of the facility over that of its computers, 1 to 10; NULL: published",
    "given_usd_per_kwh": "Price of electricity [USD/kWh]; NULL: the last published one",
    "given_watts": "Mean power of one accelerator with its server [watts]; NULL: published ones",
    "highest": "The highest that may be given",
    "layout": "A row or a struct that has the columns of a layout, such as a view's name in `from`",
    "lowest": "The lowest that may be given",
    "measured": "A row of a table of published or measured steps",
    "mends": "The ids of a row's mends, commas between: column mends",
    "name": "A name of a model, an accelerator or anything else",
    "name_kinds": "What it may name: a list of model, accelerator, problem and cell",
    "only_id": "A cell_id or problem_id to keep to; NULL: all",
    "only_num_gpus": "A number of GPUs to keep to; NULL: all",
    "percent": "How much slower than the best a layout may be [%]",
    "rule": "What the error says that it must be",
    "second_name": "Another of the same kind",
    "seconds": "A time [seconds]",
    "usual": "The value that it has unless it is changed",
    "words": "What to say of it",
}
"""Arguments of macros that are not columns of the data dictionary."""

_OTHER = {column.name: column for column in OTHER_COLUMNS}


def meaning_of(name: str) -> Column | None:
    """Return what the column `name` is wherever it occurs, None if nothing says so."""
    return COLUMNS.get(name) or _OTHER.get(name)


def reference_comment(name: str) -> str:
    """Return the comment of the reference table that `name`.csv becomes."""
    return REFERENCE_TABLES.get(name, f"Reference table, from {name}.csv. One row per source")
