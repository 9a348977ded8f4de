"""`why` and `explain` from a user's texts: reads names and values, returns the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import RefusedError
from warehouse.ask.defaults import with_model_hint
from warehouse.ask.explain import explain, require_formulas
from warehouse.ask.fastest_stored import best_configuration, differing_columns
from warehouse.ask.rank import PROBLEM_NAMES, QUESTION
from warehouse.ask.why import completed, diagnose, require_layouts
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_read
from warehouse.evaluate.one import read_pairs, show_configuration
from warehouse.evaluate.profiles import profiled_catalog
from warehouse.studies.known import known_definitions, stored_shape
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from estimators.contract import Estimator
    from warehouse.ask.explain import Explanation
    from warehouse.ask.why import Diagnosis, LayoutQuery
    from warehouse.evaluate.space import OnEvaluated
    from warehouse.studies.definitions import Definitions


def asked_why(
    database: Path,
    pairs: Sequence[str],
    *,
    estimator: str | None = None,
    variant: str | None = None,
    mend: str | None = None,
    tokens: float | None = None,
    profile: str | None = None,
    catalog: Path | None = None,
    on_evaluated: OnEvaluated | None = None,
) -> tuple[LayoutQuery, Diagnosis]:
    """Return the layout that texts describe, completed, and its diagnosis.

    Parameters
    ----------
    database
        The file with the stored profiles; it may be missing.
    pairs
        Texts such as ``num_gpus=64``.
    estimator
        Its name; None: the default of `why`.
    variant, mend
        Which errata to mend; by default all.
    tokens
        Tokens of the run, for the default batch.
    profile
        The stored profile of a layout that names none.
    catalog
        A TOML file of models and systems.
    on_evaluated
        Called with the number of evaluated layouts, and of all.
    """
    chosen = registry.get(estimator or registry.default("why"))
    require_layouts(chosen)
    given = read_pairs(chosen, chosen.relations[0], pairs)
    mends = mends_of_options(chosen, variant, mend)
    given, study = _with_stored_shape(database, chosen, given, catalog)
    known = profiled_catalog(database, chosen, profile, _defined(database, given, catalog))
    query = replace(completed(chosen, given, mends, known, tokens), shape_from=study)
    try:
        return query, diagnose(chosen, query.given, mends, known, on_evaluated)
    except RefusedError as error:
        raise with_model_hint(error, chosen, given) from None


def asked_explanation(
    database: Path,
    pairs: Sequence[str],
    *,
    best: bool = False,
    estimator: str | None = None,
    variant: str | None = None,
    mend: str | None = None,
    profile: str | None = None,
    catalog: Path | None = None,
) -> Explanation:
    """Return the explanation of the step that texts describe.

    Parameters
    ----------
    database, pairs, estimator, variant, mend, profile, catalog
        As `asked_why` takes them; the default is that of `explain`.
    best
        Take the fastest stored layout that has the given values.
    """
    chosen = registry.get(estimator or registry.default("explain"))
    require_formulas(chosen)
    relation = chosen.relations[0]
    given = read_pairs(chosen, relation, pairs)
    mends = mends_of_options(chosen, variant, mend)
    if profile is not None:
        given.setdefault("profile", profile)
    if not best:
        given, _ = _with_stored_shape(database, chosen, given, catalog)
    configuration: Mapping[str, str] = given
    differing: tuple[str, ...] = ()
    if best:
        with open_for_read(database) as connection:
            configuration = best_configuration(connection, chosen, given)
            names = (*PROBLEM_NAMES, *QUESTION)
            differing = differing_columns(connection, chosen, given, names)
    known = profiled_catalog(database, chosen, profile, _defined(database, configuration, catalog))
    # stored constants that equal the defaults are defaults: only what the user gives is certain
    shown = show_configuration(chosen, relation, configuration, mends, known, given)
    return replace(explain(shown, known, given), differing=differing)


def _with_stored_shape(
    database: Path, estimator: Estimator, given: dict[str, str], catalog: Path | None
) -> tuple[dict[str, str], str]:
    """Return inputs with the shape that a stored study gave their model, and the study.

    Only a name that no table and no catalog file has is looked up. Values of the user take
    precedence.
    """
    model = given.get("model")
    if model is None or all(name in given for name in estimator.needed_shape):
        return given, ""
    if model in _defined(database, given, catalog).models:
        return given, ""
    attributes = {name for row in packaged_catalog().tables["model"].values() for name in row}
    columns = ({*attributes, *estimator.needed_shape} & COLUMNS.keys()) - {"model"}
    shape, study = stored_shape(database, model, sorted(columns))
    return {**shape, **given}, study


def _defined(
    database: Path, configuration: Mapping[str, object], catalog: Path | None
) -> Definitions:
    """Return the user's own model and system of a configuration."""
    names = (configuration.get("model"), configuration.get("accelerator"))
    return known_definitions(database, names, catalog)
