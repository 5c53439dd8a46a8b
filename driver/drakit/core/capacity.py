"""Capacities and the request policies that say how much of one a share may take (KEP-5075, resource.k8s.io/v1 requestPolicy).

A policy either lists valid values or gives a range with a minimum, an optional maximum and an optional step. A request between two valid
amounts is rounded up to the next; one above the largest cannot be met. Step arithmetic is on whole numbers, as the API server does it.
"""

import dataclasses
import itertools
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drakit.core import errors, names, quantity

VALID_VALUES_MAX = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidRange:
    """From ``min`` in steps of ``step`` up to ``max``; without step any amount, without max up to the whole capacity."""

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
        for name in ("min", "max", "step"):
            _set_quantity(self, name, f"validRange.{name}")
        if self.max is not None and self.max < self.min:
            raise errors.InventoryError(f"{self.max} is below min {self.min}", field="validRange.max")
        if self.step is not None and self.step.value <= 0:
            raise errors.InventoryError("must be at least 1", field="validRange.step")
        if self.max is not None and not self.is_on_step(self.max):
            raise errors.InventoryError(f"{self.max} is not min plus a multiple of step {self.step}", field="validRange.max")

    def is_on_step(self, amount: quantity.Quantity) -> bool:
        """Whether amount is min plus a whole number of steps."""
        return self.step is None or (amount.value - self.min.value) % self.step.value == 0

    def round_up(self, amount: quantity.Quantity) -> quantity.Quantity | None:
        """The smallest valid amount that is at least ``amount``; None when it lies above max."""
        if amount <= self.min:
            return self.min
        if self.step is not None and not self.is_on_step(amount):
            steps = -(-(amount.value - self.min.value) // self.step.value)
            amount = quantity.Quantity((self.min.value + steps * self.step.value) * 10**9, amount.format)
        return None if self.max is not None and amount > self.max else amount


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestPolicy:
    """What a share takes: ``default`` when it does not ask, else its request rounded up to a valid amount."""

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
        _set_quantity(self, "default", "requestPolicy.default")
        if self.valid_values:
            values = tuple(_quantity(value, "requestPolicy.validValues") for value in self.valid_values)
            object.__setattr__(self, "valid_values", values)
        if self.valid_values and self.valid_range is not None:
            raise errors.InventoryError("give validValues or validRange, not both", field="requestPolicy")
        if (self.valid_values or self.valid_range) and self.default is None:
            raise errors.InventoryError("is required beside validValues or validRange", field="requestPolicy.default")
        if len(self.valid_values) > VALID_VALUES_MAX:
            raise errors.InventoryError(f"at most {VALID_VALUES_MAX} values", field="requestPolicy.validValues")
        if any(low.value >= high.value for low, high in itertools.pairwise(self.valid_values)):
            raise errors.InventoryError("must ascend, each by at least one whole unit", field="requestPolicy.validValues")
        if self.default is not None and self.round_up(self.default) != self.default:
            raise errors.InventoryError(f"{self.default} is not itself a valid amount", field="requestPolicy.default")

    def round_up(self, amount: quantity.Quantity) -> quantity.Quantity | None:
        """The smallest valid amount that is at least ``amount``; None when there is none."""
        if self.valid_values:
            return next((value for value in self.valid_values if value >= amount), None)
        return self.valid_range.round_up(amount) if self.valid_range else amount


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """How much a device has of something, and, where it is shared, how it may be asked for."""

    value: quantity.Quantity
    policy: RequestPolicy | None = None

    if TYPE_CHECKING:

        def __init__(self, *, value: quantity.Amount, policy: RequestPolicy | None = None) -> None: ...

    def __post_init__(self) -> None:
        _set_quantity(self, "value", "capacity.value")
        if self.policy is None:
            return
        largest = [*self.policy.valid_values[-1:], self.policy.default]
        if self.policy.valid_range is not None:
            span = self.policy.valid_range
            largest += [span.min, span.max, None if span.step is None else span.min + span.step]
        for amount in largest:
            if amount is not None and amount > self.value:
                raise errors.InventoryError(f"{amount} is above the capacity {self.value}", field="requestPolicy")

    @classmethod
    def of(cls, value: "CapacityValue") -> "Capacity":
        """A capacity without a policy from a number, text or quantity; a capacity is returned as it is."""
        return value if isinstance(value, Capacity) else Capacity(value=value)

    def consumed_by(self, requested: quantity.Quantity | None) -> quantity.Quantity | None:
        """What one share takes of this capacity; None when the request cannot be met even by an unused device.

        Without a request: the policy's default, or everything where there is none (KEP-5075, consumed capacity).
        """
        if requested is None:
            default = self.policy.default if self.policy else None
            return self.value if default is None else default
        amount = self.policy.round_up(requested) if self.policy else requested
        return None if amount is None or amount > self.value else amount


CapacityValue = Capacity | quantity.Amount
"""What an author may write as a device's capacity."""


def freeze_capacity(values: Mapping[str, CapacityValue], field: str) -> Mapping[str, Capacity]:
    """A read-only copy with checked names; plain amounts become capacities; raises InventoryError."""
    return types.MappingProxyType(
        {names.check_qualified(name, field): _capacity(value, f"{field}[{name}]") for name, value in values.items()}
    )


def _capacity(value: CapacityValue, field: str) -> Capacity:
    return value if isinstance(value, Capacity) else Capacity(value=_quantity(value, field))


def _set_quantity(part: object, name: str, field: str) -> None:
    """Replace the amount that an author wrote by its quantity; None stays."""
    amount = getattr(part, name)
    if amount is not None and type(amount) is not quantity.Quantity:
        object.__setattr__(part, name, _quantity(amount, field))


def _quantity(amount: object, field: str) -> quantity.Quantity:
    if not isinstance(amount, int | str | quantity.Quantity):
        raise errors.InventoryError(f"{amount!r} is no amount; write a whole number, text such as '40Gi', or a Quantity", field=field)
    try:
        return quantity.Quantity.of(amount)
    except errors.QuantityError as error:
        raise errors.InventoryError(error.reason, field=field) from error
