"""Shapes of what users ask for and get: DeviceClass, ResourceClaim, ResourceClaimTemplate."""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import BOOLEAN, COUNT, INTEGER, QUANTITY, RAW, STRING, TIME, ListOf, MapOf, Shape, Struct

_STRINGS = ListOf(item=STRING)
SELECTORS = ListOf(item=Struct(fields={"cel": Struct(fields={"expression": STRING}, required=("expression",))}, required=("cel",)))
_TOLERATIONS = ListOf(
    item=Struct(fields={"key": STRING, "operator": STRING, "value": STRING, "effect": STRING, "tolerationSeconds": INTEGER})
)
_SUBREQUEST: dict[str, Shape] = {
    "deviceClassName": STRING,
    "selectors": SELECTORS,
    "allocationMode": STRING,
    "count": COUNT,
    "tolerations": _TOLERATIONS,
    "capacity": Struct(fields={"requests": MapOf(value=QUANTITY)}),
}
_REQUEST = Struct(
    fields={
        "name": STRING,
        "exactly": Struct(fields=_SUBREQUEST | {"adminAccess": BOOLEAN}, required=("deviceClassName",)),
        "firstAvailable": ListOf(item=Struct(fields=_SUBREQUEST | {"name": STRING}, required=("name", "deviceClassName"))),
    },
    required=("name",),
)
_OPAQUE = Struct(fields={"driver": STRING, "parameters": RAW}, required=("driver", "parameters"))
CONFIG = ListOf(item=Struct(fields={"opaque": _OPAQUE}, required=("opaque",)))
_RESERVATION = Struct(fields={"apiGroup": STRING, "resource": STRING, "name": STRING, "uid": STRING}, required=("resource", "name", "uid"))
CLAIM_SPEC = Struct(
    fields={
        "devices": Struct(
            fields={
                "requests": ListOf(item=_REQUEST),
                "constraints": ListOf(item=Struct(fields={"requests": _STRINGS, "matchAttribute": STRING, "distinctAttribute": STRING})),
                "config": ListOf(item=Struct(fields={"requests": _STRINGS, "opaque": _OPAQUE}, required=("opaque",))),
            }
        ),
        "reservedFor": _RESERVATION,
    }
)
_RESULT = Struct(
    fields={
        "request": STRING,
        "driver": STRING,
        "pool": STRING,
        "device": STRING,
        "adminAccess": BOOLEAN,
        "tolerations": _TOLERATIONS,
        "bindingConditions": _STRINGS,
        "bindingFailureConditions": _STRINGS,
        "shareID": STRING,
        "consumedCapacity": MapOf(value=QUANTITY),
    },
    required=("request", "driver", "pool", "device"),
)
ALLOCATION = Struct(
    fields={
        "devices": Struct(
            fields={
                "results": ListOf(item=_RESULT),
                "config": ListOf(
                    item=Struct(fields={"source": STRING, "requests": _STRINGS, "opaque": _OPAQUE}, required=("source", "opaque"))
                ),
            }
        ),
        "nodeSelector": meta.NODE_SELECTOR,
        "allocationTimestamp": TIME,
        "reservedForAnyPod": BOOLEAN,
    }
)
_DEVICE_STATUS = Struct(
    fields={
        "driver": STRING,
        "pool": STRING,
        "device": STRING,
        "shareID": STRING,
        "conditions": ListOf(item=meta.CONDITION, keys=("type",)),
        "data": RAW,
        "networkData": Struct(fields={"interfaceName": STRING, "ips": _STRINGS, "hardwareAddress": STRING}),
    },
    required=("driver", "pool", "device"),
)
DEVICE_STATUS_KEYS = ("driver", "device", "pool", "shareID")
_CLAIM_STATUS = Struct(
    fields={
        "allocation": ALLOCATION,
        "reservedFor": ListOf(item=_RESERVATION, keys=("uid",), merge_key="uid"),
        "devices": ListOf(item=_DEVICE_STATUS, keys=DEVICE_STATUS_KEYS),
    }
)
TEMPLATE_SPEC = Struct(fields={"metadata": meta.OBJECT_META, "spec": CLAIM_SPEC}, required=("spec",))
CLAIM = meta.kind({"spec": CLAIM_SPEC, "status": _CLAIM_STATUS}, required=("spec",))
TEMPLATE = meta.kind({"spec": TEMPLATE_SPEC}, required=("spec",))
CLASS_SPEC = Struct(fields={"selectors": SELECTORS, "config": CONFIG, "extendedResourceName": STRING})
CLASS = meta.kind({"spec": CLASS_SPEC}, required=("spec",))
