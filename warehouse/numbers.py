"""Numbers as people write them, and their limits."""

from __future__ import annotations

from copy import copy

_EMPTY = '""'
"""An empty text as errors show it."""


_LEAST_ABOVE_ZERO = 1e-30
"""Least number above zero: products of smaller ones would be zero."""


class Number:
    """Reader of a number: ``15e12``, ``15T``, ``1.5B``, ``2M``, ``8k``, ``1_000`` or ``1,000``.

    k, M, B (or G) and T are powers of ten: a thousand, a million, a billion, a trillion.

    Parameters
    ----------
    option
        The option or argument, as errors name it.
    above, least, most
        Limits of the value: ``above`` is exclusive, the others are inclusive.
    whole
        Whether the number must be whole.
    is_usage
        Whether a number outside the limits is wrong usage; by default if it must be whole.
    """

    def __init__(
        self,
        option: str,
        *,
        above: float | None = None,
        least: float | None = None,
        most: float = 1e30,
        whole: bool = False,
        is_usage: bool | None = None,
    ) -> None:
        self.option = option
        self.above, self.least, self.most = above, least, most
        self.whole = whole
        self.is_usage = whole if is_usage is None else is_usage
        self.__name__ = "number"  # typer asks a parser for it

    def named(self, option: str) -> Number:
        """Return the same reader for an option of another name."""
        number = copy(self)
        number.option = option
        return number

    def __call__(self, given: str | float) -> float:
        """Return the number in a text.

        Raises
        ------
        UsageError
            If the text is not a number, or not a whole number where one is needed.
        InputError
            If the number is outside the limits, infinite or not a number, unless `is_usage`.
        """
        from warehouse.errors import InputError, UsageError
        from warehouse.limits import read_number, without_unit

        text = str(given).strip()
        number = read_number(text)
        hint = "write it as 64, 1_000 or 4k" if self.whole else "write it as 15e12, 15T or 1_000"
        if number is None:
            plain = without_unit(text)
            hint = f"write {plain}, without a unit" if plain else hint
            raise UsageError(f"`{self.option}` {text or _EMPTY} is not a number", hint)
        if self.whole and number == number and not float(number).is_integer():
            raise UsageError(f"`{self.option}` {text} is not a whole number", hint)
        limit = self._broken_limit(number)
        if limit:
            refused = UsageError if self.is_usage else InputError
            raise refused(f"`{self.option}` {text} must be {limit}")
        return int(number) if self.whole else float(number)

    def _broken_limit(self, number: float) -> str:
        """Return the limit that the number breaks, in words; NaN breaks the first."""
        if self.above is not None and not number > self.above:
            return f"above {self.above:g}"
        if self.above == 0 and number < _LEAST_ABOVE_ZERO:
            return f"at least {_LEAST_ABOVE_ZERO:g}"
        if self.least is not None and not number >= self.least:
            return f"at least {self.least:g}"
        return "" if number <= self.most else f"at most {self.most:g}"
