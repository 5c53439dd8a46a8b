"""A device as a driver offers it (resource.k8s.io/v1 ResourceSlice.spec.devices[]): attributes, counters it consumes, taints.

An attribute is text, an integer, a boolean, a version, or (behind a gate) a list of one of them. ``Version`` is strict semantic versioning 2.0.0,
because the API server accepts nothing else. ``Version.lenient`` converts what hardware reports (``580.95.05`` becomes ``580.95.5``, ``12.4`` becomes
``12.4.0``). A counter set states how much one physical device has, and a device's consumption how much its allocation takes (KEP-4815). ``includes``
names mixins in the author's form; it is empty after flattening.
"""

import dataclasses
import datetime
import enum
import re
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from drakit.core import arguments, errors, names, quantity
from drakit.core import capacity as capacities
from drakit.core import node_resources as resources
from drakit.core.slices import node_selection

_Part = TypeVar("_Part")

TEXT_MAX_BYTES = 64
ATTRIBUTES_AND_CAPACITY_MAX = 32
ATTRIBUTE_VALUES_MAX = 48
TAINTS_MAX = 16
COUNTERS_MAX = 32
CONSUMPTIONS_MAX = 2
GROUPS_MAX = 2
INCLUDES_MAX = 8
CONDITIONS_MAX = 4
_INT64 = range(-(2**63), 2**63)
_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENT = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_IDENT}(?:\.{_IDENT})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_LOOSE = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?")


@dataclasses.dataclass(frozen=True, slots=True, order=False)
class Version:
    """A semantic version. Raises InventoryError if the text is not one."""

    text: str

    def __post_init__(self) -> None:
        if len(self.text.encode()) > TEXT_MAX_BYTES or not _SEMVER.fullmatch(self.text):
            raise errors.InventoryError(f"{self.text!r} is not a semantic version such as 1.2.3")

    @classmethod
    def lenient(cls, text: str) -> Self | None:
        """Return a version from up to three dotted numbers, without leading zeros and with missing parts zero; None if there is no number."""
        match = _LOOSE.fullmatch(text.strip())
        if match is None:
            return None
        return cls(".".join(str(int(part or "0")) for part in match.groups()))

    def __str__(self) -> str:
        return self.text


Scalar = str | int | bool | Version
AttributeValue = Scalar | tuple[str, ...] | tuple[int, ...] | tuple[bool, ...] | tuple[Version, ...]


def check_attribute(value: AttributeValue, field: str) -> AttributeValue:
    """Return the value. Raises InventoryError for a text over 64 bytes, an integer over 64 bits, and an empty or mixed list."""
    if isinstance(value, tuple):
        if not value or len({type(element) for element in value}) != 1:
            raise errors.InventoryError("a list attribute needs at least one value, all of one type", field=field)
        for element in value:
            _check_scalar(element, field)
        return value
    return _check_scalar(value, field)


def _check_scalar(value: Scalar, field: str) -> Scalar:
    if isinstance(value, bool | Version):
        return value
    if isinstance(value, int):
        if value not in _INT64:
            raise errors.InventoryError(f"{value} does not fit 64 bits", field=field)
        return value
    if not isinstance(value, str):
        raise errors.InventoryError(f"{value!r} is not text, a whole number, true, false or a Version", field=field)
    if len(value.encode()) > TEXT_MAX_BYTES:
        raise errors.InventoryError(f"text of {len(value.encode())} bytes is over the limit of {TEXT_MAX_BYTES}", field=field)
    return value


@arguments.checked_call
def truncate_text(text: str) -> str:
    """Return the text cut to the API's limit (64 bytes of UTF-8), never inside a character."""
    return text.encode()[:TEXT_MAX_BYTES].decode(errors="ignore")


def freeze_attributes(values: Mapping[str, AttributeValue], field: str) -> Mapping[str, AttributeValue]:
    """Return a read-only copy with checked names and values. Raises InventoryError."""
    return types.MappingProxyType(
        {names.check_qualified(name, field): check_attribute(value, f"{field}[{name}]") for name, value in values.items()}
    )


def freeze_counters(counters: Mapping[str, quantity.Amount], field: str) -> Mapping[str, quantity.Quantity]:
    """Return a read-only copy with checked names and parsed values. Raises InventoryError."""
    _check_count(counters, field)
    return types.MappingProxyType({names.check_label(name, field): _amount(value, f"{field}[{name}]") for name, value in counters.items()})


def _check_count(counters: Mapping[str, object], field: str) -> None:
    if len(counters) > COUNTERS_MAX:
        raise errors.InventoryError(f"{len(counters)} counters are over the limit of {COUNTERS_MAX}", field=field)


def _changed(part: _Part, **checked: object) -> _Part:
    """Return an object of a frozen class with other values in some fields."""
    changed = object.__new__(type(part))
    vars(changed).update(vars(part), **checked)
    return changed


