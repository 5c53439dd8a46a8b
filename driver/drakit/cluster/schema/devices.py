"""Shapes of what a ResourceSlice offers: devices, capacities, counters, taints, and our mixins."""

from drakit.cluster.schema import formats, meta
from drakit.cluster.schema.shape import (
    BOOLEAN,
    INTEGER,
    QUANTITY,
    TIME,
    ListOf,
    MapOf,
    Struct,
    choice,
    text,
)

MAX_DEVICES = 128
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
MAX_CONSUMED_SETS = 2
MAX_TAINTS = 16
MAX_CONDITIONS = 4
MAX_VALID_VALUES = 10
MAX_INCLUDES = 8

_ATTRIBUTE = Struct(
    fields={
        "int": INTEGER,
        "bool": BOOLEAN,
        "string": text(formats.attribute_string),
        "version": text(formats.semver),
        "ints": ListOf(item=INTEGER),
        "bools": ListOf(item=BOOLEAN),
        "strings": ListOf(item=text(formats.attribute_string)),
        "versions": ListOf(item=text(formats.semver)),
    }
)
_POLICY = Struct(
    fields={
        "default": QUANTITY,
        "validValues": ListOf(item=QUANTITY, limit=MAX_VALID_VALUES),
        "validRange": Struct(fields={"min": QUANTITY, "max": QUANTITY, "step": QUANTITY}, required=("min",)),
    }
)
_CAPACITY = Struct(fields={"value": QUANTITY, "requestPolicy": _POLICY}, required=("value",))
_ATTRIBUTES = MapOf(value=_ATTRIBUTE, format=formats.qualified_name)
_CAPACITIES = MapOf(value=_CAPACITY, format=formats.qualified_name)
_COUNTERS = MapOf(value=Struct(fields={"value": QUANTITY}, required=("value",)), limit=MAX_COUNTERS, format=formats.dns_label)
_INCLUDES = ListOf(item=Struct(fields={"name": text(formats.dns_label)}, required=("name",)), limit=MAX_INCLUDES, name_key="name")
_TAINT = Struct(
    fields={
        "key": text(formats.label_key),
        "value": text(formats.label_value),
        "effect": choice("NoSchedule", "NoExecute", "None"),
        "timeAdded": TIME,
    },
    required=("key", "effect"),
)
_CONDITION_TYPES = ListOf(item=text(formats.label_key), limit=MAX_CONDITIONS, unique=True)
_DEVICE = Struct(
    fields={
        "name": text(formats.dns_label),
        "attributes": _ATTRIBUTES,
        "capacity": _CAPACITIES,
        "consumesCounters": ListOf(
            item=Struct(
                fields={"counterSet": text(formats.dns_label), "counters": _COUNTERS, "includes": _INCLUDES},
                required=("counterSet",),
            ),
            limit=MAX_CONSUMED_SETS,
            name_key="counterSet",
        ),
        "nodeName": text(formats.dns_subdomain),
        "nodeSelector": meta.NODE_SELECTOR,
        "allNodes": BOOLEAN,
        "taints": ListOf(item=_TAINT, limit=MAX_TAINTS),
        "bindsToNode": BOOLEAN,
        "bindingConditions": _CONDITION_TYPES,
        "bindingFailureConditions": _CONDITION_TYPES,
        "allowMultipleAllocations": BOOLEAN,
        "includes": _INCLUDES,
    },
    required=("name",),
)
_COUNTER_SET = Struct(fields={"name": text(formats.dns_label), "counters": _COUNTERS, "includes": _INCLUDES}, required=("name",))


def _mixins(**fields: MapOf) -> ListOf:
    return ListOf(item=Struct(fields={"name": text(formats.dns_label), **fields}, required=("name",)), name_key="name")


_MIXINS = Struct(
    fields={
        "device": _mixins(attributes=_ATTRIBUTES, capacity=_CAPACITIES),
        "counterSet": _mixins(counters=_COUNTERS),
        "deviceCounterConsumption": _mixins(counters=_COUNTERS),
    }
)
SLICE_SPEC = Struct(
    fields={
        "driver": text(formats.driver_name),
        "pool": Struct(
            fields={"name": text(formats.pool_name), "generation": INTEGER, "resourceSliceCount": INTEGER},
            required=("name",),
        ),
        "nodeName": text(formats.dns_subdomain),
        "nodeSelector": meta.NODE_SELECTOR,
        "allNodes": BOOLEAN,
        "perDeviceNodeSelection": BOOLEAN,
        "devices": ListOf(item=_DEVICE, limit=MAX_DEVICES, name_key="name"),
        "sharedCounters": ListOf(item=_COUNTER_SET, limit=MAX_COUNTER_SETS, name_key="name"),
        "mixins": _MIXINS,
    },
    required=("driver", "pool"),
)
SLICE = meta.kind({"spec": SLICE_SPEC}, required=("spec",))
