"""Shapes of what users ask for and get: DeviceClass, ResourceClaim, ResourceClaimTemplate."""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import STRING, ListOf, by_key, struct

OPERATIONS = ListOf(item=STRING, unique=True)
SELECTORS = ListOf(item=struct("cel!", cel=struct("expression!")))
_TOLERATIONS = ListOf(item=struct("key operator value effect tolerationSeconds:int"))
_DERIVED = ListOf(item=struct("name! expression!"))
_EXACTLY = struct(
    "deviceClassName! allocationMode count:count adminAccess:bool",
    selectors=SELECTORS,
    derivedAttributes=_DERIVED,
    tolerations=_TOLERATIONS,
    capacity=struct("requests:{quantity}"),
)
_ALTERNATIVE = struct(
    "name! deviceClassName! allocationMode count:count",
    selectors=SELECTORS,
    derivedAttributes=_DERIVED,
    tolerations=_TOLERATIONS,
    capacity=struct("requests:{quantity}"),
)
_OPAQUE = struct("driver! parameters:raw!")
CONFIG = ListOf(item=struct("opaque!", opaque=_OPAQUE))
_USER = struct("apiGroup resource! name! uid!")
CLAIM_SPEC = struct(
    "",
    devices=struct(
        "",
        requests=ListOf(item=struct("name!", exactly=_EXACTLY, firstAvailable=ListOf(item=_ALTERNATIVE))),
        constraints=ListOf(item=struct("requests:[] matchAttribute distinctAttribute")),
        config=ListOf(item=struct("requests:[] opaque!", opaque=_OPAQUE)),
    ),
    reservedFor=_USER,
)
_RESULT = struct(
    """request! driver! pool! device! adminAccess:bool bindingConditions:[] bindingFailureConditions:[] shareID
    consumedCapacity:{quantity}""",
    tolerations=_TOLERATIONS,
    skipNodeOperations=OPERATIONS,
)
ALLOCATION = struct(
    "allocationTimestamp:time reservedForAnyPod:bool",
    devices=struct(results=ListOf(item=_RESULT), config=ListOf(item=struct("source! requests:[] opaque!", opaque=_OPAQUE))),
    nodeSelector=meta.NODE_SELECTOR,
)
_DEVICE_STATUS = struct(
    "driver! pool! device! shareID data:raw", conditions=meta.CONDITIONS, networkData=struct("interfaceName ips:[] hardwareAddress")
)
DEVICE_STATUS_KEYS = ("driver", "device", "pool", "shareID")
_STATUS = struct(allocation=ALLOCATION, reservedFor=by_key("uid", _USER), devices=ListOf(item=_DEVICE_STATUS, keys=DEVICE_STATUS_KEYS))
TEMPLATE_SPEC = struct("spec!", metadata=meta.OBJECT_META, spec=CLAIM_SPEC)
CLASS_SPEC = struct("extendedResourceName", selectors=SELECTORS, config=CONFIG)
CLAIM = meta.kind("spec!", spec=CLAIM_SPEC, status=_STATUS)
TEMPLATE = meta.kind("spec!", spec=TEMPLATE_SPEC)
CLASS = meta.kind("spec!", spec=CLASS_SPEC)
