"""Meanings that are not in the data dictionary: layers, reference tables, arguments of macros.

The data dictionary, `estimators/columns`, has the columns of tables, files and studies. This module
has the columns of `warehouse_meta` and those that one view only passes to another.
"""

from __future__ import annotations

from estimators.columns import COLUMNS, Column

LAYERS = {
    "marts": "Views to ask: ranks, comparisons, costs, accuracy",
    "functions": "Table macros to ask: views that take arguments",
    "macros": "Functions for queries: units, FLOPs, utilization",
    "reference": "Reference tables: published figures, each row with its source",
    "records": "Records: problems, cells, studies, calibrations, measurements",
    "intermediate": "Views that marts share",
    "staging": "An estimator's rows under the names that all estimators share",
    "current": "Stored rows of the newest versions, with their problem and choices",
    "results": "Stored rows, as written",
    "own": "Made by hand in this database, not by the package",
}
"""Layer -> its content, in the order in which people need them."""

_ROLE_OF = {
    "marts": "mart",
    "functions": "function",
    "macros": "macro",
    "records": "record",
    "current": "internal",
    "results": "internal",
}
"""Layer -> its role, if that has another name."""

DEPRECATED = "deprecated"
"""Role of a former name, whose comment begins with it and names the new one."""

ROLES = {_ROLE_OF.get(layer, layer): content for layer, content in LAYERS.items()} | {
    "internal": "Stored rows as written, and views of the newest: marts show them",
    DEPRECATED: "Former names, which stay for one minor version",
}
"""First word of a comment -> the tables, views and macros that have it, marts first."""

REFERENCE_TABLES = {
    "accelerator": "Accelerators: peak rates, memory, links, power and purchase. One row per "
    "accelerator. Key: accelerator",
    "accelerator_alias": "Other names of accelerators. One row per name. Key: alias",
    "attention_default": "Programs of fused attention that frameworks call. One row per "
    "framework, and accelerator where it differs there. Key: attention_default",
    "attention_rate": "Rates of fused attention by sequence length. One row per program, "
    "accelerator and head size. Key: attention_rate",
    "cost_parameter": "Parameters of cost and power: life of a server, utilization, overheads. "
    "One row per parameter. Key: parameter",
    "device": "Devices of the simulators. One row per device. Key: accelerator",
    "electricity_price": "Prices of electricity. One row per region and year. Key: region, year",
    "erratum": "Faults of the sources and their mends. One row per erratum. Key: erratum",
    "expert_default": "How programs exchange the tokens of experts, and what they recompute. One "
    "row per framework, and accelerator and model where it differs there. Key: expert_default",
    "expert_load": "How much more than the mean the fullest rank of experts has, from measured "
    "kernels. One row per routing, number of experts and number of ranks. Key: expert_load",
    "facility_pue": "Energy of data centres over that of their computers. One row per facility. "
    "Key: facility",
    "framework": "Training programs and their defaults. One row per framework. Key: framework",
    "framework_alias": "Other names of training programs. One row per name. Key: alias",
    "goodput": "Share of the time of large runs that made progress. One row per run. Key: run",
    "gpu_hour_price": "Published prices of an hour of one accelerator. One row per quote. Key: "
    "quote_number",
    "grid_alias": "Other names of power grids: codes and names of countries, regions and states. "
    "One row per name. Key: alias",
    "grid_carbon": "Emissions of electricity: countries, regions of a cloud, states, and the "
    "grids of published runs. One row per grid. Key: grid",
    "interval_term": "Parts of the interval of a step that no constant makes. One row per part. "
    "Key: interval_term",
    "matrix_product_rate": "Measured rates of matrix products. One row per accelerator, number "
    "format and shape of a grid. Key: accelerator, number_format, product_rows, "
    "product_columns, product_depth",
    "model": "Models: their shapes. One row per model. Key: model",
    "model_alias": "Other names of models. One row per name. Key: alias",
    "priced_as": "Accelerators of a system that take the price and power of another. One row per "
    "accelerator. Key: accelerator",
    "published_measurement": "Published times and memory of training steps, from ten sources, "
    "each with its layout and the inputs that its source names. One row per measurement. Key: "
    "published_row",
    "published_megatron_h100_scaling": "Megatron-Core's published rates on H100s. One row per "
    "published configuration. Key: model, num_gpus",
    "published_megatron_recompute": "Megatron's published step times with full and selective "
    "recomputation. One row per published configuration. Key: model, activation_recompute",
    "published_megatron_scaling": "Megatron's published rates on up to 3,072 A100s. One row per "
    "published configuration. Key: model",
    "published_megatron_training_time": "Published times of whole runs, Megatron and ZeRO-3. One "
    "row per published configuration. Key: scheme, parameters, num_gpus, microbatch_size",
    "published_training_runs": "Published runs: GPU-hours, power, energy, carbon and cost. One "
    "row per run or part of one. Key: run_kind, model, organization, num_gpus",
    "published_training_stage": "Published step times and rates of stages of large runs. One row "
    "per stage. Key: model, num_gpus",
    "site": "Sites of clusters that train together. One row per site. Key: site",
    "step_constant": "Constants that estimates take, with the lowest and highest plausible "
    "value. One row per constant, and accelerator or framework where it differs there. Key: "
    "step_constant",
    "recipe_constant": "Constants of a step that a recipe of number formats sets. One row per "
    "constant, framework and recipe. Key: recipe_constant",
    "step_constant_cause": "Why constants err, and how often a program makes another choice. One "
    "row per constant, and framework where it differs there. Key: step_constant",
    "sustained_product": "Rate and power of products that a GPU's power limit slows, in long and "
    "in short runs. One row per accelerator, number format and program. Key: accelerator, "
    "number_format, software",
    "system": "Systems: rates, links, latencies. One row per accelerator. Key: accelerator",
}
"""Reference table -> its content, its grain and its key."""

