"""Fixes for selectors and derived attributes that compile, but fail on devices or select none."""

import contextlib
import re
from collections.abc import Sequence

from drakit_cluster.cel import compared_texts
from drakit_cluster.cel.functions import semver
from drakit_cluster.lint import expressions, findings
from drakit_cluster.lint.catalogue import PublishedDevice
from drakit_cluster.objects import quantity
from drakit_cluster.objects.devices import DeviceView

NO_KEY = "no such key: "
_NO_OVERLOAD = "no such overload"
_NO_BOOL = "could not be converted to bool"
_NO_QUANTITY = "is not a quantity: "
_CHECK_DRIVER = 'check the driver first: device.driver == "..." && ...'
CHECK_ATTRIBUTE = (
    'check that the attribute exists: "name" in device.attributes["domain"] && ..., or device.attributes["domain"].?name.orValue(...)'
)
_SEMVER = re.compile(r"""semver\((["'])([^"']*)\1\)""")
_VALUES_MAX = 8
"""The most values of a capacity that are listed."""


def of_error(error: str, expression: str, devices: Sequence[PublishedDevice]) -> str:
    """Return the fix for an evaluation's error that no check of an attribute would prevent, else ""."""
    if placed := expressions.misplaced_domain(expression):
        return placed
    if error.startswith(NO_KEY):
        return _of_capacity(error.removeprefix(NO_KEY), expression, devices)
    if _NO_BOOL in error:
        return "compare it with a value: the whole expression must be true or false"
    if _NO_QUANTITY in error:
        return error.partition(_NO_QUANTITY)[2]
    if error == _NO_OVERLOAD:
        return _of_types(expression, devices)
    return next((fix for text in _SEMVER.findall(expression) if (fix := _of_version(error, text[1]))), "fix the expression")


def _of_capacity(name: str, expression: str, devices: Sequence[PublishedDevice]) -> str:
    """Return the fix for an attribute that is a capacity of all devices."""
    for domain, attribute in compared_texts.attributes_read(expression):
        if attribute == name and all(_capacity(device.view, domain, name) for device in devices):
            return f'write device.capacity["{domain}"].{name}: {name} is a capacity'
    return ""


def _of_types(expression: str, devices: Sequence[PublishedDevice]) -> str:
    """Return the fix for values of types that cannot be compared: the types of the attributes."""
    types: dict[str, str] = {}
    for domain, name in compared_texts.attributes_read(expression):
        for kind in (kind for device in devices for kind in compared_texts.attribute(device.view, domain, name)):
            types.setdefault(name, kind)
    versions = [name for name, kind in types.items() if kind == "version"]
    if versions:
        return f'{versions[0]} is a version: write .compareTo(semver("1.2.3")) > 0, or >= 0, < 0, == 0'
    listed = "; ".join(f"{name} is {kind}" for name, kind in types.items())
    return f"compare values of one type: {listed}" if listed else "compare values of one type"


def _of_version(error: str, text: str) -> str:
    """Return the fix for a text that causes the error of ``semver(text)``, else ""."""
    try:
        semver.parse(text)
    except ValueError as refused:
        with contextlib.suppress(ValueError):
            whole = semver.normalize(text)
            semver.parse(whole)
            return f'write semver("{whole}")' if str(refused) == error else ""
        return 'write a version of three numbers, such as semver("1.2.3")' if str(refused) == error else ""
    return ""


def guard(expressions_of: Sequence[str], devices: Sequence[PublishedDevice], failed: Sequence[PublishedDevice]) -> str:
    """Return the check that expressions of a class or request need before the part that fails on some of ``devices``."""
    fixes = [] if any("device.driver" in expression for expression in expressions_of) else [_CHECK_DRIVER]
    drivers = {device.pool.driver for device in failed}
    foreign = drivers < {device.pool.driver for device in devices} and len(failed) == sum(
        device.pool.driver in drivers for device in devices
    )
    return "; ".join(fixes if fixes and foreign else [*fixes, CHECK_ATTRIBUTE])


def nothing_selected(expression: str, devices: Sequence[PublishedDevice]) -> tuple[str, str]:
    """Return what a selector that selects nothing compares with a text that no device has, and the fix."""
    unknown = compared_texts.unknown(expression, (device.view for device in devices))
    if not unknown:
        return "", _capacities(expression, devices) or "compare it with the attributes in the slices"
    first = unknown[0]
    close = findings.suggestion(first.text, first.known)
    return f": none has {first.attribute} {first.text}", f"{close}; {first.values}" if close.startswith("write") else first.values


def _capacities(expression: str, devices: Sequence[PublishedDevice]) -> str:
    """Return which values the devices have for the capacities that an expression reads."""
    listed = []
    for domain, name in compared_texts.capacities_read(expression):
        values = sorted({quantity.parse(value) for device in devices if (value := _capacity(device.view, domain, name))})
        if len(values) > _VALUES_MAX:
            listed.append(f"the values of {name} are from {values[0]} to {values[-1]}")
        elif values:
            what = f"the only value of {name} is" if len(values) == 1 else f"the values of {name} are"
            listed.append(f"{what} {', '.join(map(str, values))}")
    return "; ".join(listed)


def _capacity(view: DeviceView, domain: str, name: str) -> str:
    """Return a device's capacity, "" if it has none of this name."""
    return view.capacity.get(f"{domain}/{name}") or (view.capacity.get(name) if domain == view.driver else None) or ""
