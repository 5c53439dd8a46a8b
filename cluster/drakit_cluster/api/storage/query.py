"""Field selectors and label selectors: parsed once, then matched with objects.

Only the fields that a real API server offers for a kind can be selected; other fields are refused with 400, as on a real server.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

Predicate: TypeAlias = Callable[[Object], bool]

_FIELD_TERM = re.compile(r"(?P<field>[^=!]+)(?P<operator>==|=|!=)(?P<value>.*)")
_LABEL_SET_TERM = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_LABEL_EQUAL_TERM = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!\s]*)")
_LABEL_EXISTS_TERM = re.compile(r"(?P<operator>!?)\s*(?P<key>[^=!\s()]+)")


@dataclass(frozen=True, kw_only=True)
class Query:
    """A selection of a kind's objects: those of one namespace (None: all) for which every predicate is true."""

    namespace: str | None = None
    predicates: tuple[Predicate, ...] = ()

    def matches(self, obj: Object) -> bool:
        """Return whether ``obj`` is selected."""
        if self.namespace is not None and json_types.text(obj, "metadata", "namespace") != self.namespace:
            return False
        return all(predicate(obj) for predicate in self.predicates)


def parse(resource: Resource, *, namespace: str | None = None, field_selector: str = "", label_selector: str = "") -> Query:
    """Return the query; raise BadRequestError for a selector that cannot be read or a field that cannot be selected."""
    fields = tuple(_field_term(resource, term) for term in field_selector.split(",") if term.strip())
    labels = tuple(_label_term(term) for term in re.split(r",(?![^()]*\))", label_selector) if term.strip())
    return Query(namespace=(namespace or None) if resource.namespaced else None, predicates=fields + labels)


def _field_term(resource: Resource, term: str) -> Predicate:
    match = _FIELD_TERM.fullmatch(term.strip())
    if match is None:
        raise errors.BadRequestError(f"fieldSelector: cannot read {term!r}; write field=value or field!=value")
    name, expected = match["field"], match["value"]
    if name not in ("metadata.name", "metadata.namespace", *resource.selectable):
        raise errors.BadRequestError(f"fieldSelector: {name} cannot be selected for {resource.plural}")
    path = tuple(name.split("."))
    equal = match["operator"] != "!="
    return lambda obj: (_as_text(json_types.at(obj, *path)) == expected) is equal


def _as_text(value: Json) -> str:
    """Return a field as selectors compare it: absent is empty, booleans are words, a struct is its component."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json_types.text(value, "component")
    return "" if value is None else str(value)


def _label_term(term: str) -> Predicate:
    term = term.strip()
    if match := _LABEL_SET_TERM.fullmatch(term):
        values = {value.strip() for value in match["values"].split(",")}
        return _label_in(match["key"], values, positive=match["operator"] == "in")
    if match := _LABEL_EQUAL_TERM.fullmatch(term):
        return _label_in(match["key"], {match["value"]}, positive=match["operator"] != "!=")
    if match := _LABEL_EXISTS_TERM.fullmatch(term):
        key, present = match["key"], not match["operator"]
        return lambda obj: (key in json_types.mapping(obj, "metadata", "labels")) is present
    raise errors.BadRequestError(f"labelSelector: cannot read {term!r}")


def _label_in(key: str, values: set[str], *, positive: bool) -> Predicate:
    """Return the predicate of a label. A missing label matches ``!=`` and ``notin``, never ``=`` and ``in``."""

    def passes(obj: Object) -> bool:
        value = json_types.mapping(obj, "metadata", "labels").get(key)
        return (value in values) if positive else (value is None or value not in values)

    return passes
