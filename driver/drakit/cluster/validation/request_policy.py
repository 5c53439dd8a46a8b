"""The rule of capacity[].requestPolicy: what a request may ask for, and that the default obeys it."""

from collections.abc import Iterator

from drakit.cluster import json_types, quantity
from drakit.cluster.json_types import Json, Object
from drakit.cluster.quantity import Quantity
from drakit.cluster.validation import failure
from drakit.cluster.validation.failure import Failure


def check(policy: Object, value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a policy of a capacity that has ``value`` in total."""
    values, valid_range = json_types.strings(policy, "validValues"), policy.get("validRange")
    if values and valid_range is not None:
        yield failure.forbidden(f"{path}.validRange", "may not be set together with validValues")
    if (values or valid_range is not None) and "default" not in policy:
        yield failure.required(f"{path}.default", "must be set with validValues or validRange")
        return
    total = quantity.parse(value)
    if values:
        yield from _values(policy, values, total, path)
    elif isinstance(valid_range, dict) and "min" in valid_range:
        yield from _range(valid_range, quantity.parse(policy["default"]), total, f"{path}.validRange")


def _values(policy: Object, values: list[str], total: Quantity, path: str) -> Iterator[Failure]:
    amounts = [quantity.parse(value) for value in values]
    for index, amount in enumerate(amounts):
        where = f"{path}.validValues[{index}]"
        if index and amount == amounts[index - 1]:
            yield failure.duplicate(where, values[index])
        elif index and amount < amounts[index - 1]:
            yield failure.invalid(where, values[index], "values must be sorted in ascending order")
        if amount > total:
            yield failure.invalid(where, values[index], "must not exceed the capacity's value")
    if quantity.parse(policy["default"]) not in amounts:
        yield failure.invalid(f"{path}.default", policy["default"], "must be one of validValues")


def _range(limits: Object, default: Quantity, total: Quantity, path: str) -> Iterator[Failure]:
    low = quantity.parse(limits["min"])
    high = quantity.parse(limits["max"]) if "max" in limits else None
    if low > total:
        yield failure.invalid(f"{path}.min", limits["min"], "must not exceed the capacity's value")
    if default < low or (high is not None and default > high):
        yield failure.invalid(path, str(default), "default must lie between min and max")
    if high is not None and not low <= high <= total:
        yield failure.invalid(f"{path}.max", limits["max"], "must lie between min and the capacity's value")
    if "step" in limits:
        yield from _step(limits, (low, default, high, total), path)


def _step(limits: Object, amounts: tuple[Quantity, Quantity, Quantity | None, Quantity], path: str) -> Iterator[Failure]:
    """Steps count in whole units, each amount rounded up, as Kubernetes 1.36 does. A zero step is ours to refuse."""
    low, default, high, total = (None if amount is None else amount.units for amount in amounts)
    step = quantity.parse(limits["step"]).units
    where = f"{path}.step"
    if step <= 0 or low is None or default is None or total is None:
        yield failure.invalid(where, limits["step"], "must be greater than zero")
        return
    if low + step > total:
        yield failure.invalid(where, limits["step"], "one step above min must not exceed the capacity's value")
    if (default - low) % step:
        yield failure.invalid(where, limits["step"], "default must be a whole number of steps above min")
    if high is not None and (high - low) % step:
        yield failure.invalid(where, limits["step"], "max must be a whole number of steps above min")
