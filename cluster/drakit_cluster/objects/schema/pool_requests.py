"""Shape of a ResourcePoolStatusRequest (v1alpha3): a question about the pools of a driver, answered once."""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import INTEGER, STRING, ListOf, Struct

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