OTHER_COLUMNS = (
    Column("best", "str", "", "The fastest layout that fits, with its figures, as one struct"),
    Column("conditions", "str", "", "The rest of the problem, as one struct"),
    Column("coverage", "str", "", "Part of the problem that a cell covers, to compare alike"),
    Column(
        "gpu_hours_per_trillion_tokens",
        "float",
        "GPU-hours",
        "GPU-hours of a run for 1e12 of its tokens",
    ),
    Column(
        "hardware_flops", "float", "FLOP", "FLOPs of a step, with those that recomputation repeats"
    ),
    Column("key", "str", "", "Name of the version, hash or list"),
    Column("known_model", "str", "", "The model by its name in table model"),
    Column("known_name", "str", "", "The name that it is stored or known under"),
    Column(
        "least_seconds",
        "float",
        "seconds",
        "Time of the fastest layout were the network without limit; NULL where it is modelled",
    ),
    Column("name_kind", "str", "", "What has the name: model, accelerator, problem, cell"),
    Column("product", "str", "", "The product whose constants a problem should have"),
    Column("spelling_place", "int", "", "Order of the meanings of a spelling: the least counts"),
    Column("training_days", "float", "days", "Time of the run"),
    Column("value", "str", "", "The version, hash or list of names"),
)
"""Columns that only views share, and those of `warehouse_meta`."""

ARGUMENTS = {
    "argument_name": "Name of an argument, for the error",
    "identified_text": "Text that the number stands for",
    "asked": "The name or id that was given",
    "asked_model": "A model, by any of its names",
    "asked_num_gpus": "Number of GPUs; NULL: all that were evaluated",
    "asked_tokens": "Tokens to train on; NULL takes each run's own",
    "assumed_goodput": "Share of the time that makes progress, above 0 to 1; NULL: the run's own",
    "base_accelerator": "Accelerator to compare with, by any of its names; NULL: the fastest",
    "base_nvlink_size": "Its GPUs in an NVLink domain; NULL: the fastest",
    "bytes": "An amount of memory or traffic [bytes]",
    "cluster_row": "A row of a table of the estimator cluster",
    "deviations": "A number of standard deviations from the mean",
    "each_num_gpus": "Whether each number of GPUs has a row; false: one row, with the GPUs of the "
    "cheapest run",
    "error": "An error; NULL does not count",
    "erratum": "The id of an erratum, such as 'R2'",
    "first_name": "A model or an accelerator by any name, or the id of a problem or cell",
    "flops_per_second": "A rate of arithmetic [FLOP/s]",
    "fraction": "A ratio, 0.25 for a quarter",
    "given": "The value that was given; NULL: none",
    "given_kg_co2e_per_kwh": "Emissions of electricity [kg/kWh]; NULL: those of each grid",
    "given_price": "Price of an hour of one GPU [USD/GPU-hour]; NULL: every published one",
    "given_pue": "Energy of the facility over that of its computers, 1 to 10; NULL: published",
    "given_usd_per_kwh": "Price of electricity [USD/kWh]; NULL: the last published one",
    "given_watts": "Mean power of one accelerator with its server [watts]; NULL: published ones",
    "highest": "The highest that may be given",
    "is_own": "Whether the steps are a team's own runs",
    "last_rank": "The last rank that is wanted, 1 to 1000000",
    "layout": "A row or a struct that has the columns of a layout, such as a view's name in `from`",
    "lowest": "The lowest that may be given",
    "measured": "A row of a table of published or measured steps",
    "mends": "The ids of a row's mends, commas between: column mends",
    "name": "A name of a model, an accelerator or anything else",
    "name_kinds": "Kinds that it may name: a list of model, accelerator, problem and cell",
    "of_problem": "The problem_id of one problem; NULL: all",
    "only_id": "A cell_id or problem_id to keep to; NULL: all",
    "only_num_gpus": "A number of GPUs to keep to; NULL: all",
    "only_seq_len": "A sequence length to keep to [tokens]; NULL: all",
    "percent": "How much slower than the best a layout may be [%]",
    "predicted_rank": "Rank of a predicted value; equal values share the mean of their ranks",
    "published_rank": "Rank of the published value",
    "rule": "The rule that the error states",
    "second_name": "Another of the same kind",
    "seconds": "A time [seconds]",
    "t": "1 / (1 + 0.2316419 d), d the standard deviations from the mean, 0 or more",
    "usual": "The value that it has unless it is changed",
    "words": "What to say of it",
}
"""Argument of a macro that is not a column of the data dictionary -> its meaning."""

_OTHER = {column.name: column for column in OTHER_COLUMNS}


def meaning_of(name: str) -> Column | None:
    """Return the column `name`, which means the same wherever it occurs; None if unknown."""
    return COLUMNS.get(name) or _OTHER.get(name)


def argument_meaning(name: str) -> str:
    """Return the meaning of a macro's argument: its own, else that of the column of its name."""
    column = meaning_of(name)
    return ARGUMENTS.get(name) or (column.comment if column else "")


def role_of(layer: str) -> str:
    """Return the role of the tables, views and macros of a layer."""
    return _ROLE_OF.get(layer, layer)


def comment_of(role: str, meaning: str) -> str:
    """Return the comment of a table, view or macro: its role, so that lists can be sorted by it."""
    return meaning if meaning.startswith(f"{DEPRECATED}: ") else f"{role}: {meaning}"


def reference_comment(name: str) -> str:
    """Return the comment of the reference table that `name`.csv becomes."""
    meaning = REFERENCE_TABLES.get(name, f"Reference table, from {name}.csv. One row per source")
    return comment_of("reference", meaning)
