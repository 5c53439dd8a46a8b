"""A selector port that knows a handful of expressions, so that allocation can be tested without a CEL implementation.

Terms joined by ``&&``: driver, allowMultipleAllocations, an attribute equal to a string, a capacity of at least a quantity. A derived attribute
is an attribute of one driver; devices without it derive nothing.
"""

import re

from drakit_cluster.objects import devices, json_types, quantity
from drakit_cluster.objects.devices import DeviceView

_DRIVER = re.compile(r'device\.driver == "([^"]*)"')
_SHARED = re.compile(r"device\.allowMultipleAllocations == (true|false)")
_ATTRIBUTE = re.compile(r'device\.attributes\["([^"]*)"\]\.(\w+) == "([^"]*)"')
VALUE = re.compile(r'device\.attributes\["([^"]*)"\]\.(\w+)')
_CAPACITY = re.compile(r'device\.capacity\["([^"]*)"\](?:\.(\w+)|\["([^"]*)"\])\.compareTo\(quantity\("([^"]*)"\)\) >= 0')
_SCALARS = ("string", "int", "bool", "version")


class SimpleSelectors:
    """Evaluates the known terms and counts what it was asked."""

    def __init__(self, *, lists: bool = False) -> None:
        self.kinds = _SCALARS + (tuple(f"{kind}s" for kind in _SCALARS) if lists else ())
        self.asked: list[tuple[str, DeviceView]] = []

    def matches(self, expression: str, device: DeviceView) -> bool:
        self.asked.append((expression, device))
        for name, value in device.attributes.items():
            if not any(kind in value for kind in self.kinds):
                raise devices.SelectorError(f"attribute {name}: unsupported attribute value")
        return all(self._term(term.strip(), device) for term in expression.split("&&"))

    def derive(self, expression: str, device: DeviceView) -> devices.AttributeValue:
        """Return the attribute that the expression names; nothing if the device has no such attribute."""
        found = VALUE.fullmatch(expression)
        if found is None:
            raise devices.SelectorError(f"{expression}: unknown value")
        attribute = device.attributes.get(found[2], {}) if found[1] == device.driver else {}
        single = attribute.get("string")
        values = [*json_types.items(attribute.get("strings")), *([single] if single else [])]
        return frozenset(("string", value) for value in values)

    def _term(self, term: str, device: DeviceView) -> bool:
        if found := _DRIVER.fullmatch(term):
            return device.driver == found[1]
        if found := _SHARED.fullmatch(term):
            return device.allow_multiple_allocations == (found[1] == "true")
        if found := _ATTRIBUTE.fullmatch(term):
            attribute = device.attributes.get(found[2]) if found[1] == device.driver else None
            if attribute is None:
                raise devices.SelectorError(f"no such key: {found[2]}")
            return attribute.get("string") == found[3]
        if found := _CAPACITY.fullmatch(term):
            name = found[2] or found[3]
            if found[1] != device.driver or name not in device.capacity:
                raise devices.SelectorError(f"no such key: {name}")
            return quantity.parse(device.capacity[name]) >= quantity.parse(found[4])
        raise devices.SelectorError(f"{term}: unknown term")
