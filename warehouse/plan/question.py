"""The question of a plan: a training run, its limits and its terms, read from options."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, TypeVar

from estimators import registry
from estimators.batch_rule import batches_in_range, default_batch
from estimators.catalog import NAMED_CLUSTER
from estimators.contract import PUBLISHED, RefusedError, Scalar, variant_name
from estimators.critical_batch import CriticalBatch, fitted
from estimators.names import folded
from warehouse.ask.defaults import CUSTOM_MODEL, sold_domain, with_model_hint
from warehouse.ask.plausible import check_terms
from warehouse.ask.terms import Term, carbons, share_and_pue, term
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_read
from warehouse.database.new_file import in_memory
from warehouse.errors import UsageError, require_capability
from warehouse.evaluate.one import read_pairs, read_values, resolve_problem
from warehouse.evaluate.profiles import NO_PROFILES, Profiles, with_profiles
from warehouse.launch.read import with_launch
from warehouse.limits import FIT_PROBABILITY
from warehouse.options import MAX_GPUS
from warehouse.studies.definitions import Definitions, known_definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.contract import Catalog, Mends, Record
    from estimators.estimator import Estimator
    from warehouse.launch.read import LaunchFile
    from warehouse.options import PlanOptions

ALL = "all"
"""Stands for every accelerator that the estimator knows as a product."""

_ONE_QUESTION = "give it once: this answers one question, and `warehouse plan` several"

Value = TypeVar("Value")

BASES = ("on_demand", "one_year", "three_year", "owned")
"""Bases of a price; the first is the default."""

_OPTION_OF = {
    "num_gpus": "--gpus",
    "global_batch_size": "--batch",
    "num_microbatches": "--batch",
}
"""Columns that an option sets, with the option."""

_IN_TOKENS = "tokens, such as 30M, not sequences"
"""Hint of a critical batch that is too small."""

_INPUT_OPTIONS = (
    *("model", "accelerator", "seq_len", "framework", "precision", "nvlink_size", "profile"),
)
"""Columns of the problem that an option of the same name or a pair gives."""


@dataclass(frozen=True)
class RunLimits:
    """Limits of a run; None: no limit."""

    budget_usd: float | None = None
    days: float | None = None
    max_mw: float | None = None

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return bool(self.by_option)

    @property
    def by_option(self) -> dict[str, float]:
        """Option -> the limit that it gives."""
        named = {"--days": self.days, "--budget-usd": self.budget_usd, "--max-mw": self.max_mw}
        return {option: limit for option, limit in named.items() if limit is not None}

    @property
    def takes_cheapest(self) -> bool:
        """Whether the cheapest run within the limits is the best one, not the fastest."""
        return self.days is not None


@dataclass(frozen=True)
class PlanRequest:
    """A training run to plan, every value checked.

    The model is a row of table ``model``, or a label for a shape. Without `num_gpus` the limits
    decide; without a `batch` it is the usual one, and the others are those of the usual range.
    `other_batches` are given besides `batch`. Layouts are ranked by macro `layout_order` with the
    least `fit_probability`; with `strict_fit` the best has this chance to fit, or there is no plan.
    Further given columns of the problem are `inputs`, fixed choices and layout columns `held`.
    `defined` has the user's own model and system, `launch` the file that the run is read from.
    """

    estimator: str
    model: str | None
    accelerator: str
    tokens: float
    num_gpus: int | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    inputs: Mapping[str, Scalar] = field(default_factory=dict)
    held: Mapping[str, Scalar] = field(default_factory=dict)
    headroom_bytes: float = 0.0
    fit_probability: float = FIT_PROBABILITY
    strict_fit: bool = False
    batch: int | None = None
    other_batches: Sequence[int] = ()
    max_gpus: int = MAX_GPUS
    defined: Definitions = field(default_factory=Definitions)
    launch: LaunchFile | None = None

    @property
    def compares_batches(self) -> bool:
        """Whether limits may take another batch than the first one."""
        return self.batch is None or bool(self.other_batches)


@dataclass(frozen=True)
class CostTerms:
    """Terms of dollars and energy, as the macros of costs and energy take them, and of tokens.

    A budget is compared with the price on `basis`. `prices` are given dollars of a GPU-hour,
    `pues` given overheads of a site, `kwh_prices` given dollars of a kWh, `carbons` given emissions
    of electricity [kg/kWh]. Of each the first counts in the answer, the others in its tables.
    With a `critical_batch`, a fit or a number of tokens, the tokens of a run depend on its batch.
    """

    basis: str = BASES[0]
    goodput: float | None = None
    prices: Sequence[float] = ()
    pues: Sequence[float] = ()
    kwh_prices: Sequence[float] = ()
    watts: float | None = None
    carbons: Sequence[Term] = ()
    critical_batch: Term | None = None

    @property
    def price(self) -> float | None:
        """The first given price, at which GPU counts are compared; None: published prices."""
        return self.prices[0] if self.prices else None

    @property
    def pue(self) -> float | None:
        """The first given overhead of a site."""
        return self.pues[0] if self.pues else None

    @property
    def usd_per_kwh(self) -> float | None:
        """The first given price of electricity."""
        return self.kwh_prices[0] if self.kwh_prices else None

    @property
    def sites(self) -> list[tuple[float | None, float | None]]:
        """Each overhead of a site with each price of a kWh; None: the published one."""
        return [*product(self.pues or (None,), self.kwh_prices or (None,))]

    @property
    def has_sites(self) -> bool:
        """Whether several overheads or prices of a kWh are given."""
        return len(self.sites) > 1

    @property
    def price_basis(self) -> str:
        """The basis of the price of the answer: `given`, or that of published prices."""
        return "given" if self.prices else self.basis


@dataclass(frozen=True)
class TrainingRun:
    """A request with its model, system and batch resolved to numbers.

    `problem` has the values for one GPU and one sequence. The request's tokens are those at the
    `usual_batch`; a `critical_batch` says how many others take. Active parameters are those of the
    layers that one token passes through. The catalog has the stored profiles.
    """

    request: PlanRequest
    terms: CostTerms
    estimator: Estimator
    mends: Mends
    problem: Mapping[str, Scalar]
    batch: int
    other_batches: Sequence[int]
    is_default_batch: bool
    parameters: float
    active_parameters: float
    catalog: Catalog
    usual_batch: int
    critical_batch: CriticalBatch | None = None
    asked_batch: int | None = None

    @property
    def tokens(self) -> float:
        """Tokens of the run at its batch.

        A GPU count that takes the batch next to the asked one has the tokens of the asked one, so
        that a larger count only adds candidates.
        """
        return self.tokens_at(self.asked_batch or self.batch)

    def tokens_at(self, batch: int) -> float:
        """Return the tokens of the run at another batch, to the same loss."""
        if self.critical_batch is None:
            return self.request.tokens
        seq_len = int(self.problem["seq_len"] or 1)
        return self.critical_batch.needed(
            self.request.tokens, batch * seq_len, self.usual_batch * seq_len
        )

    @property
    def variant(self) -> str:
        """Name of the mends in the views."""
        return variant_name(self.mends, self.estimator.mends)

    @property
    def model(self) -> str:
        """Name of the model for people."""
        return str(self.problem["model"] or CUSTOM_MODEL)

    @property
    def assumed(self) -> dict[str, Scalar]:
        """Assumed attributes of the model and of a named cluster: without a source, not given."""
        model = self.catalog.known("model", str(self.problem.get("model"))) or {}
        cluster = self.cluster or {}
        return {
            name: self.problem[name]
            for row in (model, cluster)
            for name in str(row.get("assumed") or "").split(";")
            if self.problem.get(name) is not None and name not in self.request.inputs
        }

    @property
    def cluster(self) -> Record | None:
        """The row of table `named_cluster` of the plan's accelerator; None if it is not one."""
        name = str(self.problem["accelerator"])
        return self.catalog.tables.get(NAMED_CLUSTER, {}).get(name)

    @property
    def goodput(self) -> float:
        """Share of the time that makes progress."""
        return 1.0 if self.terms.goodput is None else self.terms.goodput

    @property
    def least_seconds_of_one_gpu(self) -> float:
        """Lower bound: seconds of the run on one GPU at its peak rate; 0 if no bound is known.

        Six FLOPs a token and active parameter (arXiv 2001.08361, section 2.1).
        """
        peak = float(self.problem.get("matrix_flops_per_second") or 0)
        if not peak or math.isnan(self.active_parameters):
            return 0.0
        tokens = min(map(self.tokens_at, (self.batch, *self.other_batches)))
        return 6 * self.active_parameters * tokens / peak / self.goodput


