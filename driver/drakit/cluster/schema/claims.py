"""Shapes of what users ask for and get: DeviceClass, ResourceClaim, ResourceClaimTemplate."""

from drakit.cluster.schema import formats, meta
from drakit.cluster.schema.shape import (
    ANY,
    BOOLEAN,
    INTEGER,
    QUANTITY,
    STRING,
    TIME,
    ListOf,
    MapOf,
    Shape,
    Struct,
    choice,
    text,
)

MAX_REQUESTS = 32
MAX_SUBREQUESTS = 8
MAX_SELECTORS = 32
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
MAX_TOLERATIONS = 16
MAX_RESULTS = 32
MAX_RESULT_CONFIGS = 64
MAX_RESERVED = 256
MAX_STATUS_CONDITIONS = 8
MAX_BINDING_CONDITIONS = 4
MAX_IPS = 16

_SELECTORS = ListOf(
    item=Struct(
        fields={"cel": Struct(fields={"expression": STRING}, required=("expression",))},
        required=("cel",),
    ),
    limit=MAX_SELECTORS,
)
_TOLERATIONS = ListOf(
    item=Struct(
        fields={
            "key": text(formats.label_key),
            "operator": choice("Exists", "Equal"),
            "value": text(formats.label_value),
            "effect": choice("NoSchedule", "NoExecute", "None"),
            "tolerationSeconds": INTEGER,
        }
    ),
    limit=MAX_TOLERATIONS,
)
_SUBREQUEST: dict[str, Shape] = {
    "deviceClassName": text(formats.dns_subdomain),
    "selectors": _SELECTORS,
    "allocationMode": choice("ExactCount", "All"),
    "count": INTEGER,
    "tolerations": _TOLERATIONS,
    "capacity": Struct(fields={"requests": MapOf(value=QUANTITY, format=formats.qualified_name)}),
}
_REQUEST = Struct(
    fields={
        "name": text(formats.dns_label),
        "exactly": Struct(fields=_SUBREQUEST | {"adminAccess": BOOLEAN}, required=("deviceClassName",)),
        "firstAvailable": ListOf(
            item=Struct(fields=_SUBREQUEST | {"name": text(formats.dns_label)}, required=("name", "deviceClassName")),
            limit=MAX_SUBREQUESTS,
            name_key="name",
        ),
    },
    required=("name",),
)
_REQUEST_NAMES = ListOf(item=STRING, limit=MAX_REQUESTS, unique=True)
_OPAQUE = Struct(fields={"driver": text(formats.driver_name), "parameters": ANY}, required=("driver", "parameters"))
_CLAIM_SPEC = Struct(
    fields={
        "devices": Struct(
            fields={
                "requests": ListOf(item=_REQUEST, limit=MAX_REQUESTS, name_key="name"),
                "constraints": ListOf(
                    item=Struct(
                        fields={
                            "requests": _REQUEST_NAMES,
                            "matchAttribute": text(formats.fully_qualified_name),
                            "distinctAttribute": text(formats.fully_qualified_name),
                        }
                    ),
                    limit=MAX_CONSTRAINTS,
                ),
                "config": ListOf(
                    item=Struct(fields={"requests": _REQUEST_NAMES, "opaque": _OPAQUE}, required=("opaque",)),
                    limit=MAX_CONFIGS,
                ),
            }
        )
    }
)
_CONDITION_TYPES = ListOf(item=text(formats.label_key), limit=MAX_BINDING_CONDITIONS, unique=True)
_RESULT = Struct(
    fields={
        "request": STRING,
        "driver": text(formats.driver_name),
        "pool": text(formats.pool_name),
        "device": text(formats.dns_label),
        "adminAccess": BOOLEAN,
        "tolerations": _TOLERATIONS,
        "bindingConditions": _CONDITION_TYPES,
        "bindingFailureConditions": _CONDITION_TYPES,
        "shareID": text(formats.uuid),
        "consumedCapacity": MapOf(value=QUANTITY, format=formats.qualified_name),
    },
    required=("request", "driver", "pool", "device"),
)
_ALLOCATION = Struct(
    fields={
        "devices": Struct(
            fields={
                "results": ListOf(item=_RESULT, limit=MAX_RESULTS),
                "config": ListOf(
                    item=Struct(
                        fields={
                            "source": choice("FromClass", "FromClaim"),
                            "requests": _REQUEST_NAMES,
                            "opaque": _OPAQUE,
                        },
                        required=("source", "opaque"),
                    ),
                    limit=MAX_RESULT_CONFIGS,
                ),
            }
        ),
        "nodeSelector": meta.NODE_SELECTOR,
        "allocationTimestamp": TIME,
    }
)
_RESERVATION = Struct(fields={"apiGroup": STRING, "resource": STRING, "name": STRING, "uid": STRING}, required=("resource", "name", "uid"))
_DEVICE_STATUS = Struct(
    fields={
        "driver": text(formats.driver_name),
        "pool": text(formats.pool_name),
        "device": text(formats.dns_label),
        "shareID": text(formats.uuid),
        "conditions": ListOf(item=meta.CONDITION, limit=MAX_STATUS_CONDITIONS, keys=("type",)),
        "data": ANY,
        "networkData": Struct(
            fields={
                "interfaceName": STRING,
                "ips": ListOf(item=STRING, limit=MAX_IPS),
                "hardwareAddress": STRING,
            }
        ),
    },
    required=("driver", "pool", "device"),
)
DEVICE_STATUS_KEYS = ("driver", "device", "pool", "shareID")
_CLAIM_STATUS = Struct(
    fields={
        "allocation": _ALLOCATION,
        "reservedFor": ListOf(item=_RESERVATION, limit=MAX_RESERVED, keys=("uid",), merge_key="uid"),
        "devices": ListOf(item=_DEVICE_STATUS, keys=DEVICE_STATUS_KEYS),
    }
)
CLAIM = meta.kind({"spec": _CLAIM_SPEC, "status": _CLAIM_STATUS}, required=("spec",))
TEMPLATE = meta.kind({"spec": Struct(fields={"metadata": meta.OBJECT_META, "spec": _CLAIM_SPEC}, required=("spec",))}, required=("spec",))
CLASS = meta.kind(
    {
        "spec": Struct(
            fields={
                "selectors": _SELECTORS,
                "config": ListOf(item=Struct(fields={"opaque": _OPAQUE}, required=("opaque",)), limit=MAX_CONFIGS),
                "extendedResourceName": STRING,
            }
        )
    },
    required=("spec",),
)
