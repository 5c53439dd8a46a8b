"""What Kubernetes checks in a typed expression beyond types: literals that could never work.

Elements of list and map literals are alike; literal durations, timestamps, regular expressions and format strings are valid.
"""

from collections.abc import Iterator
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.functions import conversions, formatting, regexes
from drakit_cluster.cel.syntax import parsing, syntax
from drakit_cluster.cel.syntax.syntax import Expr
from drakit_cluster.cel.types import celtypes, checker
from drakit_cluster.cel.types.celtypes import Kind, Type

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
    for node, ancestors in syntax.walk(checked.root):
        if isinstance(node, syntax.Call):
            complaints += _call(checked, node)
        elif isinstance(node, (syntax.ListExpr, syntax.MapExpr)) and not _formatted(ancestors):
            complaints += _aggregate(checked, node)
    if complaints:
        shown = sorted(set(complaints))
        raise errors.CompileError("\n".join(parsing.located(source, offset, message) for offset, message in shown))


def _formatted(ancestors: tuple[Expr, ...]) -> bool:
    """Whether the literal is part of a call of `format`, which takes elements of any type."""
    return any(isinstance(node, syntax.Call) and node.function == "format" for node in ancestors)


def _aggregate(checked: checker.Checked, node: syntax.ListExpr | syntax.MapExpr) -> Iterator[_Complaint]:
    if isinstance(node, syntax.ListExpr):
        yield from _alike(checked, [(one, place in node.optional) for place, one in enumerate(node.elements)])
        return
    yield from _alike(checked, [(entry.key, False) for entry in node.entries])
    yield from _alike(checked, [(entry.value, entry.optional) for entry in node.entries])


def _alike(checked: checker.Checked, elements: list[tuple[Expr, bool]]) -> Iterator[_Complaint]:
    first: Type | None = None
    for element, optional in elements:
        found = checked.type_of(element)
        if optional:
            found = celtypes.unwrap_optional(found) or found
        if first is None:
            first = found
        elif found != first:
            yield element.offset, f"expected type '{first}' but found '{found}'"
            return


def _call(checked: checker.Checked, node: syntax.Call) -> Iterator[_Complaint]:
    if node.function in ("duration", "timestamp", "matches") and node.args:
        argument = node.args[0]
        if isinstance(argument, syntax.Literal) and not _valid(node.function, argument.value):
            yield argument.offset, f"invalid {node.function} argument"
    elif node.function == "format" and isinstance(node.target, syntax.Literal) and len(node.args) == 1:
        yield from _format(checked, node)


def _valid(function: str, value: object) -> bool:
    try:
        if function == "matches":
            regexes.pattern(str(value))
        elif function == "duration":
            conversions.to_duration(value)
        else:
            conversions.to_timestamp(value)
    except errors.EvalError:
        return False
    return True


def _format(checked: checker.Checked, node: syntax.Call) -> Iterator[_Complaint]:
    target, argument = node.target, node.args[0]
    if not isinstance(target, syntax.Literal) or not isinstance(argument, syntax.ListExpr):
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
            found = checked.type_of(element)
            yield element.offset, f"error during formatting: no formatting clause %{verb} for type '{found}'"


def _takes(checked: checker.Checked, verb: str, element: Expr) -> bool:
    found = checked.type_of(element)
    if found.kind is Kind.DYN:
        return True
    if verb != "s":
        return found.kind in _FORMATTED[verb]
    if isinstance(element, (syntax.ListExpr, syntax.MapExpr)):
        return all(_takes(checked, verb, child) for child in syntax.children(element))
    return found.kind not in _UNPRINTABLE