def read_request(options: PlanOptions, database: Path) -> PlanRequest:
    """Return the request that the options make.

    The database may be missing. It is read only for a model or a system that the reference tables
    do not have.
    """
    estimator = registry.get(options.estimator)
    options, launch, of_file = _from_launch(options, estimator)
    _refuse_wrong_use(options)
    require_capability(
        estimator,
        "can_plan",
        "cannot plan a run: it does not search the layouts of a step on a number of GPUs",
    )
    values = of_file | _values(estimator, options)
    model, accelerator = (
        None if name not in values else str(values.pop(name)) for name in ("model", "accelerator")
    )
    if accelerator is None:
        raise UsageError("no accelerator is given", "give --accelerator, such as H100")
    if is_all(accelerator):
        raise UsageError("`--accelerator` all asks a question for each accelerator", _ONE_QUESTION)
    layout = (*estimator.relations[0].keys, *estimator.choice_columns)
    held = {name: values.pop(name) for name in layout if name in values}
    defined = known_definitions(database, (model, accelerator), options.catalog)
    if "nvlink_size" not in values and "nvlink_size" in estimator.problem_columns:
        catalog = defined.added_to(packaged_catalog())
        values |= sold_domain(estimator, accelerator, catalog)
    return PlanRequest(
        estimator.name,
        model,
        accelerator,
        _only("--tokens", options.tokens),
        None if options.num_gpus is None else _only("--gpus", options.num_gpus),
        RunLimits(options.budget_usd, options.days, options.max_mw),
        values,
        held,
        1e9 * options.headroom_gb,
        options.fit_probability,
        options.strict_fit,
        *_batches(options),
        options.max_gpus,
        defined,
        launch,
    )


