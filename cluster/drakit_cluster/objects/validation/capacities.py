"""Rules of a device's capacities: what a request may ask for, and that the default obeys it."""

import itertools
from collections.abc import Iterator

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.objects.validation import each, failure
from drakit_cluster.objects.validation.failure import Failure

MAX_VALUES = 10


def shared(capacity: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a capacity of a device that may be allocated many times."""
    policy = json_types.at(capacity, "requestPolicy")
    if isinstance(policy, dict):
        yield from _policy(policy, quantity.parse(json_types.at(capacity, "value")), f"{path}.requestPolicy")


def exclusive(capacity: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a capacity of a device that is allocated once: it is taken whole."""
    if json_types.at(capacity, "requestPolicy") is not None:
        yield failure.forbidden(f"{path}.requestPolicy", "may be set only if the device has allowMultipleAllocations: true")


def _policy(policy: Object, total: Quantity, path: str) -> Iterator[Failure]:
    values, limits = json_types.items(policy, "validValues"), policy.get("validRange")
    if values and limits is not None:
        yield failure.forbidden(path, "validValues and validRange exclude each other: remove one")
    elif "default" not in policy:
        if values or limits is not None:
            yield failure.required(f"{path}.default", f"must be set with {'validValues' if values else 'validRange'}")
    elif values:
        yield from _values(values, quantity.parse(policy["default"]), total, f"{path}.validValues")
    elif isinstance(limits, dict):
        yield from _range(limits, quantity.parse(policy["default"]), total, f"{path}.validRange")


def _values(values: list[Json], default: Quantity, total: Quantity, path: str) -> Iterator[Failure]:
    """Values count as the same if they are so in whole units, rounded up; too many of them hide the default, as in Kubernetes."""
    amounts = [quantity.parse(value) for value in values]
    for index, (before, amount) in enumerate(itertools.pairwise(amounts), start=1):
        if amount < before:
            yield failure.invalid(f"{path}[{index}]", values[index], "values must be sorted in ascending order")

    def one(value: Json, where: str) -> Iterator[Failure]:
        if quantity.parse(value) > total:
            yield failure.invalid(where, value, f"must not exceed the capacity's value of {total}")

    yield from each.item(values, path, one, limit=MAX_VALUES, key=_units)
    if default not in amounts or len(amounts) > MAX_VALUES:
        yield failure.invalid(path, str(default), "the default must be one of validValues")


def _units(value: Json) -> str:
    return str(quantity.parse(value).units)


def _range(limits: Object, default: Quantity, total: Quantity, path: str) -> Iterator[Failure]:
    """A default outside the range is a failure of the bound that it breaks."""
    if "min" not in limits:
        yield failure.required(f"{path}.min", "must be set in a validRange")
        return
    low, high = quantity.parse(limits["min"]), quantity.parse(limits["max"]) if "max" in limits else None
    if low > total:
        yield failure.invalid(f"{path}.min", limits["min"], f"must not exceed the capacity's value of {total}")
    if default < low:
        yield failure.invalid(f"{path}.min", limits["min"], f"must not exceed the default of {default}")
    if high is not None and not max(low, default) <= high <= total:
        bounds = f"at least {max(low, default)}, the greater of min and default, and at most {total}, the capacity's value"
        yield failure.invalid(f"{path}.max", limits["max"], f"must be {bounds}")
    if "step" in limits:
        ends = [default] if high is None else [default, high]
        yield from _step(quantity.parse(limits["step"]), low, ends, total, f"{path}.step")


def _step(step: Quantity, low: Quantity, ends: list[Quantity], total: Quantity, path: str) -> Iterator[Failure]:
    """Steps count in whole units, each amount rounded up. A step of zero is ours to refuse: Kubernetes 1.36 divides by it."""
    if step.units == 0:
        yield failure.invalid(path, str(step), "must not be zero")
        return
    if low + step > total:
        yield failure.invalid(path, str(step), f"one step above min must not exceed the capacity's value of {total}")
    for end in ends:
        if (end.units - low.units) % step.units:
            yield failure.invalid(path, str(step), f"{end} must be a whole number of steps above min, {low}")
