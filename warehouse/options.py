"""The options that commands and methods share, each declared once, and the questions made of them.

A command has the fields of a question as options, by `warehouse.cli.groups`; a method of
`warehouse.api` reads its keywords by them. typer is not imported, which methods do not need.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from estimators import registry
from warehouse.limits import FIT_PROBABILITY, Number


@dataclass(frozen=True)
class Option:
    """An option of commands, written as `name` or one of `more_names`; `text` is its help.

    `show_default` is the default in words, or True for its value. `parser` reads a number, and has
    its limits; an option that holds no number has none.
    """

    name: str
    text: str
    more_names: tuple[str, ...] = ()
    metavar: str | None = None
    show_default: bool | str = True
    envvar: str | None = None
    parser: Number | None = None


def number_option(
    name: str,
    text: str,
    *more_names: str,
    metavar: str = "N",
    show_default: bool | str = True,
    envvar: str | None = None,
    **limits: Any,
) -> Option:
    """Return an option that holds a number, as people write it."""
    return Option(name, text, more_names, metavar, show_default, envvar, Number(name, **limits))


def whole_option(name: str, text: str, *more_names: str, show_default: bool | str = True) -> Option:
    """Return an option that holds a whole number of at least 1, which a column can store."""
    number = Number(name, whole=True, least=1, most=2**31 - 1)
    return Option(name, text, more_names, "N", show_default, None, number)


def text_option(name: str, metavar: str, text: str, *, show_default: bool | str = True) -> Option:
    """Return an option that holds a text."""
    return Option(name, text, (), metavar, show_default)


def reader_of(annotation: Any, name: str) -> Callable[[Any], Any]:
    """Return the function that reads values of this annotation; it raises ValueError if it cannot.

    Errors of numbers call the option or argument `name`.
    """
    is_marked = get_origin(annotation) is Annotated
    kind, *marks = get_args(annotation) if is_marked else (annotation,)
    if isinstance(kind, UnionType):
        kind = next(member for member in get_args(kind) if member is not NoneType)
    if get_origin(kind) is list:
        read = reader_of(Annotated[get_args(kind)[0], *marks], name)
        return lambda values: [
            read(value) for value in (values if isinstance(values, list | tuple) else (values,))
        ]
    for mark in marks:
        if isinstance(number := getattr(mark, "parser", None), Number):
            return number.named(name)
    if kind is bool:
        return _flag
    is_choice = isinstance(kind, type) and issubclass(kind, Enum)
    return (lambda value: kind(value.lower())) if is_choice else kind


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):  # the text of an environment variable
        raise ValueError
    return value


def given(question: object) -> dict[str, Any]:
    """Return the values of a question that were given."""
    return {name: value for name, value in vars(question).items() if value is not None}


def arguments_of(options: PlanOptions) -> str:
    """Return the arguments of the command that asks this question, as a shell reads them."""
    words: list[str] = []
    defaults = {field.name: field.default for field in fields(options)}
    hints = get_type_hints(PlanOptions, include_extras=True)
    for name in ("model", *(name for name in hints if name != "model")):
        value, hint = getattr(options, name), hints[name]
        if value is None or value == defaults[name] or name == "pairs":
            continue
        option = next((mark for mark in get_args(hint) if isinstance(mark, Option)), None)
        written = f"--{name}" if option is None else (*option.more_names, option.name)[0]
        for each in value if isinstance(value, list) else [value]:
            words += [written] if each is True else [written, _as_written(each)]
    return shlex.join([*words, *options.pairs])


def _as_written(value: object) -> str:
    """Return a value as people write it: 15T for 15e12."""
    if isinstance(value, float):
        for power, letter in ((1e12, "T"), (1e9, "G")):
            if value >= power and float(f"{value / power:g}") * power == value:
                return f"{value / power:g}{letter}"
        return f"{value:.12g}"
    return str(value)


MAX_GPUS = 16_384
"""Largest GPU count that `plan` tries unless ``--max-gpus`` says otherwise."""

DEFAULT_FIT = ("product_rate_factor", "exposed_communication")
"""Constants that `calibrate` fits unless ``--fit`` names others."""

DEFAULT_PLANNER = registry.default("plan")
"""Estimator of `plan` unless another one is named."""


# ---- the estimator and its constants ----

EstimatorName = Annotated[str | None, text_option("--estimator", "NAME", "Use this estimator.")]
Variant = Annotated[
    str | None,
    text_option(
        "--variant",
        "NAME",
        "published, corrected, or the errata to mend, such as R2,R4.",
        show_default="corrected; published where an estimator has no mends",
    ),
]
Profile = Annotated[
    str | None,
    text_option("--profile", "NAME", "Take constants that are not given from this stored profile."),
]
CatalogFile = Annotated[
    Path | None,
    Option("--catalog", "Define models and systems in this file, as a study does.", metavar="TOML"),
]

LaunchPath = Annotated[
    Path | None,
    Option(
        "--from",
        "Read the run from this launch file: model, layout, batch, precision. What is given "
        "besides counts first.",
        metavar="FILE",
    ),
]

# ---- problems ----

Model = Annotated[str | None, text_option("--model", "NAME", "The model, in any spelling.")]
ModelOrFile = Annotated[
    str | None, text_option("--model", "NAME", "The model, or the path of its config.json.")
]
Accelerator = Annotated[
    str | None, text_option("--accelerator", "NAME", "The accelerator, by any of its names.")
]
NvlinkSize = Annotated[int | None, whole_option("--nvlink-size", "GPUs in one NVLink domain.")]
NumGpus = Annotated[int | None, whole_option("--num-gpus", "GPUs of the run.", "--gpus")]
FitProbability = Annotated[
    float,
    number_option(
        "--fit-probability",
        "Least chance to fit in memory of the best layout, such as 0.99.",
        metavar="SHARE",
        above=0,
        most=0.9999,
    ),
]
NumClusters = Annotated[int | None, whole_option("--num-clusters", "Clusters of the run.")]
GlobalBatchSize = Annotated[
    int | None, whole_option("--global-batch-size", "Sequences of a step.", "--batch")
]
Batches = Annotated[
    list[int] | None,
    whole_option(
        "--global-batch-size",
        "Sequences of a step; repeat it to compare several batches.",
        "--batch",
    ),
]
SequenceLength = Annotated[int | None, whole_option("--seq-len", "Tokens of a sequence.")]
Framework = Annotated[
    str | None,
    text_option(
        "--framework", "NAME", "The program whose choices are assumed: a row of table framework."
    ),
]
StudyName = Annotated[
    str | None,
    text_option("--study", "NAME", "Only this stored study; `warehouse status` lists them."),
]
HardwareVariants = Annotated[
    bool,
    Option("--hardware-variants", "Show accelerators whose rates a study changed as well."),
]
Precision = Annotated[
    str | None,
    text_option(
        "--precision",
        "FORMAT",
        "Number format of the matmuls: bf16, fp16, fp8 or fp4.",
        show_default="bf16, or that of --framework",
    ),
]
Strategy = Annotated[
    str | None,
    text_option("--strategy", "NAME", "The strategy of tensor parallelism, such as tensor_1d."),
]

# ---- terms of a run ----

Tokens = Annotated[
    float | None, number_option("--tokens", "Tokens of the run, such as 15T or 15e12.", above=0)
]
Goodput = Annotated[
    str | None,
    text_option(
        "--goodput",
        "SHARE|NAME",
        "Share of the time that makes progress, or a run of table goodput.",
        show_default="1, or that of a budgeted run",
    ),
]
Prices = Annotated[
    list[float] | None,
    number_option(
        "--price",
        "Price of an hour of one GPU, instead of published ones; repeat it for several prices.",
        metavar="USD",
        above=0,
    ),
]
ElectricityPrice = Annotated[
    float | None, number_option("--electricity-price", "Price of a kWh.", metavar="USD", least=0)
]
ElectricityPrices = Annotated[
    list[float] | None,
    number_option(
        "--electricity-price",
        "Price of a kWh; repeat it for several prices.",
        metavar="USD",
        least=0,
    ),
]
Pue = Annotated[
    str | None,
    text_option("--pue", "RATIO|NAME", "Overhead of the site, or a site of table facility_pue."),
]
Pues = Annotated[
    list[str] | None,
    text_option(
        "--pue",
        "RATIO|NAME",
        "Overhead of the site, or a site of table facility_pue; repeat it for several sites.",
    ),
]
Watts = Annotated[
    float | None,
    number_option(
        "--watts", "Power of one GPU with its server, while training.", metavar="W", above=0
    ),
]
Carbon = Annotated[
    list[str] | None,
    text_option(
        "--carbon",
        "KG|NAME",
        "kg CO2e of a kWh, or a country, a state or another grid of table grid_carbon; repeat it "
        "for several grids.",
        show_default="the grids of published runs",
    ),
]

# ---- questions ----


@dataclass(frozen=True)
class ProblemFilters:
    """Filters: values that a problem must have."""

    model: Model = None
    accelerator: Accelerator = None
    nvlink_size: NvlinkSize = None
    num_gpus: NumGpus = None
    global_batch_size: GlobalBatchSize = None
    strategy: Strategy = None


@dataclass(frozen=True)
class RunOptions:
    """Options of one run, as `plan` has them; KEY=VALUE gives the same."""

    model: Model = None
    accelerator: Accelerator = None
    num_gpus: NumGpus = None
    global_batch_size: GlobalBatchSize = None
    seq_len: SequenceLength = None
    framework: Framework = None
    precision: Precision = None
    nvlink_size: NvlinkSize = None

    def pairs(self) -> list[str]:
        """Return the inputs that were given as KEY=VALUE."""
        values = {field.name: getattr(self, field.name) for field in fields(RunOptions)}
        return [f"{name}={value}" for name, value in values.items() if value is not None]


@dataclass(frozen=True)
class ConfigurationOptions(RunOptions):
    """Options of one configuration: those of a run, its length, and what is read for it."""

    model: ModelOrFile = None
    tokens: Tokens = None
    profile: Profile = None
    catalog: CatalogFile = None
    launch: LaunchPath = None


@dataclass(frozen=True)
class SpeedOptions:
    """The measured speed of one run, in one of these units."""

    seconds: Annotated[
        float | None,
        number_option("--seconds", "Measured seconds of a step.", metavar="S", above=0),
    ] = None
    tokens_per_second: Annotated[
        float | None,
        number_option("--tokens-per-second", "Measured tokens a second of all GPUs.", above=0),
    ] = None
    tokens_per_second_per_gpu: Annotated[
        float | None,
        number_option(
            "--tokens-per-second-per-gpu", "Measured tokens a second of one GPU.", above=0
        ),
    ] = None
    tflops: Annotated[
        float | None,
        number_option("--tflops", "Measured model TFLOP/s of one GPU.", above=0),
    ] = None
    mfu: Annotated[
        float | None,
        number_option(
            "--mfu",
            "Measured model FLOPs utilization, such as 0.41.",
            metavar="SHARE",
            above=0,
            most=1,
        ),
    ] = None


@dataclass(frozen=True)
class RankFilters(ProblemFilters):
    """Filters of `rank`."""

    num_clusters: NumClusters = None


@dataclass(frozen=True)
class PowerTerms:
    """Terms for the hours and the energy of a run."""

    goodput: Goodput = None
    electricity_price: ElectricityPrice = None
    pue: Pue = None
    watts: Watts = None


@dataclass(frozen=True)
class RunFilters:
    """Which stored runs are priced."""

    model: Model = None
    accelerator: Accelerator = None
    estimator: EstimatorName = None
    variant: Variant = None
    identity: Annotated[
        int | None,
        number_option("--id", "Only the runs of this cell or problem.", metavar="ID", whole=True),
    ] = None
    num_gpus: NumGpus = None
    seq_len: SequenceLength = None
    tokens: Tokens = None
    study: StudyName = None
    fit_probability: FitProbability = FIT_PROBABILITY


RUN_NAMES = ("estimator", "variant", "model", "accelerator")
"""Names that a run must have, in any spelling."""


@dataclass(frozen=True)
class CostOptions(PowerTerms, RunFilters):
    """The question of `cost` and `energy`; variant "all" compares every variant."""

    @property
    def filters(self) -> dict[str, str]:
        """Return the names that a run must have."""
        values = {name: getattr(self, name) for name in RUN_NAMES}
        if self.variant == "all":
            del values["variant"]
        return {name: value for name, value in values.items() if value is not None}

    @property
    def is_default_variant(self) -> bool:
        """Return whether only the default variant of each estimator counts."""
        return self.variant is None and self.identity is None


@dataclass(frozen=True)
class PlanOptions:
    """The question of `plan` and `report`.

    Several tokens, accelerators or GPU counts make several questions (`warehouse.plan.several`).
    `pairs` are texts such as ``num_layers=80``: a shape, attributes of the system, layout columns.
    """

    tokens: Annotated[
        list[float],
        number_option(
            "--tokens",
            "Tokens of the run, such as 15T or 15e12; repeat it for several runs.",
            above=0,
        ),
    ]
    model: ModelOrFile = None
    accelerator: Annotated[
        list[str] | None,
        text_option(
            "--accelerator",
            "NAME",
            "The accelerator or cluster, such as H100 or p5; repeat it to compare, or give all.",
        ),
    ] = None
    num_gpus: Annotated[
        list[int] | None,
        whole_option("--num-gpus", "GPUs of the run; repeat it for several counts.", "--gpus"),
    ] = None
    global_batch_size: Batches = None
    seq_len: SequenceLength = None
    framework: Framework = None
    precision: Precision = None
    nvlink_size: NvlinkSize = None
    profile: Profile = None
    catalog: CatalogFile = None
    launch: LaunchPath = None
    headroom_gb: Annotated[
        float,
        number_option(
            "--headroom-gb", "Memory that a layout must leave free.", metavar="GB", least=0
        ),
    ] = 0.0
    fit_probability: FitProbability = FIT_PROBABILITY
    strict_fit: Annotated[
        bool,
        Option("--strict-fit", "Fail if no layout is likely to fit, instead of the likeliest."),
    ] = False
    budget_usd: Annotated[
        float | None,
        number_option(
            "--budget-usd", "Limit in dollars, instead of a GPU count.", metavar="USD", above=0
        ),
    ] = None
    days: Annotated[
        float | None,
        number_option(
            "--days",
            "Limit in days of the median, steady run, instead of a GPU count.",
            metavar="DAYS",
            above=0,
        ),
    ] = None
    max_mw: Annotated[
        float | None,
        number_option(
            "--max-mw", "Limit in megawatts, instead of a GPU count.", metavar="MW", above=0
        ),
    ] = None
    max_gpus: Annotated[
        int, whole_option("--max-gpus", "Largest GPU count to try within the limits.")
    ] = MAX_GPUS
    goodput: Goodput = None
    electricity_price: ElectricityPrices = None
    pue: Pues = None
    watts: Watts = None
    critical_batch: Annotated[
        str | None,
        text_option(
            "--critical-batch",
            "NAME|TOKENS",
            "Count the further tokens that a larger batch needs: a fit of table critical_batch, "
            "or the batch in tokens that needs twice the least tokens.",
            show_default="every batch needs the tokens that were asked for",
        ),
    ] = None
    price: Prices = None
    basis: Annotated[
        str | None,
        text_option(
            "--basis",
            "NAME",
            "Published price to compare a budget with: on_demand, one_year, three_year or owned.",
            show_default="on_demand",
        ),
    ] = None
    carbon: Carbon = None
    estimator: str = DEFAULT_PLANNER
    pairs: Sequence[str] = ()