def _from_launch(
    options: PlanOptions, estimator: Estimator
) -> tuple[PlanOptions, LaunchFile | None, dict[str, Scalar]]:
    """Return the options with GPUs and batch of a launch file, the file, and its other inputs.

    The layout is what a plan searches: of the file only unfused attention is kept.
    """
    if options.launch is None:
        return options, None, {}
    relation = estimator.relations[0]
    given = read_pairs(estimator, relation, options.pairs)
    named = {name: getattr(options, name) for name in _INPUT_OPTIONS}
    given |= {name: str(value) for name, value in named.items() if value is not None}
    counted = {"num_gpus": options.num_gpus, "global_batch_size": options.global_batch_size}
    limits = (options.budget_usd, options.days, options.max_mw)
    given |= {name: str(some[0]) for name, some in counted.items() if some}
    if any(limit is not None for limit in limits):
        given.setdefault("num_gpus", "1")  # the limits decide
    texts, launch = with_launch(options.launch, given, estimator, relation)
    if "num_gpus" not in given and "num_gpus" in texts:
        options = replace(options, num_gpus=[int(texts["num_gpus"])])
    if "global_batch_size" not in given and "global_batch_size" in texts:
        options = replace(options, global_batch_size=[int(texts["global_batch_size"])])
    layout = {*relation.keys, *estimator.choice_columns, *counted, "num_microbatches"}
    layout -= {"attention"} if texts.get("attention") not in (None, "flash") else set()
    others = {n: text for n, text in texts.items() if n not in layout and n not in given}
    return options, launch, read_values(relation, others)


def is_all(name: str | None) -> bool:
    """Return whether a name stands for all accelerators."""
    return name is not None and folded(name) == ALL


def _only(option: str, values: Sequence[Value]) -> Value:
    """Return the value of an option that makes a question for each of its values."""
    if len({*values}) > 1:
        listed = ", ".join(map(str, values))
        raise UsageError(f"`{option}` is given several times: {listed}", _ONE_QUESTION)
    return values[0]


def _batches(options: PlanOptions) -> tuple[int | None, Sequence[int]]:
    """Return the first batch that is given, and the others."""
    given = [*dict.fromkeys(options.global_batch_size or ())]
    return next(iter(given), None), given[1:]


def _basis(text: str | None) -> str | None:
    return next((name for name in BASES if folded(name) == folded(text or "")), None)


def _refuse_wrong_use(options: PlanOptions) -> None:
    has_limit = any(limit is not None for limit in (options.budget_usd, options.days))
    has_limit = has_limit or options.max_mw is not None
    if options.num_gpus is not None and has_limit:
        raise UsageError(
            "`--gpus` and a limit exclude one another",
            "leave --gpus out: the limits decide on the GPU count",
        )
    if options.num_gpus is not None and options.max_gpus != MAX_GPUS:
        raise UsageError(
            "`--gpus` and `--max-gpus` exclude one another",
            "--max-gpus is for limits: leave it out",
        )
    if options.num_gpus is None and not has_limit:
        raise UsageError(
            "neither a GPU count nor a limit is given",
            "give --gpus, or one or several of --budget-usd, --days and --max-mw",
        )
    if options.basis is not None and _basis(options.basis) is None:
        raise UsageError(f"`--basis` {options.basis} is not known", f"use {', '.join(BASES)}")
    if options.basis is not None and options.price:
        raise UsageError("`--basis` and `--price` exclude one another", "use one of them")
    if options.budget_usd is not None and len(options.price or ()) > 1:
        raise UsageError(
            "`--budget-usd` is compared with one price, and `--price` is given several times",
            "plan once for each price",
        )


