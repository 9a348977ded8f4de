"""Arguments of methods, read and limited as the options of commands are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

import numpy as np

from estimators.names import did_you_mean, hint_on_word, nearest_columns
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.inputs import input_names
from warehouse.limits import LINE_MARKS, Number, control_character
from warehouse.options import Option, PlanOptions, reader_of

if TYPE_CHECKING:
    from estimators.contract import Scalar
    from estimators.estimator import Estimator

Question = TypeVar("Question")
Method = TypeVar("Method", bound=Callable[..., Any])

_SHORT_NAMES = {
    short.removeprefix("--").replace("-", "_"): name
    for name, hint in get_type_hints(PlanOptions, include_extras=True).items()
    for option in get_args(hint)
    if isinstance(option, Option)
    for short in option.more_names
}
"""Short name of an option -> the argument of methods."""


def plain(value: Any) -> Any:
    """Return numbers, times and arrays of numpy, also in collections, as those of Python.

    Sets become lists, and other values stay as they are. A time without an equal is refused.
    """
    if isinstance(value, dict):
        return {plain(key): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(member) for member in value]
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
    time = exact.item()
    if isinstance(time, int) or exact.astype(value.dtype) != value:
        raise InputError(
            f"{value!r} is no whole number of microseconds, or beyond the times of Python",
            "round it, or give a text and cast it in the query",
        )
    return time


def checked_query(query: str) -> str:
    """Return a query or a name; refuse one that is no text, or has control characters."""
    try:
        query.encode()
    except (AttributeError, UnicodeError):
        raise InputError(f"{ascii(query)[:120]} is not UTF-8 text", "give a str") from None
    if reason := control_character(query, LINE_MARKS):
        raise InputError(f"the query {reason}", "remove it")
    return query


def refuse_control_characters(arguments: Mapping[str, Any]) -> None:
    """Refuse texts with control characters, also in lists, as the program refuses them."""
    for name, value in arguments.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and (reason := control_character(text)):
                raise UsageError(f"`{name}` {text!r} {reason}", "remove it")


def short_names(method: Method) -> Method:
    """Return a method that also takes the short names of options: `gpus` for `num_gpus`."""

    @wraps(method)
    def asked(*args: Any, **keywords: Any) -> Any:
        known = signature(method).parameters
        for name in [*keywords]:
            full = _SHORT_NAMES.get(name)
            if full is None or name in known:
                continue
            if full in keywords:
                raise UsageError(f"`{name}` and `{full}` are the same", "give one of them")
            keywords[full] = keywords.pop(name)
        return method(*args, **keywords)

    return cast("Method", asked)


def question_of(kind: type[Question], arguments: Mapping[str, Any]) -> Question:
    """Return the question that a method's arguments ask, read as the options of a command are."""
    refuse_control_characters(arguments)
    hints = get_type_hints(kind, include_extras=True)
    return kind(
        **{
            name: value_of(hints[name], name, value)
            for name, value in arguments.items()
            if name in hints and value is not None
        }
    )


def value_of(option: Any, name: str, value: Any) -> Any:
    """Return the value of an argument, read as this option; None stays None."""
    return None if value is None else reader_of(option, name)(plain(value))


def count(name: str, value: Any, *, least: int = 1) -> int | None:
    """Return a whole number that is at least `least`; None stays None."""
    return None if value is None else int(Number(name, whole=True, least=least)(plain(value)))


def refuse_unknown(
    method: Callable[..., Any], keywords: Iterable[str], estimator: Estimator | None = None
) -> None:
    """Refuse keywords that are neither arguments of a method nor inputs of an estimator.

    The hint names similar ones: options have other spellings, such as ``--gpus`` for `num_gpus`.
    """
    parameters = signature(method).parameters.values()
    arguments = [p.name for p in parameters if p.kind is not Parameter.VAR_KEYWORD]
    inputs: set[str] = set()
    if estimator is not None:
        relation = estimator.relations[0]
        inputs = {*input_names(estimator, relation), *relation.outputs, *estimator.aliases}
    for keyword in keywords:
        if keyword in inputs or keyword.lower() in inputs:
            continue
        near = did_you_mean(nearest_columns(keyword, arguments))
        raise UsageError(
            f"`{keyword}` is no argument of `{method.__name__}`",
            near or hint_on_word(keyword, sorted(inputs)) or f"known: {', '.join(arguments)}",
        )


def as_pairs(values: Mapping[str, Scalar]) -> list[str]:
    """Return inputs as the commands take them; None is left out."""
    given = {name: plain(value) for name, value in values.items() if value is not None}
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in given.items()
    ]
