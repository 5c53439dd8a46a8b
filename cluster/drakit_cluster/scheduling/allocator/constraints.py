"""matchAttribute and distinctAttribute while devices are being chosen.

A device's value is a set: one (type, value) for a scalar, several for a list where the ListTypeAttributes gate is on. All devices of a
matchAttribute share at least one element; the sets of a distinctAttribute are pairwise disjoint. A device without the attribute satisfies
neither. Values of different types are different.
"""

from collections.abc import Mapping
from typing import NamedTuple

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.scheduling.allocator.requests import Constraint, ConstraintSpec

Element = tuple[str, Json]
Value = frozenset[Element]
"""What a device says for one attribute; empty for a type this version does not know."""

_SCALARS = {"string": "strings", "int": "ints", "bool": "bools", "version": "versions"}


class Chosen(NamedTuple):
    """The state of one constraint: how many devices count, and the common (match) or all used (distinct) elements."""

    devices: int
    elements: Value


NONE_CHOSEN = Chosen(0, frozenset())


def value_of(attributes: Mapping[str, Json], driver: str, name: str, *, lists: bool) -> Value | None:
    """Return the value of the fully qualified attribute ``name``; None where the device lacks it.

    An attribute may be published under its full name or, in the driver's own domain, without one; the full name wins.
    """
    attribute = attributes.get(name)
    domain, _, identifier = name.partition("/")
    if attribute is None and identifier and domain == driver:
        attribute = attributes.get(identifier)
    if attribute is None:
        return None
    for scalar, plural in _SCALARS.items():
        if (one := json_types.at(attribute, scalar)) is not None:
            return _elements(scalar, [one])
        if lists and (many := json_types.at(attribute, plural)) is not None:
            return _elements(scalar, json_types.items(many))
    return frozenset()


def _elements(scalar: str, values: list[Json]) -> Value:
    return frozenset((scalar, one) for one in values if isinstance(one, (str, int)))


def add(spec: ConstraintSpec, chosen: Chosen, value: Value | None, *, lists: bool) -> Chosen | None:
    """Return the state with one more device, or None where its value is not allowed."""
    if value is None or (lists and not value):
        return None
    if not chosen.devices:
        return Chosen(1, value)
    if spec.kind is Constraint.MATCH:
        common = chosen.elements & value
        return Chosen(chosen.devices + 1, common) if common else None
    if not value or chosen.elements & value:
        return None
    return Chosen(chosen.devices + 1, chosen.elements | value)
