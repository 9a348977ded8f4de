"""Predicates on columns, written as text: ``pipeline_parallel == 1 or zero_stage < 2``.

The language is a part of Python: names, numbers, texts, comparisons, `in`, `and`, `or`, `not`,
``+ - * // %``. A name is a column; a flag alone means that it is true. A missing number is 0, and a
missing text equals no other. Both sides of `or` are evaluated, without warnings of a zero divisor.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from estimators.structure import number
from estimators.values import Values

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}

_Evaluate = Callable[[Values], Any]


class Predicate(NamedTuple):
    """A predicate, and the names that it reads in order.

    `holds` takes scalars or arrays by these names, and returns a flag or an array of them.
    """

    names: tuple[str, ...]
    holds: _Evaluate


def compiled(text: str) -> Predicate:
    """Return the predicate that a text describes.

    Raises
    ------
    ValueError
        If the text is not in the language.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"`{text}` is no predicate: {error.msg}") from error
    names = [(node.col_offset, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)]
    holds = _flag(tree)

    def quiet(values: Values) -> Any:
        with np.errstate(all="ignore"):
            return holds(values)

    return Predicate(tuple(dict.fromkeys(name for _, name in sorted(names))), quiet)


def _flag(node: ast.expr) -> _Evaluate:
    """Return the value of an expression that is true or false."""
    match node:
        case ast.BoolOp(op, operands):
            return _folded(type(op), [_flag(operand) for operand in operands])
        case ast.UnaryOp(ast.Not(), operand):
            inner = _flag(operand)
            return lambda values: np.logical_not(inner(values))
        case ast.Compare(left, [ast.In()], [ast.Tuple(choices)]):
            same = [_compared(ast.Eq, left, choice) for choice in choices]
            return _folded(ast.Or, same)
        case ast.Compare(left, [op], [right]) if type(op) in _OPERATORS:
            return _compared(type(op), left, right)
        case ast.Name(name):
            return lambda values: np.equal(values[name], True)
    raise ValueError(f"`{ast.unparse(node)}` is neither a comparison nor a flag")


def _folded(kind: type[ast.AST], operands: list[_Evaluate]) -> _Evaluate:
    operator, (first, *others) = _OPERATORS[kind], operands

    def folded(values: Values) -> Any:
        result = first(values)
        for operand in others:
            result = operator(result, operand(values))
        return result

    return folded


def _compared(kind: type[ast.AST], left: ast.expr, right: ast.expr) -> _Evaluate:
    is_text = isinstance(right, ast.Constant) and isinstance(right.value, str)
    return _applied(kind, *((_text if is_text else _number)(side) for side in (left, right)))


def _applied(kind: type[ast.AST], left: _Evaluate, right: _Evaluate) -> _Evaluate:
    operator = _OPERATORS[kind]
    return lambda values: operator(left(values), right(values))


def _number(node: ast.expr) -> _Evaluate:
    match node:
        case ast.Constant(int() | float() as value):
            return lambda _values: value
        case ast.Name(name):
            return lambda values: _filled(values[name])
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _applied(type(op), _number(left), _number(right))
    raise ValueError(f"`{ast.unparse(node)}` is no number")


def _filled(value: Any) -> Any:
    """Return numbers, 0 where there is none; whole numbers are complete."""
    is_whole = isinstance(value, int) or np.asarray(value).dtype.kind in "iu"
    return value if is_whole else number(value)


def _text(node: ast.expr) -> _Evaluate:
    match node:
        case ast.Constant(str() as value):
            return lambda _values: value
        case ast.Name(name):
            return lambda values: np.asarray(values[name], dtype=object)
    raise ValueError(f"`{ast.unparse(node)}` is no text")
