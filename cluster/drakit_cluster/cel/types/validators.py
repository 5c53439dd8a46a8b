"""The checks of a typed expression beyond types: Kubernetes rejects literals that could never work.

The elements of list and map literals must have one type. Literal durations, timestamps, regular expressions and format strings must be valid.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.functions import formatting, moments, strings
from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Expr
from drakit_cluster.cel.types import checker
from drakit_cluster.cel.types.celtypes import Kind

_Complaint = tuple[int, str]
_FORMATTED: Final = {
    "d": {Kind.INT, Kind.UINT},
    "f": {Kind.DOUBLE, Kind.STRING},
    "e": {Kind.DOUBLE, Kind.STRING},
    "b": {Kind.INT, Kind.UINT, Kind.BOOL},
    "o": {Kind.INT, Kind.UINT},
    "x": {Kind.INT, Kind.UINT, Kind.STRING, Kind.BYTES},
    "X": {Kind.INT, Kind.UINT, Kind.STRING, Kind.BYTES},
}
_UNPRINTABLE: Final = {Kind.ANY, Kind.OPAQUE, Kind.STRUCT}


def validate(source: str, checked: checker.Checked) -> None:
    """Raise CompileError for literals that cannot work."""
    complaints: list[_Complaint] = []
    for node, ancestors in tree.walk(checked.root):
        if isinstance(node, tree.Call):
            complaints += _call(checked, node)
        elif isinstance(node, (tree.ListExpr, tree.MapExpr)) and not _formatted(ancestors):
            complaints += _aggregate(checked, node)
    if complaints:
        raise errors.at_places(source, complaints)


def _formatted(ancestors: tuple[Expr, ...]) -> bool:
    """Return whether the literal is part of a call of `format`, which takes elements of any type."""
    return any(isinstance(node, tree.Call) and node.function == "format" for node in ancestors)


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


def _call(checked: checker.Checked, node: tree.Call) -> Iterator[_Complaint]:
    if node.function in _READERS and node.args:
        argument = node.args[0]
        if isinstance(argument, tree.Literal) and not _valid(node.function, argument.value):
            yield argument.offset, f"invalid {node.function} argument"
    elif node.function == "format" and isinstance(node.target, tree.Literal) and len(node.args) == 1:
        yield from _format(checked, node)


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "duration": moments.duration,
    "timestamp": moments.timestamp,
    "matches": strings.pattern,
}


def _valid(function: str, value: object) -> bool:
    try:
        if isinstance(value, str):
            _READERS[function](value)
    except errors.EvalError:
        return False
    return True


def _format(checked: checker.Checked, node: tree.Call) -> Iterator[_Complaint]:
    target, argument = node.target, node.args[0]
    if not isinstance(target, tree.Literal) or not isinstance(argument, tree.ListExpr):
        return
    try:
        verbs = [piece.verb for piece in formatting.pieces(str(target.value)) if piece.verb]
    except errors.EvalError as error:
        yield target.offset, str(error)
        return
    if len(verbs) > len(argument.elements):
        yield argument.offset, f"index {len(argument.elements)} out of range"
        return
    if len(verbs) < len(argument.elements):
        yield argument.offset, f"too many arguments supplied to string.format (expected {len(verbs)}, got {len(argument.elements)})"
    for verb, element in zip(verbs, argument.elements, strict=False):
        if not _takes(checked, verb, element):
            argument_type = checked.types[element]
            yield element.offset, f"error during formatting: no formatting clause %{verb} for type '{argument_type}'"


def _takes(checked: checker.Checked, verb: str, element: Expr) -> bool:
    argument_type = checked.types[element]
    if argument_type.kind is Kind.DYN:
        return True
    if verb != "s":
        return argument_type.kind in _FORMATTED[verb]
    if isinstance(element, (tree.ListExpr, tree.MapExpr)):
        return all(_takes(checked, verb, child) for child in tree.children(element))
    return argument_type.kind not in _UNPRINTABLE
