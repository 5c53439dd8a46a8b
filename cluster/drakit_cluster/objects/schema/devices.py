"""Shapes of what drivers and admins say of devices: ResourceSlice (with our mixins), DeviceTaintRule, ResourcePoolStatusRequest."""

from dataclasses import replace

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import STRING, ListOf, MapOf, by_key, struct

_NOTHING = {"value": "0"}
"""What a capacity or counter without a value holds."""
_POLICY = struct("default:quantity validValues:[quantity]", validRange=struct("min:quantity! max:quantity step:quantity"))
CAPACITY = replace(struct("value:quantity!", requestPolicy=_POLICY), zero=_NOTHING)
_ATTRIBUTES = MapOf(value=struct("int:int bool:bool string version ints:[int] bools:[bool] strings:[] versions:[]"))
_CAPACITIES = MapOf(value=CAPACITY)
_COUNTERS = MapOf(value=replace(struct("value:quantity!"), zero=_NOTHING))
_INCLUDES = ListOf(item=struct("name!"))
TAINT = struct("key! value effect! timeAdded:time")
TAINTS = ListOf(item=TAINT)
_DEVICE = struct(
    "name! nodeName allNodes:bool bindsToNode:bool bindingConditions:[] bindingFailureConditions:[] allowMultipleAllocations:bool",
    attributes=_ATTRIBUTES,
    capacity=_CAPACITIES,
    consumesCounters=ListOf(item=struct("counterSet! compatibilityGroups:[]", counters=_COUNTERS, includes=_INCLUDES)),
    nodeSelector=meta.NODE_SELECTOR,
    taints=TAINTS,
    nodeAllocatableResourceMappings=MapOf(value=struct("allocationMultiplier:quantity capacityKey")),
    nodeAllocatableResources=MapOf(
        value=struct(
            mapping=struct("capacityKey capacityMultiplier:quantity deviceMultiplier:quantity"),
            overhead=struct("perPod:quantity perContainer:quantity"),
        )
    ),
    includes=_INCLUDES,
)
_COUNTER_MIXINS = ListOf(item=struct("name!", counters=_COUNTERS))
_MIXINS = struct(
    "",
    device=ListOf(item=struct("name!", attributes=_ATTRIBUTES, capacity=_CAPACITIES)),
    counterSet=_COUNTER_MIXINS,
    deviceCounterConsumption=_COUNTER_MIXINS,
)
SLICE_SPEC = struct(
    "driver! pool! nodeName allNodes:bool perDeviceNodeSelection:bool partitionTypeAttribute",
    pool=struct("name! generation:int resourceSliceCount:int"),
    nodeSelector=meta.NODE_SELECTOR,
    devices=ListOf(item=_DEVICE),
    sharedCounters=ListOf(item=struct("name!", counters=_COUNTERS, includes=_INCLUDES)),
    skipNodeOperations=ListOf(item=STRING, unique=True),
    mixins=_MIXINS,
)
SLICE = meta.kind("spec!", spec=SLICE_SPEC)
_CONDITIONS = by_key("type", meta.CONDITION)
TAINT_RULE = meta.kind(
    "spec!", spec=struct("taint!", deviceSelector=struct("driver pool device"), taint=TAINT), status=struct(conditions=_CONDITIONS)
)
_POOL = struct(
    """driver! poolName! generation:int! resourceSliceCount:int totalDevices:int allocatedDevices:int availableDevices:int
    unavailableDevices:int nodeName validationError""",
    partitionSummary=ListOf(item=struct("attribute! type! total:int! allocatable:int!")),
    shareableSummary=struct(
        "fullyAvailableDevices:int! partiallyAvailableDevices:int!",
        capacity=ListOf(item=struct("name! total:quantity! consumed:quantity! available:quantity!")),
    ),
)
POOL_REQUEST = meta.kind(
    "metadata! spec!",
    spec=struct("driver! poolName limit:int defaultPartitionTypeAttribute"),
    status=struct("poolCount:int!", pools=ListOf(item=_POOL), conditions=_CONDITIONS),
)
