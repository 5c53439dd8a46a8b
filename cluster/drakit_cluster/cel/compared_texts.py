"""The texts with which a selector compares attributes, and those that no device has: most likely typing errors."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.cel import errors
from drakit_cluster.cel.syntax import parser, tree
from drakit_cluster.cel.syntax.tree import Call, Expr, Ident, Literal, Select
from drakit_cluster.objects.devices import DeviceView
from drakit_cluster.objects.json_types import Json

_SHOWN = 8
_DRIVER = ""
"""The domain under which `device.driver` counts as an attribute."""
_Comparison = tuple[tuple[str, str], tuple[str, ...]]
"""Domain and name of an attribute, and the texts of which it must have one."""
_AND, _EQUAL, _IN = "_&&_", "_==_", "@in"


@dataclass(frozen=True, kw_only=True)
class UnknownText:
    """A text that no device has for an attribute that some have. `known` are the attribute's values, in natural order."""

    attribute: str
    text: str
    known: tuple[str, ...]

    @property
    def values(self) -> str:
        """The known values in words, the first few of many."""
        more = len(self.known) - _SHOWN
        listed = ", ".join(self.known[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"the {'only value' if len(self.known) == 1 else 'values'} of {self.attribute} {'is' if len(self.known) == 1 else 'are'} {listed}"


def unknown(expression: str, views: Iterable[DeviceView]) -> list[UnknownText]:
    """Return the texts that a selector requires of an attribute and no device has. Attributes that no device has are left out.

    Only comparisons that must hold count: the expression itself, and what `&&` joins in it. Of a list, one text would be enough.
    """
    views = list(views) if (compared := _compared(expression)) else []
    found = []
    for (domain, name), texts in compared:
        known = {value for view in views for value in _texts_of(view, domain, name)}
        if known and known.isdisjoint(texts):
            found += [UnknownText(attribute=name, text=text, known=tuple(sorted(known, key=_natural))) for text in texts]
    return found


def attributes_read(expression: str) -> Sequence[tuple[str, str]]:
    """Return domain and name of each attribute that an expression reads, in its order; none if it does not compile."""
    try:
        root = parser.parse(expression)
    except (errors.CompileError, RecursionError):
        return ()
    return tuple(dict.fromkeys(path for node in tree.walk(root) if (path := _path(node)) is not None and path[0] != _DRIVER))


def capacities_read(expression: str) -> Sequence[tuple[str, str]]:
    """Return domain and name of each capacity that an expression reads, in its order; none if it does not compile."""
    try:
        root = parser.parse(expression)
    except (errors.CompileError, RecursionError):
        return ()
    paths = [(_domain(node.operand, "capacity"), node.field) for node in tree.walk(root) if isinstance(node, Select)]
    return tuple(dict.fromkeys(path for path in paths if path[0]))


@functools.lru_cache(maxsize=256)
def _compared(expression: str) -> Sequence[_Comparison]:
    """Return the comparisons that must hold."""
    try:
        root = parser.parse(expression)
    except (errors.CompileError, RecursionError):
        return ()
    return tuple(dict.fromkeys(found for term in _terms(root) if (found := _comparison(term)) is not None))


def _terms(expr: Expr) -> Iterator[Expr]:
    """Yield the terms that `&&` joins; any other expression is one term."""
    if isinstance(expr, Call) and expr.function == _AND:
        for arg in expr.args:
            yield from _terms(arg)
    else:
        yield expr


def _comparison(call: Expr) -> _Comparison | None:
    if not isinstance(call, Call) or call.function not in {_EQUAL, _IN} or len(call.args) != 2:
        return None
    left, right = call.args
    path = _path(left)
    if path is None and call.function == _EQUAL:
        path, right = _path(right), left
    elements = right.elements if isinstance(right, tree.ListExpr) and call.function == _IN else (right,)
    texts = tuple(element.value for element in elements if isinstance(element, Literal) and isinstance(element.value, str))
    return (path, texts) if path is not None and texts and len(texts) == len(elements) else None


def _path(expr: Expr) -> tuple[str, str] | None:
    """Return domain and name of `device.attributes["domain"].name`, also of its optional form with `orValue`, and of `device.driver`."""
    if isinstance(expr, Call) and expr.function == "orValue" and expr.target is not None:
        expr = expr.target
    match expr:
        case Select(operand=Ident(name="device"), field="driver", test_only=False):
            return _DRIVER, "driver"
        case Select(operand=owner, field=name, test_only=False):
            domain = _domain(owner)
        case Call(function="_?._" | "_[_]" | "_[?_]", args=(owner, Literal(value=str(name)))):
            domain = _domain(owner)
        case _:
            return None
    return (domain, name) if domain else None


def _domain(expr: Expr, group: str = "attributes") -> str:
    match expr:
        case Call(
            function="_[_]" | "_[?_]",
            args=(Select(operand=Ident(name="device"), field=field, test_only=False), Literal(value=str(domain))),
        ) if field == group:
            return domain
    return ""


def attribute(view: DeviceView, domain: str, name: str) -> Mapping[str, Json]:
    """Return a device's attribute as it is published, with its type as the key; empty if it has none of this name."""
    return view.attributes.get(f"{domain}/{name}") or (view.attributes.get(name) if domain == view.driver else None) or {}


def _texts_of(view: DeviceView, domain: str, name: str) -> list[str]:
    """Return the texts that a device has for an attribute."""
    if domain == _DRIVER:
        return [view.driver]
    value = attribute(view, domain, name)
    listed = value.get("strings")
    values = [value.get("string"), value.get("version"), *(listed if isinstance(listed, list) else ())]
    return [value for value in values if isinstance(value, str)]


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key by which 5gb comes before 10gb."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", text)]
