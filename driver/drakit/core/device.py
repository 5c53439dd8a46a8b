"""A device as a driver offers it (resource.k8s.io/v1 ResourceSlice.spec.devices[])."""

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from drakit.core import attribute, counters, errors, mixins, names, policy
from drakit.core import reach as reaches

ATTRIBUTES_AND_CAPACITY_MAX = 32
TAINTS_MAX = 16
ATTRIBUTE_VALUES_MAX = 48
CONSUMPTIONS_MAX = 2
CONDITIONS_MAX = 4


class TaintEffect(enum.Enum):
    """What a taint does to pods that do not tolerate it."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """One thing a claim can be given.

    ``attributes`` and ``capacity`` are keyed by ``id`` (in the driver's own domain) or ``domain/id``. ``consumes`` is what an allocation takes
    from counter sets of the same inventory; shares of one device draw once. ``binds_to_node`` keeps the claim on the node for which it was
    allocated, which devices of a node's own pool do anyway. ``includes`` names device mixins (author form only). ``reach`` says from which nodes the
    device can be used, where its pool leaves that to each device; None on a pool of one node. Raises InventoryError on construction when a rule of
    the API is broken.
    """

    name: str
    attributes: Mapping[str, attribute.AttributeValue] = dataclasses.field(default_factory=dict)
    capacity: Mapping[str, policy.Capacity] = dataclasses.field(default_factory=dict)
    consumes: tuple[counters.CounterConsumption, ...] = ()
    allow_multiple_allocations: bool = False
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    reach: reaches.OfDevice | None = None

    def __post_init__(self) -> None:
        names.check_label(self.name, "devices.name")
        field = f"devices[{self.name}]"
        object.__setattr__(self, "attributes", mixins.freeze_attributes(self.attributes, f"{field}.attributes"))
        object.__setattr__(self, "capacity", mixins.freeze_capacity(self.capacity, f"{field}.capacity"))
        counters.check_includes(self.includes, f"{field}.includes")
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
            raise errors.InventoryError(f"draws from over {CONSUMPTIONS_MAX} counter sets", field=f"{field}.consumesCounters")
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
        """Names of the locks that guard the hardware behind this device, sorted.

        Devices that draw from one counter set are parts of one physical device, so the set's name is the lock; a device with no set is its own.
        """
        return tuple(sorted(part.counter_set for part in self.consumes)) or (self.name,)
