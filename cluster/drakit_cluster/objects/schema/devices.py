"""Shapes of what a ResourceSlice offers: devices, capacities, counters, taints, and our mixins.

Shape of a DeviceTaintRule (v1alpha3 and v1beta2): a taint that an admin puts on devices.

Shape of a ResourcePoolStatusRequest (v1alpha3): a question about the pools of a driver, answered once.
"""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import BOOLEAN, INTEGER, QUANTITY, STRING, TIME, ListOf, MapOf, Struct

_NOTHING = {"value": "0"}
"""What a capacity or counter without a value holds."""

_STRINGS = ListOf(item=STRING)
_ATTRIBUTE = Struct(
    fields={
        "int": INTEGER,
        "bool": BOOLEAN,
        "string": STRING,
        "version": STRING,
        "ints": ListOf(item=INTEGER),
        "bools": ListOf(item=BOOLEAN),
        "strings": _STRINGS,
        "versions": _STRINGS,
    }
)
_POLICY = Struct(
    fields={
        "default": QUANTITY,
        "validValues": ListOf(item=QUANTITY),
        "validRange": Struct(fields={"min": QUANTITY, "max": QUANTITY, "step": QUANTITY}, required=("min",)),
    }
)
CAPACITY = Struct(fields={"value": QUANTITY, "requestPolicy": _POLICY}, required=("value",), zero=_NOTHING)
_ATTRIBUTES = MapOf(value=_ATTRIBUTE)
_CAPACITIES = MapOf(value=CAPACITY)
_COUNTERS = MapOf(value=Struct(fields={"value": QUANTITY}, required=("value",), zero=_NOTHING))
_INCLUDES = ListOf(item=Struct(fields={"name": STRING}, required=("name",)))
TAINT = Struct(fields={"key": STRING, "value": STRING, "effect": STRING, "timeAdded": TIME}, required=("key", "effect"))
TAINTS = ListOf(item=TAINT)
_MAPPINGS = MapOf(value=Struct(fields={"allocationMultiplier": QUANTITY, "capacityKey": STRING}))
_DEVICE = Struct(
    fields={
        "name": STRING,
        "attributes": _ATTRIBUTES,
        "capacity": _CAPACITIES,
        "consumesCounters": ListOf(
            item=Struct(fields={"counterSet": STRING, "counters": _COUNTERS, "includes": _INCLUDES}, required=("counterSet",))
        ),
        "nodeName": STRING,
        "nodeSelector": meta.NODE_SELECTOR,
        "allNodes": BOOLEAN,
        "taints": TAINTS,
        "bindsToNode": BOOLEAN,
        "bindingConditions": _STRINGS,
        "bindingFailureConditions": _STRINGS,
        "allowMultipleAllocations": BOOLEAN,
        "nodeAllocatableResourceMappings": _MAPPINGS,
        "includes": _INCLUDES,
    },
    required=("name",),
)
_COUNTER_SET = Struct(fields={"name": STRING, "counters": _COUNTERS, "includes": _INCLUDES}, required=("name",))


def _mixins(**fields: MapOf) -> ListOf:
    return ListOf(item=Struct(fields={"name": STRING, **fields}, required=("name",)))


_MIXINS = Struct(
    fields={
        "device": _mixins(attributes=_ATTRIBUTES, capacity=_CAPACITIES),
        "counterSet": _mixins(counters=_COUNTERS),
        "deviceCounterConsumption": _mixins(counters=_COUNTERS),
    }
)
SLICE_SPEC = Struct(
    fields={
        "driver": STRING,
        "pool": Struct(fields={"name": STRING, "generation": INTEGER, "resourceSliceCount": INTEGER}, required=("name",)),
        "nodeName": STRING,
        "nodeSelector": meta.NODE_SELECTOR,
        "allNodes": BOOLEAN,
        "perDeviceNodeSelection": BOOLEAN,
        "devices": ListOf(item=_DEVICE),
        "sharedCounters": ListOf(item=_COUNTER_SET),
        "mixins": _MIXINS,
    },
    required=("driver", "pool"),
)
SLICE = meta.kind({"spec": SLICE_SPEC}, required=("spec",))


TAINT_RULE = meta.kind(
    {
        "spec": Struct(
            fields={"deviceSelector": Struct(fields={"driver": STRING, "pool": STRING, "device": STRING}), "taint": TAINT},
            required=("taint",),
        ),
        "status": Struct(fields={"conditions": ListOf(item=meta.CONDITION, keys=("type",), merge_key="type")}),
    },
    required=("spec",),
)


_POOL = Struct(
    fields={
        "driver": STRING,
        "poolName": STRING,
        "generation": INTEGER,
        "resourceSliceCount": INTEGER,
        "totalDevices": INTEGER,
        "allocatedDevices": INTEGER,
        "availableDevices": INTEGER,
        "unavailableDevices": INTEGER,
        "nodeName": STRING,
        "validationError": STRING,
    },
    required=("driver", "poolName", "generation"),
)
POOL_REQUEST = meta.kind(
    {
        "spec": Struct(fields={"driver": STRING, "poolName": STRING, "limit": INTEGER}, required=("driver",)),
        "status": Struct(
            fields={
                "poolCount": INTEGER,
                "pools": ListOf(item=_POOL),
                "conditions": ListOf(item=meta.CONDITION, keys=("type",), merge_key="type"),
            },
            required=("poolCount",),
        ),
    },
    required=("metadata", "spec"),
)