def _amount(value: quantity.Amount, field: str) -> quantity.Quantity:
    try:
        amount = quantity.Quantity.of(value)
    except errors.QuantityError as error:
        raise errors.InventoryError(error.reason, field=field) from error
    if amount < quantity.ZERO:
        raise errors.InventoryError("a counter cannot be negative", field=field)
    return amount


def check_includes(includes: tuple[str, ...], field: str) -> None:
    """Raise InventoryError for an invalid mixin name or more than eight names."""
    if len(includes) > INCLUDES_MAX:
        raise errors.InventoryError(f"{len(includes)} includes are over the limit of {INCLUDES_MAX}", field=field)
    for name in includes:
        names.check_label(name, field)


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterSet:
    """The counters of one physical device: counter name to amount."""

    name: str
    counters: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    includes: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __init__(self, *, name: str, counters: Mapping[str, quantity.Amount] = ..., includes: tuple[str, ...] = ()) -> None: ...

    def __post_init__(self) -> None:
        names.check_label(self.name, "counterSet.name")
        object.__setattr__(self, "counters", freeze_counters(self.counters, f"sharedCounters[{self.name}].counters"))
        check_includes(self.includes, f"sharedCounters[{self.name}].includes")


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterConsumption:
    """The amounts that one device takes from one counter set while it is allocated.

    ``compatibility_groups``: devices of one counter set are allocated together only if they all have a group in common, or none of them has any
    (KEP-5963, feature gate DRADeviceCompatibilityGroups, alpha and off by default in Kubernetes 1.37). At most two names.
    """

    counter_set: str
    counters: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    includes: tuple[str, ...] = ()
    compatibility_groups: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            counter_set: str,
            counters: Mapping[str, quantity.Amount] = ...,
            includes: tuple[str, ...] = (),
            compatibility_groups: tuple[str, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        names.check_label(self.counter_set, "consumesCounters.counterSet")
        object.__setattr__(self, "counters", freeze_counters(self.counters, f"consumesCounters[{self.counter_set}].counters"))
        check_includes(self.includes, f"consumesCounters[{self.counter_set}].includes")
        groups, field = self.compatibility_groups, f"consumesCounters[{self.counter_set}].compatibilityGroups"
        if len(groups) > GROUPS_MAX or len(set(groups)) != len(groups) or not all(groups):
            raise errors.InventoryError(f"give at most {GROUPS_MAX} different names, none of them empty", field=field)

    def _flat(self, counters: Mapping[str, quantity.Quantity]) -> Self:
        """Return the consumption with the counters of its mixins, which each mixin has checked."""
        _check_count(counters, f"consumesCounters[{self.counter_set}].counters")
        return _changed(self, includes=(), counters=counters)


class TaintEffect(enum.Enum):
    """The effect of a taint on pods that do not tolerate it."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Taint:
    """A reason not to use a device. ``time_added`` is kept across publications, because eviction counts from it."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE
    time_added: datetime.datetime | None = None

    def __post_init__(self) -> None:
        names.check_label_key(self.key, "taints.key")
        names.check_label_value(self.value, f"taints[{self.key}].value")
        if self.time_added is not None and self.time_added.tzinfo is None:
            raise errors.InventoryError("needs a time zone", field=f"taints[{self.key}].timeAdded")


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A device that the scheduler can allocate to a claim. Raises InventoryError on construction if it breaks a rule of the API.

    - ``attributes``, ``capacity``: keyed by ``id`` (in the driver's own domain) or ``domain/id``.
    - ``consumes``: what an allocation takes from counter sets of the same inventory. Shares of one device take it once.
    - ``binds_to_node``: keep the claim on the node for which it was allocated. Devices of a node's own pools do so anyway.
    - ``includes``: device mixins (author's form only).
    - ``reach``: the nodes that can use the device, if its pool leaves that to each device; None on a pool of one node.
    - ``node_resources``: what the device takes of its node's own resources, by their names, such as ``cpu``.
    - ``pool``: put the device in the pool NODE/``pool`` instead of NODE, the node's own. It is a DNS label. Device names are unique across all pools
      of a node.

    A tuple as an attribute's value is a list, which needs the feature gate DRAListTypeAttributes (alpha and off by default in Kubernetes 1.37). While
    the gate is off, the device is published without that attribute, and a selector that reads it fails. Of a list of NUMA nodes (``drakit.numa``) the
    first one stays.
    """

    name: str
    attributes: Mapping[str, AttributeValue] = dataclasses.field(default_factory=dict)
    capacity: Mapping[str, capacities.Capacity] = dataclasses.field(default_factory=dict)
    consumes: tuple[CounterConsumption, ...] = ()
    allow_multiple_allocations: bool = False
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    reach: node_selection.DeviceNodes | None = None
    node_resources: Mapping[str, resources.NodeResource] = dataclasses.field(default_factory=dict)
    pool: str | None = None

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0913 - the fields
            self,
            *,
            name: str,
            attributes: Mapping[str, AttributeValue] = ...,
            capacity: Mapping[str, capacities.CapacityValue] = ...,
            consumes: tuple[CounterConsumption, ...] = (),
            allow_multiple_allocations: bool = False,
            taints: tuple[Taint, ...] = (),
            binds_to_node: bool = False,
            binding_conditions: tuple[str, ...] = (),
            binding_failure_conditions: tuple[str, ...] = (),
            includes: tuple[str, ...] = (),
            reach: node_selection.DeviceNodes | None = None,
            node_resources: Mapping[str, resources.NodeResource] = ...,
            pool: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        field = f"devices[{self.name}]"
        names.check_label(self.name, f"{field}.name")
        if self.pool is not None:
            names.check_pool_suffix(self.pool, f"{field}.pool")
        object.__setattr__(self, "attributes", freeze_attributes(self.attributes, f"{field}.attributes"))
        object.__setattr__(self, "capacity", capacities.freeze_capacity(self.capacity, f"{field}.capacity"))
        check_includes(self.includes, f"{field}.includes")
        self._check_together(field)

    def _flat(
        self,
        attributes: Mapping[str, AttributeValue],
        capacity: Mapping[str, capacities.Capacity],
        consumes: tuple[CounterConsumption, ...],
    ) -> Self:
        """Return the device with the values of its mixins, which each mixin has checked."""
        flat = _changed(self, includes=(), attributes=attributes, capacity=capacity, consumes=consumes)
        flat._check_together(f"devices[{self.name}]")  # noqa: SLF001 - of this class
        return flat

    def _check_together(self, field: str) -> None:
        """Check the values that depend on each other."""
        capacities_known = None if self.includes else self.capacity
        taken = resources.freeze(self.node_resources, capacities_known, f"{field}.nodeAllocatableResources")
        object.__setattr__(self, "node_resources", taken)
        self._check_limits(field)
        self._check_policies(field)

    def _check_limits(self, field: str) -> None:
        if len(self.attributes) + len(self.capacity) > ATTRIBUTES_AND_CAPACITY_MAX:
            raise errors.InventoryError(f"attributes and capacity together are over {ATTRIBUTES_AND_CAPACITY_MAX}", field=field)
        if sum(len(value) if isinstance(value, tuple) else 1 for value in self.attributes.values()) > ATTRIBUTE_VALUES_MAX:
            raise errors.InventoryError(
                f"attribute values, those in lists included, are over {ATTRIBUTE_VALUES_MAX}", field=f"{field}.attributes"
            )
        if len(self.taints) > TAINTS_MAX:
            raise errors.InventoryError(f"over {TAINTS_MAX} taints", field=f"{field}.taints")
        if len(self.consumes) > CONSUMPTIONS_MAX:
            raise errors.InventoryError(
                f"consumes counters of more than {CONSUMPTIONS_MAX} counter sets", field=f"{field}.consumesCounters"
            )
        if len({part.counter_set for part in self.consumes}) != len(self.consumes):
            raise errors.InventoryError("names a counter set twice", field=f"{field}.consumesCounters")
        if max(len(self.binding_conditions), len(self.binding_failure_conditions)) > CONDITIONS_MAX:
            raise errors.InventoryError(f"over {CONDITIONS_MAX} conditions", field=f"{field}.bindingConditions")
        if bool(self.binding_conditions) != bool(self.binding_failure_conditions):
            raise errors.InventoryError("give bindingFailureConditions too, or neither", field=f"{field}.bindingConditions")
        conditions = (*self.binding_conditions, *self.binding_failure_conditions)
        for condition in conditions:
            names.check_label_key(condition, f"{field}.bindingConditions")
        if len(set(conditions)) != len(conditions):
            raise errors.InventoryError("names a condition twice", field=f"{field}.bindingConditions")

    def _check_policies(self, field: str) -> None:
        if self.allow_multiple_allocations:
            return
        for name, capacity in self.capacity.items():
            if capacity.policy is not None:
                raise errors.InventoryError("needs allowMultipleAllocations", field=f"{field}.capacity[{name}].requestPolicy")

    @property
    def lock_names(self) -> tuple[str, ...]:
        """The sorted names of the locks that guard the hardware behind this device.

        Devices that consume from one counter set are parts of one physical device, so the set's name is the lock. Without a set it is the device's
        name.
        """
        return tuple(sorted(part.counter_set for part in self.consumes)) or (self.name,)

    def pool_on(self, node_pool: str) -> str:
        """Return the name of the device's pool on a node whose own pool is ``node_pool``."""
        return names.pool_of_node(node_pool, self.pool)

    def node_pool(self, pool: str) -> str:
        """Return the node's own pool, given the device's pool; the reverse of ``pool_on``."""
        return pool if self.pool is None else pool.removesuffix(f"/{self.pool}")
