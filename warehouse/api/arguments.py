"""Arguments of methods, read and limited as the options of commands are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.names import did_you_mean, nearest_columns
from warehouse.ask.cost import CostOptions
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.inputs import input_names
from warehouse.limits import LINE_MARKS, Number, control_character

if TYPE_CHECKING:
    from estimators.contract import Estimator, Scalar

_COUNTS = frozenset(
    {"nvlink_size", "num_gpus", "num_clusters", "global_batch_size", "seq_len", "max_gpus", "top"}
)
"""Arguments that are whole numbers of at least 1."""

_COUNTS_FROM_ZERO = frozenset({"limit"})

_ABOVE_ZERO = frozenset({"tokens", "days", "budget_usd", "max_mw", "price", "watts"})
_AT_LEAST_ZERO = frozenset({"headroom_gb", "electricity_price"})


def plain(value: Any) -> Any:
    """Return numbers, times and arrays of numpy, also in collections, as those of Python.

    Sets become lists, and other values stay as they are.

    Raises
    ------
    InputError
        If Python has no equal value for a time.
    """
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        is_time = value.dtype.kind in "mM" and value.ndim
        return plain([*value] if is_time else value[()] if not value.ndim else value.tolist())
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _plain_time(value)
    return value.tolist() if isinstance(value, np.number | np.bool_) else value


def _plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """Return a time of numpy as a date, a datetime or a timedelta; NaT is None."""
    if np.isnat(value):
        return None
    kind, unit = value.dtype.kind, np.datetime_data(value.dtype)[0]
    if kind == "m" and unit in ("Y", "M", "generic"):
        raise InputError(f"{value!r} has no fixed length", "give a datetime.timedelta")
    target = f"{kind}8[{'D' if kind == 'M' and unit in 'YMWD' else 'us'}]"
    exact = value.astype(target)
    found = exact.item()
    if isinstance(found, int) or exact.astype(value.dtype) != value:
        raise InputError(
            f"{value!r} is no whole number of microseconds, or beyond the times of Python",
            "round it, or give a text and cast it in the query",
        )
    return found


def checked_query(query: str) -> str:
    """Return a query or a name.

    Raises
    ------
    InputError
        If it is no text, not UTF-8, or has control characters.
    """
    try:
        query.encode()
    except (AttributeError, UnicodeError):
        raise InputError(f"{ascii(query)[:120]} is not UTF-8 text", "give a str") from None
    if reason := control_character(query, LINE_MARKS):
        raise InputError(f"the query {reason}", "remove it")
    return query


def refuse_unused(
    query: str, tables: Iterable[str], values: Iterable[str], known: Set[str]
) -> None:
    """Refuse parameters of a query that do not occur in it.

    Parameters
    ----------
    tables, values
        Names of the parameters that are tables, and of the others.
    known
        Names after ``$`` in the query.

    Raises
    ------
    UsageError
        If there is one. Case makes no difference.
    """
    named = {name.lower() for name in known}
    for name in values:
        if name.lower() not in named:
            raise UsageError(
                f"the query has no `${name}`", "write it in the query, or leave it out"
            )
    for name in tables:
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", query, re.IGNORECASE):
            raise UsageError(
                f"the query has no table `{name}`", f"read it with `from {name}`, or leave it out"
            )


def refuse_control_characters(arguments: Mapping[str, Any]) -> None:
    """Refuse texts with control characters, as the program refuses them in its arguments.

    Raises
    ------
    UsageError
        If an argument is such a text, or a list that has one.
    """
    for name, value in arguments.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and (reason := control_character(text)):
                raise UsageError(f"`{name}` {text!r} {reason}", "remove it")


def given_values(**values: Any) -> dict[str, Any]:
    """Return the values that are given, numbers within the limits of their arguments."""
    return {name: checked_value(name, value) for name, value in values.items() if value is not None}


def checked_value(name: str, value: Any) -> Any:
    """Return a value; a number must be within the limits of its argument.

    Raises
    ------
    UsageError, InputError
        As `warehouse.limits.Number` for the option of the command.
    """
    if name in _COUNTS:
        return Number(name, whole=True, least=1)(value)
    if name in _COUNTS_FROM_ZERO:
        return Number(name, whole=True, least=0)(value)
    if name in _ABOVE_ZERO:
        return Number(name, above=0)(value)
    if name in _AT_LEAST_ZERO:
        return Number(name, least=0)(value)
    return plain(value)


def refuse_unknown(
    method: Callable[..., Any], keywords: Iterable[str], estimator: Estimator | None = None
) -> None:
    """Refuse keywords that are neither arguments of a method nor inputs of an estimator.

    Options have other spellings on the command line, such as ``--gpus`` for `num_gpus`.

    Parameters
    ----------
    method
        The method that was called.
    keywords
        Its keywords that name no argument.
    estimator
        The estimator whose inputs are keywords as well.

    Raises
    ------
    UsageError
        If there is one; the hint names the arguments and inputs that it may mean.
    """
    parameters = signature(method).parameters.values()
    arguments = [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD]
    inputs: set[str] = set()
    if estimator is not None:
        relation = estimator.relations[0]
        inputs = {*input_names(estimator, relation), *relation.outputs, *estimator.aliases}
    for keyword in keywords:
        if keyword in inputs or keyword.lower() in inputs:
            continue
        near = nearest_columns(keyword, arguments) or nearest_columns(keyword, sorted(inputs))
        raise UsageError(
            f"`{keyword}` is no argument of `{method.__name__}`",
            did_you_mean(near) or f"known: {', '.join(arguments)}",
        )


def several(values: Any) -> Sequence[Any]:
    """Return one value or several as a sequence; None gives an empty one."""
    if values is None:
        return ()
    values = plain(values)
    return values if isinstance(values, list | tuple) else (values,)


def as_text(value: float | str | None) -> str | None:
    """Return a number or name as the commands take it."""
    return None if value is None else str(value)


def as_pairs(values: Mapping[str, Scalar]) -> list[str]:
    """Return inputs as the commands take them; None is left out."""
    given = {name: plain(value) for name, value in values.items() if value is not None}
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in given.items()
    ]


def cost_options(
    goodput: float | str | None, pue: float | str | None, **values: Any
) -> CostOptions:
    """Return the options of `cost` and `energy` that are given."""
    return CostOptions(**given_values(**values), goodput=as_text(goodput), pue=as_text(pue))
