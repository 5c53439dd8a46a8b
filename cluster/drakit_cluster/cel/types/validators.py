"""The checks of a typed expression beyond types: Kubernetes rejects literals that could never work.

The elements of list and map literals must have one type. Literal durations and regular expressions must be valid.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.functions import durations, strings
from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Expr
from drakit_cluster.cel.types import checker

_Complaint = tuple[int, str]


def validate(source: str, checked: checker.Checked) -> None:
    """Raise CompileError for literals that cannot work."""
    complaints: list[_Complaint] = []
    for node in tree.walk(checked.root):
        if isinstance(node, tree.Call):
            complaints += _call(node)
        elif isinstance(node, (tree.ListExpr, tree.MapExpr)):
            complaints += _aggregate(checked, node)
    if complaints:
        raise errors.at_places(source, complaints)


def _aggregate(checked: checker.Checked, node: tree.ListExpr | tree.MapExpr) -> Iterator[_Complaint]:
    if isinstance(node, tree.MapExpr):
        yield from _alike(checked, node.keys, frozenset())
    yield from _alike(checked, node.values if isinstance(node, tree.MapExpr) else node.elements, node.optional)


def _alike(checked: checker.Checked, elements: Sequence[Expr], optional: frozenset[int]) -> Iterator[_Complaint]:
    types = [checked.types[element] for element in elements]
    plain = [
        (element_type.optional_value or element_type) if position in optional else element_type
        for position, element_type in enumerate(types)
    ]
    odd = next((position for position, element_type in enumerate(plain) if element_type != plain[0]), None)
    if odd is not None:
        yield elements[odd].offset, f"expected type '{plain[0]}' but found '{plain[odd]}'"


def _call(node: tree.Call) -> Iterator[_Complaint]:
    if node.function in _READERS and node.args:
        argument = node.args[0]
        if isinstance(argument, tree.Literal) and not _valid(node.function, argument.value):
            yield argument.offset, f"invalid {node.function} argument"


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "duration": durations.parse,
    "matches": strings.pattern,
}


def _valid(function: str, value: object) -> bool:
    try:
        if isinstance(value, str):
            _READERS[function](value)
    except errors.EvalError:
        return False
    return True
