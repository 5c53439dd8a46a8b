"""Capacities, and the request policies that limit how much of one a share may take (KEP-5075, resource.k8s.io/v1 requestPolicy).

A policy either lists valid values or gives a range with a minimum, an optional maximum and an optional step. A request between two valid
amounts is rounded up to the next. A request above the largest cannot be met. Amounts of a policy are whole numbers of thousandths (feature gate
DRAFractionalCapacityRange, on in Kubernetes 1.37). Older servers count in whole units, each amount rounded up; ``in_whole_units`` is for them.

A capacity, a policy and a range are created before their device, so they check nothing on construction. The device checks them, and its error names
the device. Until then an amount that is not a quantity stays as the author wrote it.
"""

import dataclasses
import itertools
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.core import arguments, errors, names, quantity

VALID_VALUES_MAX = 10
_UNIT = 10**9
_THOUSANDTH = 10**6
_THOUSANDTHS_MAX = 2**63 - 1


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidRange:
    """Valid amounts from ``min`` to ``max`` in steps of ``step``. Without step any amount is valid, without max up to the whole capacity."""

    min: quantity.Quantity
    max: quantity.Quantity | None = None
    step: quantity.Quantity | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            min: quantity.Amount,  # noqa: A002 - the API's name
            max: quantity.Amount | None = None,  # noqa: A002 - the API's name
            step: quantity.Amount | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        _parse_amounts(self, "min", "max", "step")

    def is_on_step(self, amount: quantity.Quantity) -> bool:
        """Return whether ``amount`` is ``min`` plus a whole number of steps."""
        return self.step is None or (amount.nanos - self.min.nanos) % self.step.nanos == 0

    def round_up(self, amount: quantity.Quantity) -> quantity.Quantity | None:
        """Return the smallest valid amount that is at least ``amount``; None if it is above ``max``."""
        if amount <= self.min:
            return self.min
        if self.step is not None and not self.is_on_step(amount):
            steps = -(-(amount.nanos - self.min.nanos) // self.step.nanos)
            amount = quantity.Quantity(self.min.nanos + steps * self.step.nanos, amount.format)
        return None if self.max is not None and amount > self.max else amount

    def is_exact_in_units(self, ends: Sequence[quantity.Quantity]) -> bool:
        """Return whether a server that counts in whole units accepts the range, and consumes only amounts that the range allows."""
        if self.step is None:
            return True
        step = self.step.value
        rounded = quantity.Quantity(self.min.value * _UNIT)
        is_accepted = all((end.value - self.min.value) % step == 0 for end in ends)
        return is_accepted and self.is_on_step(rounded) and step * _UNIT % self.step.nanos == 0


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestPolicy:
    """The amount that a share takes: ``default`` without a request, else the request rounded up to a valid amount."""

    default: quantity.Quantity | None = None
    valid_values: tuple[quantity.Quantity, ...] = ()
    valid_range: ValidRange | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            default: quantity.Amount | None = None,
            valid_values: Sequence[quantity.Amount] = (),
            valid_range: ValidRange | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        _parse_amounts(self, "default")
        if self.valid_values:
            object.__setattr__(self, "valid_values", tuple(map(_parsed, self.valid_values)))

    def round_up(self, amount: quantity.Quantity) -> quantity.Quantity | None:
        """Return the smallest valid amount that is at least ``amount``; None if there is none."""
        if self.valid_values:
            return next((value for value in self.valid_values if value >= amount), None)
        return self.valid_range.round_up(amount) if self.valid_range else amount

    @property
    def is_fractional(self) -> bool:
        """Whether an amount is not a whole number, so that servers before Kubernetes 1.37 count it differently."""
        span = self.valid_range
        amounts = [self.default, *self.valid_values, *((span.min, span.max, span.step) if span else ())]
        return any(amount is not None and amount.nanos % _UNIT for amount in amounts)

    def in_whole_units(self) -> "RequestPolicy":
        """Return a policy that a server that counts in whole units accepts, and by which it consumes only amounts that this policy allows.

        It is this policy, if it is one. A request is then rounded up to whole units, except the default. Otherwise each share takes the default.
        """
        span, default = self.valid_range, self.default
        if default is None:
            return self
        units = {value.value for value in self.valid_values}
        ends = [default] if span is None or span.max is None else [default, span.max]
        if len(units) == len(self.valid_values) and (span is None or span.is_exact_in_units(ends)):
            return self
        return RequestPolicy(default=default, valid_values=(default,))


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """The amount of something that a device has and, if the device is shared, the valid requests."""

    value: quantity.Quantity
    policy: RequestPolicy | None = None

    if TYPE_CHECKING:

        def __init__(self, *, value: quantity.Amount, policy: RequestPolicy | None = None) -> None: ...

    def __post_init__(self) -> None:
        _parse_amounts(self, "value")

    @classmethod
    def of(cls, value: "CapacityValue") -> "Capacity":
        """Return a capacity without a policy from a number, text or quantity. A capacity is returned unchanged."""
        return value if isinstance(value, Capacity) else Capacity(value=value)

    def consumed_by(self, requested: quantity.Quantity | None) -> quantity.Quantity | None:
        """Return the amount that one share takes; None if even an unused device cannot meet the request.

        Without a request it is the policy's default, or everything if there is no default (KEP-5075, consumed capacity).
        """
        if requested is None:
            default = self.policy.default if self.policy else None
            return self.value if default is None else default
        amount = self.policy.round_up(requested) if self.policy else requested
        return None if amount is None or amount > self.value else amount


CapacityValue = Capacity | quantity.Amount
"""What an author may write as a device's capacity."""


def freeze_capacity(values: Mapping[str, CapacityValue], field: str) -> Mapping[str, Capacity]:
    """Return a read-only copy with checked names and values, with plain amounts as capacities. Raises InventoryError."""
    frozen = {names.check_qualified(name, field): Capacity.of(value) for name, value in values.items()}
    for name, capacity in frozen.items():
        try:
            _check_capacity(capacity)
        except errors.InventoryError as error:
            raise error.with_prefix(f"{field}[{name}]") from error
    return types.MappingProxyType(frozen)


def _check_capacity(capacity: Capacity) -> None:
    _check_amount(capacity.value, "value")
    if capacity.policy is None:
        return
    policy = capacity.policy
    _check_policy(policy)
    span = policy.valid_range
    amounts = {
        "default": policy.default,
        "validValues": policy.valid_values[-1] if policy.valid_values else None,
        "validRange.min": span.min if span else None,
        "validRange.max": span.max if span else None,
    }
    for name, amount in amounts.items():
        if amount is not None and amount > capacity.value:
            raise errors.InventoryError(f"{amount} is above the capacity {capacity.value}", field=f"requestPolicy.{name}")
    if span is not None and span.step is not None and span.min + span.step > capacity.value:
        message = f"min {span.min} plus one step {span.step} is above the capacity {capacity.value}; leave step out, or lower it"
        raise errors.InventoryError(message, field="requestPolicy.validRange.step")


def _check_policy(policy: RequestPolicy) -> None:
    _check_amount(policy.default, "requestPolicy.default")
    for value in policy.valid_values:
        _check_amount(value, "requestPolicy.validValues")
    if policy.valid_range is not None:
        _check_range(policy.valid_range)
        _check_thousandths(policy)
    if policy.valid_values and policy.valid_range is not None:
        raise errors.InventoryError("give validValues or validRange, not both", field="requestPolicy")
    if (policy.valid_values or policy.valid_range) and policy.default is None:
        raise errors.InventoryError("is required beside validValues or validRange", field="requestPolicy.default")
    if len(policy.valid_values) > VALID_VALUES_MAX:
        raise errors.InventoryError(
            f"{len(policy.valid_values)} values are over the limit of {VALID_VALUES_MAX}", field="requestPolicy.validValues"
        )
    for low, high in itertools.pairwise(policy.valid_values):
        if low >= high:
            raise errors.InventoryError(f"{high} after {low}; must ascend", field="requestPolicy.validValues")
    if policy.default is not None and (valid := policy.round_up(policy.default)) != policy.default:
        fix = "every valid amount is below it" if valid is None else f"the next valid amount is {valid}"
        raise errors.InventoryError(f"{policy.default} is not a valid amount; {fix}", field="requestPolicy.default")


def _check_range(span: ValidRange) -> None:
    _check_amount(span.min, "requestPolicy.validRange.min")
    _check_amount(span.max, "requestPolicy.validRange.max")
    _check_amount(span.step, "requestPolicy.validRange.step")
    if span.max is not None and span.max < span.min:
        raise errors.InventoryError(f"{span.max} is below min {span.min}", field="requestPolicy.validRange.max")
    if span.step is not None and span.step <= quantity.ZERO:
        raise errors.InventoryError(f"{span.step} must be above zero", field="requestPolicy.validRange.step")
    if span.max is not None and not span.is_on_step(span.max):
        raise errors.InventoryError(
            f"{span.max} is not min {span.min} plus a multiple of step {span.step}", field="requestPolicy.validRange.max"
        )


def _check_thousandths(policy: RequestPolicy) -> None:
    """Raise InventoryError if a range with fractions has an amount that the API server cannot count in thousandths."""
    span = policy.valid_range
    if span is None or not policy.is_fractional:
        return
    for name, amount in (("default", policy.default), *((f"validRange.{name}", getattr(span, name)) for name in ("min", "max", "step"))):
        if amount is not None and (amount.nanos % _THOUSANDTH or amount.nanos // _THOUSANDTH > _THOUSANDTHS_MAX):
            raise errors.InventoryError(
                f"{amount} is not a whole number of thousandths that 64 bits hold, such as 250m", field=f"requestPolicy.{name}"
            )


def _parse_amounts(part: object, *fields: str) -> None:
    """Replace each amount that an author wrote by its quantity. None and an amount that is not a quantity stay."""
    for name in fields:
        amount = getattr(part, name)
        if amount is not None and type(amount) is not quantity.Quantity:
            object.__setattr__(part, name, _parsed(amount))


def _parsed(amount: quantity.Amount) -> quantity.Quantity:
    try:
        return quantity.Quantity.of(amount)
    except errors.QuantityError:
        # _check_amount reports it later, with the device's name.
        return amount  # type: ignore[return-value]


def _check_amount(amount: object, field: str) -> None:
    """Raise InventoryError for an amount that is neither a quantity nor None."""
    if amount is None or type(amount) is quantity.Quantity:
        return
    if not isinstance(amount, str):
        raise errors.InventoryError(f"{amount!r} is not an amount; write a whole number, text such as '40Gi', or a Quantity", field=field)
    try:
        quantity.Quantity.parse(amount)
    except errors.QuantityError as error:
        raise errors.InventoryError(error.reason, field=field) from error