def _values(estimator: Estimator, options: PlanOptions) -> dict[str, Scalar]:
    relation = estimator.relations[0]
    texts = read_pairs(estimator, relation, options.pairs)
    for name, option in _OPTION_OF.items():
        if name in texts:
            raise UsageError(f"`{name}={texts[name]}` is set by an option", f"give {option}")
    for name in _INPUT_OPTIONS:
        value, option = getattr(options, name), "--" + name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, list):
            value = _only(option, value)
        if name not in estimator.problem_columns:
            raise UsageError(
                f"`{option}` {value}: {estimator.name} has no such input", f"leave {option} out"
            )
        if name in texts:
            raise UsageError(
                f"`{option}` {value} and `{name}={texts[name]}` exclude one another",
                "use one of them",
            )
        texts[name] = str(value)
    return read_values(relation, texts)


def read_terms(options: PlanOptions, reference: DuckDBPyConnection) -> CostTerms:
    """Return the terms of cost that the options make; reference tables explain names."""
    kwh_prices = tuple(dict.fromkeys(options.electricity_price or ()))
    check_terms(reference, options.price or (), kwh_prices, options.watts)
    goodput, _ = share_and_pue(reference, options.goodput, None)
    pues = (share_and_pue(reference, None, text)[1] for text in options.pue or ())
    table, critical = "critical_batch", options.critical_batch
    return CostTerms(
        _basis(options.basis) or BASES[0],
        goodput,
        tuple(dict.fromkeys(options.price or ())),
        tuple(dict.fromkeys(pue for pue in pues if pue is not None)),
        kwh_prices,
        options.watts,
        carbons(reference, options.carbon),
        None
        if critical is None
        else term(reference, critical, "critical-batch", table, "$value >= 10000", _IN_TOKENS),
    )


def resolve(
    request: PlanRequest,
    terms: CostTerms | None = None,
    profiles: Callable[[], Profiles] = lambda: NO_PROFILES,
) -> TrainingRun:
    """Return the run of a request: model and accelerator looked up, the batch chosen.

    `profiles` is called only if the request names a profile.
    """
    estimator = registry.get(request.estimator)
    catalog = request.defined.added_to(packaged_catalog())
    catalog = with_profiles(catalog, profiles, estimator)
    mends = frozenset(estimator.mends)
    texts = {
        **({} if request.model is None else {"model": request.model}),
        "accelerator": request.accelerator,
        "num_gpus": "1",
        "global_batch_size": "1",
        **{name: str(value) for name, value in request.inputs.items()},
    }
    try:
        problem = resolve_problem(
            estimator, estimator.relations[0], texts, mends or PUBLISHED, catalog
        )
    except RefusedError as error:
        raise with_model_hint(error, estimator, texts) from None
    parameters, active = estimator.layer_parameters(problem)
    terms, seq_len = terms or CostTerms(), int(problem["seq_len"] or 1)
    batch, others = request.batch, request.other_batches
    critical = _critical_batch(request, terms, catalog)
    if math.isnan(active):
        if batch is None:
            raise UsageError(
                f"no batch is given, and {estimator.name} has no default", "give --batch"
            )
        if critical is not None:
            raise UsageError(
                f"`--critical-batch`: {estimator.name} has no usual batch to compare with",
                "leave it out, and give the tokens of this batch",
            )
        usual = batch
    else:
        usual = default_batch(active, seq_len, request.tokens)
    if batch is None:
        batch, others = usual, batches_in_range(catalog, active, seq_len)
    _refuse_other_units(request.tokens, batch, problem)
    cluster = catalog.tables.get(NAMED_CLUSTER, {}).get(str(problem["accelerator"]), {})
    most = min(request.max_gpus, int(cluster.get("num_gpus") or request.max_gpus))
    return TrainingRun(
        replace(request, max_gpus=most),
        terms,
        estimator,
        mends,
        problem,
        batch,
        [other for other in others if other != batch],
        request.batch is None,
        parameters,
        active,
        catalog,
        usual,
        critical,
    )


def _critical_batch(
    request: PlanRequest, terms: CostTerms, catalog: Catalog
) -> CriticalBatch | None:
    given = terms.critical_batch
    if given is None or given.name is None:
        return None if given is None else CriticalBatch(given.value)
    return fitted(catalog.tables["critical_batch"][given.name], request.tokens)


def _refuse_other_units(tokens: float, batch: int, problem: Mapping[str, Scalar]) -> None:
    """Refuse tokens that only make sense in another unit, such as trillions."""
    of_a_step = batch * int(problem["seq_len"] or 1)
    if tokens < of_a_step:
        raise UsageError(
            f"`--tokens` {tokens:g} is less than the {of_a_step:,} tokens of one step",
            f"write {tokens:g}T for {tokens:g} trillion",
        )


@contextmanager
def reference_tables(database: Path) -> Iterator[DuckDBPyConnection]:
    """Yield a connection to the reference tables and their views.

    They are those of the database, or of the package where there is no database yet.
    """
    if database.exists():
        with open_for_read(database) as connection:
            yield connection
        return
    with in_memory() as connection:
        yield connection
