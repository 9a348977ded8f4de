"""The constants that a calibration fits: by name, within their bounds, some tied together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Catalog
from estimators.interval import place_of
from warehouse.calibrate.fit import MAX_PARAMETERS, Parameter, Steps
from warehouse.errors import InputError
from warehouse.evaluate.profiles import systems
from warehouse.options import DEFAULT_FIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXPOSED = "exposed_communication"
"""Name of one value for all overlap fractions of collectives that may change."""

OVERLAPS = ("tensor_overlap_fraction", "gradient_overlap_fraction", "parameter_overlap_fraction")
"""Constants behind `EXPOSED`: exposed share = 1 - overlap."""


def find_parameters(
    names: Sequence[str], steps: Steps, catalog: Catalog, *, wide: bool
) -> tuple[Parameter, ...]:
    """Return the parameters that are fitted to steps; raise `InputError` if one cannot be.

    Parameters
    ----------
    names
        Constants, `EXPOSED`, or constants joined by + that share one value.
    wide
        Bound them by the limits of their columns instead of the range of table `step_constant`.
    """
    if not names or len(names) > MAX_PARAMETERS:
        hint = "tie some together with +: they then share one value"
        raise InputError(f"`--fit` must name 1 to {MAX_PARAMETERS} constants", hint)
    parameters = []
    overlaps = [name for name in OVERLAPS if name in steps.estimator.constants.names]
    for text in names:
        if text == EXPOSED and overlaps:
            constants = [_constant(name, steps, catalog, wide=wide) for name in overlaps]
            free = [
                each
                for each in constants
                if each.lowest < each.highest and _has_effect(each, steps)
            ]
            if free:
                parameters.append(_tied(text, free))
            elif tuple(names) != DEFAULT_FIT:
                raise InputError(
                    f"`--fit` {EXPOSED}: every overlap is held to one value by its range, or has "
                    "no effect on these rows",
                    "leave it out, or name one with --beyond-range",
                )
            continue
        constants = [_constant(name.strip(), steps, catalog, wide=wide) for name in text.split("+")]
        for constant in constants:
            _refuse_fixed(constant, steps)
        parameters.append(_tied(text, constants))
    for name, count in Counter(name for each in parameters for name in each.places).items():
        if count > 1:
            raise InputError(f"`--fit` names `{name}` twice", "keep it once")
    return tuple(parameters)


def _constant(name: str, steps: Steps, catalog: Catalog, *, wide: bool) -> Parameter:
    """Return a constant as a parameter of its own, from the value that the rows have."""
    table = catalog.tables["step_constant"]
    # flags and counts are not fitted
    known = [
        known
        for known in steps.estimator.constants.names
        if known in COLUMNS and COLUMNS[known].kind == "float" and known in table
    ]
    if name not in known:
        tied = [EXPOSED] if set(OVERLAPS) & set(known) else []
        hint = f"known: {', '.join((*tied, *known))}"
        raise InputError(f"`--fit` {name} is no constant that can be fitted", hint)
    systems_of_rows = dict.fromkeys(systems(steps.values))
    places = dict.fromkeys(
        str(place_of(steps.estimator, catalog, name, system)) for system in systems_of_rows
    )
    if len(places) > 1:
        held = ", ".join(places)
        hint = "take rows of one with --rows accelerator=... or --rows framework=..."
        raise InputError(f"`--fit` {name} has several values among the rows: {held}", hint)
    [place] = places
    record: Mapping[str, Any] = table[place]
    default = float(record["constant_value"])
    given = steps.values[name] != default
    if given.any():
        value = steps.values[name][given][0]
        raise InputError(
            f"`--fit` {name}: the rows give it themselves, as {value:g}",
            "remove the column, or fit another constant",
        )
    lowest, highest = float(record["lowest_value"]), float(record["highest_value"])
    if wide:
        lowest, highest = _limits(name)
    return Parameter(name, {name: place}, {name: default}, lowest, highest)


def _limits(name: str) -> tuple[float, float]:
    column = COLUMNS[name]
    lowest = column.minimum if column.minimum is not None else column.above
    if lowest is None or column.maximum is None:
        raise InputError(
            f"`--beyond-range`: column `{name}` has no limits", "leave --beyond-range out"
        )
    return float(lowest), float(column.maximum)


def _has_effect(constant: Parameter, steps: Steps) -> bool:
    [(name, default)] = constant.defaults.items()
    times = steps.predict({name: np.array((default, constant.lowest, constant.highest))})
    return bool(np.any(np.abs(times - times[0]) > 1e-12 * np.abs(times[0])))


def _refuse_fixed(constant: Parameter, steps: Steps) -> None:
    if constant.lowest == constant.highest:
        raise InputError(
            f"`--fit` {constant.name}: table step_constant admits {constant.lowest:g} only for "
            f"{constant.places[constant.name]}",
            "use --beyond-range to leave it, or fit another constant",
        )
    if not _has_effect(constant, steps):
        raise InputError(
            f"`--fit` {constant.name} has no effect on any of the rows",
            "fit another constant, or take other rows",
        )


def _tied(name: str, constants: Sequence[Parameter]) -> Parameter:
    """Return the parameter of constants that share one value."""
    lowest = max(each.lowest for each in constants)
    highest = min(each.highest for each in constants)
    if lowest >= highest:
        hint = "fit them one by one, or use --beyond-range"
        raise InputError(f"`--fit` {name}: the ranges of the constants do not overlap", hint)
    places = {constant: place for each in constants for constant, place in each.places.items()}
    defaults = {constant: value for each in constants for constant, value in each.defaults.items()}
    return Parameter(name, places, defaults, lowest, highest)
