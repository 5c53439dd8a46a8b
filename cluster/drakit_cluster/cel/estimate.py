"""The worst case of an expression, in steps. The API server refuses a new selector above a limit, because loops in loops could take hours.

Kubernetes estimates costs by the types and sizes of all arguments. Here each part of an expression is a step, and a loop repeats its parts for
every element, so an expression near the limit may be judged differently.
"""

from typing import Final

from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Expr, Literal

_MOST: Final = 2**64 - 1
_DEVICE_MAX: Final = 64
"""The most elements or characters of a part of a device: the bytes of an attribute."""


def worst_case(root: Expr) -> int:
    """Return the most steps that the expression can take."""
    return min(_steps(root, {}), _MOST)


def _steps(expr: Expr, counts: dict[str, int]) -> int:
    """Return the steps of a node. ``counts`` are the elements of the values that variables of `cel.bind` hold."""
    if not isinstance(expr, tree.Comprehension):
        return (not isinstance(expr, Literal)) + sum(_steps(child, counts) for child in tree.children(expr))
    inner = {**counts, expr.first: _DEVICE_MAX, expr.accu: _count(expr.init, counts)}
    once = _steps(expr.condition, inner) + _steps(expr.step, inner)
    return _steps(expr.range, counts) + _steps(expr.init, counts) + _steps(expr.result, inner) + _count(expr.range, counts) * once


def _count(expr: Expr, counts: dict[str, int]) -> int:  # noqa: PLR0911 - one return a kind
    """Return the most elements of a value."""
    match expr:
        case tree.ListExpr(elements=elements) | tree.MapExpr(keys=elements):
            return len(elements)
        case Literal(value=str() | bytes() as value):
            return len(value)
        case tree.Ident(name=name):
            return counts.get(name, _DEVICE_MAX)
        case tree.Comprehension():
            return _count(expr.result, {**counts, expr.accu: _count(expr.init, counts)}) if expr.is_bind else _count(expr.range, counts)
        case tree.Call(function="_+_", args=args):
            return sum(_count(arg, counts) for arg in args)
        case tree.Call(function="_?_:_", args=(_, chosen, otherwise)):
            return max(_count(chosen, counts), _count(otherwise, counts))
        case tree.Call(function="range", args=(length,)):
            return length.value if isinstance(length, Literal) and isinstance(length.value, int) else _MOST
        case tree.Call(target=tree.Expr() as target):
            return max(_DEVICE_MAX, _count(target, counts))
    return _DEVICE_MAX
