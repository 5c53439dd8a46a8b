"""Shape of a DeviceTaintRule (v1alpha3 and v1beta2): a taint that an admin puts on devices."""

from drakit_cluster.objects.schema import devices, meta
from drakit_cluster.objects.schema.shape import STRING, ListOf, Struct

TAINT_RULE = meta.kind(
    {
        "spec": Struct(
            fields={
                "deviceSelector": Struct(fields={"driver": STRING, "pool": STRING, "device": STRING}),
                "taint": devices.TAINT,
            },
            required=("taint",),
        ),
        "status": Struct(fields={"conditions": ListOf(item=meta.CONDITION, keys=("type",), merge_key="type")}),
    },
    required=("spec",),
)
