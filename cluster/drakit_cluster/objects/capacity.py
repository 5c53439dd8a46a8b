"""Consumable capacity (KEP-5075): how much of a device's capacity one request takes, and whether it still fits.

Rules, as Kubernetes decides them:

- no request: the policy's default, or the whole value where there is no default;
- a request with a valid range: at least ``min``, rounded up to ``min + n * step``; the step counts in whole units, or in thousandths with
  the gate DRAFractionalCapacityRange (on in 1.37) if 64 bits hold ``min``, ``max`` and ``step`` as thousandths;
  A step below zero, and a result that 64 bits do not hold, are errors: Kubernetes 1.36 computes nonsense then;
- a request with valid values: the smallest value that is enough, or the request itself where none is (then it violates the policy);
- anything else: the request as it is;
- an amount beyond ``max``, off the step, or not among the valid values violates the policy, and the device is not eligible;
- the sum over all shares must not exceed the value.

One rule is ours: a device never serves an amount below zero. Kubernetes does not validate the sign. It
subtracts the consumption of such a claim from what is in use, and other claims then get more than the device has.

On a device that is not shared the same rules only filter; nothing is recorded as consumed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.quantity import Quantity

_MAX_COUNT = 2**63 - 1


class NotRepresentableError(ValueError):
    """An amount that a range cannot round: it is too large for 64 bits, or finer than the thousandths of the range.

    Kubernetes then allocates nothing (kubernetes#140441).
    """


@dataclass(frozen=True, kw_only=True)
class ValidRange:
    """``requestPolicy.validRange``. ``fractional`` is whether the step counts in thousandths; otherwise it counts in whole units."""

    minimum: Quantity | None
    maximum: Quantity | None
    step: Quantity | None
    fractional: bool = False

    def count(self, amount: Quantity) -> int:
        """Return ``amount`` in the unit of the step, a fraction of a whole unit rounded away from zero. Raises NotRepresentableError."""
        if not self.fractional:
            return amount.units
        if not amount.is_milli:
            raise NotRepresentableError(f"{amount} is not a whole number of thousandths that 64 bits hold: write 250m, not 250500u")
        return amount.nanos // quantity.MILLI_NANOS

    def amount(self, count: int) -> Quantity:
        """Return ``count`` units of the step."""
        return Quantity(nanos=count * (quantity.MILLI_NANOS if self.fractional else quantity.NANOS), format=quantity.Format.BINARY)


@dataclass(frozen=True, kw_only=True)
class RequestPolicy:
    """``requestPolicy`` of a capacity. ``valid_values`` is sorted ascending; None if the field is absent."""

    default: Quantity | None = None
    valid_range: ValidRange | None = None
    valid_values: tuple[Quantity, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """One entry of a device's capacity."""

    value: Quantity
    policy: RequestPolicy | None = None


Amounts = Mapping[str, Quantity]
"""Quantities by capacity name."""


def decode_policy(value: Json, *, fractional: bool = False) -> RequestPolicy | None:
    """Return the ``requestPolicy`` in ``value``, or None. Raises QuantityError on a malformed quantity.

    ``fractional`` is the state of the gate DRAFractionalCapacityRange.
    """
    if not isinstance(value, dict):
        return None
    valid_range = value.get("validRange")
    valid_values = value.get("validValues")
    return RequestPolicy(
        default=_optional(value.get("default")),
        valid_range=_decode_range(valid_range, fractional=fractional) if isinstance(valid_range, dict) else None,
        valid_values=tuple(quantity.parse(valid_value) for valid_value in valid_values) if isinstance(valid_values, list) else None,
    )


def _decode_range(value: Json, *, fractional: bool) -> ValidRange:
    low, high, step = (_optional(json_types.at(value, name)) for name in ("min", "max", "step"))
    fractional = (
        fractional
        and all(amount is None or amount.is_milli for amount in (low, high, step))
        and (step is None or step.nanos >= quantity.MILLI_NANOS)
    )
    return ValidRange(minimum=low, maximum=high, step=step, fractional=fractional)


def _optional(value: Json) -> Quantity | None:
    return None if value is None else quantity.parse(value)


def decode_capacity(value: Json, *, fractional: bool = False) -> Capacity:
    """Return one entry of ``capacity``: ``{"value": ..., "requestPolicy": ...}``; an absent value is zero."""
    total = json_types.at(value, "value")
    return Capacity(
        value=Quantity(nanos=0) if total is None else quantity.parse(total),
        policy=decode_policy(json_types.at(value, "requestPolicy"), fractional=fractional),
    )


def decode_capacities(value: Json, *, fractional: bool = False) -> dict[str, Capacity]:
    """Return all entries of a device's ``capacity``."""
    return {name: decode_capacity(entry, fractional=fractional) for name, entry in value.items()} if isinstance(value, dict) else {}


def decode_amounts(value: Json) -> dict[str, Quantity]:
    """Return ``{name: quantity}``, such as ``consumedCapacity`` or ``capacity.requests``."""
    return {name: quantity.parse(entry) for name, entry in value.items()} if isinstance(value, dict) else {}


def consumed(requested: Quantity | None, capacity: Capacity) -> Quantity:
    """Return the amount that a request (None for the default) consumes of ``capacity``. It is not checked against free capacity.

    Raises NotRepresentableError.
    """
    policy = capacity.policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.minimum is not None:
        return _round_to_range(requested, policy.valid_range, policy.valid_range.minimum)
    if policy.valid_values is not None:
        return next((value for value in policy.valid_values if requested <= value), requested)
    return requested


def _round_to_range(requested: Quantity, valid: ValidRange, minimum: Quantity) -> Quantity:
    if requested < minimum:
        return minimum
    if valid.step is None or valid.count(valid.step) == 0:
        return requested
    step, least, wanted = valid.count(valid.step), valid.count(minimum), valid.count(requested)
    rounded = least - (least - wanted) // step * step
    if step < 0 or max(wanted, rounded) > _MAX_COUNT:
        raise NotRepresentableError(f"{requested} rounded up to min plus a multiple of the step {valid.step} does not fit in 64 bits")
    return valid.amount(rounded)


def violates(amount: Quantity, policy: RequestPolicy | None) -> bool:
    """Return whether the policy forbids to consume ``amount``.

    An amount written exactly as the default is never forbidden, even by a range that excludes it (the API refuses such a policy).
    """
    if policy is None:
        return False
    if policy.default is not None and amount.source and amount.source == policy.default.source:
        return False
    if policy.valid_range is not None:
        return _outside(amount, policy.valid_range)
    return bool(policy.valid_values) and amount not in (policy.valid_values or ())


def _outside(amount: Quantity, valid: ValidRange) -> bool:
    if valid.maximum is not None and amount > valid.maximum:
        return True
    if valid.step is None or valid.count(valid.step) == 0:
        return False
    if valid.fractional and not amount.is_milli:
        return True
    least = valid.count(valid.minimum) if valid.minimum is not None else 0
    return (valid.count(amount) - least) % valid.count(valid.step) != 0


def consume_all(requests: Amounts, capacities: Mapping[str, Capacity]) -> dict[str, Quantity]:
    """Return what one allocation consumes of every capacity; zero amounts are included."""
    return {name: consumed(requests.get(name), capacity) for name, capacity in capacities.items()}


def published_name(requested: str, published: Collection[str], driver: str) -> str:
    """Return the name under which a driver publishes a capacity that is requested with or without the driver's domain (since 1.38)."""
    if requested in published:
        return requested
    other = requested.removeprefix(f"{driver}/") if requested.startswith(f"{driver}/") else f"{driver}/{requested}"
    return other if other in published else requested


def demand(requests: Amounts, capacities: Mapping[str, Capacity]) -> dict[str, Quantity] | None:
    """Return what one allocation consumes of every capacity, or None if the device can never serve the requests.

    None: a requested name the device lacks, an amount that its policy forbids, or one below zero. Raises NotRepresentableError.
    """
    if any(name not in capacities for name in requests):
        return None
    amounts = consume_all(requests, capacities)
    if any(amount.nanos < 0 or violates(amount, capacities[name].policy) for name, amount in amounts.items()):
        return None
    return amounts


def fits(requests: Amounts, capacities: Mapping[str, Capacity], *taken: Amounts) -> bool:
    """Return whether the requests fit a device of which ``taken`` is consumed already."""
    amounts = demand(requests, capacities)
    if amounts is None:
        return False
    return all(
        amount.nanos + sum(amounts_taken[name].nanos for amounts_taken in taken if name in amounts_taken) <= capacities[name].value.nanos
        for name, amount in amounts.items()
    )
