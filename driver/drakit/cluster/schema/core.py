"""Shapes of the core kinds. They are open: only fields that this cluster reads, merges or applies by key are described."""

from drakit.cluster.schema import meta
from drakit.cluster.schema.shape import ANY, BOOLEAN, INTEGER, STRING, ListOf, MapOf, Shape, Struct


def _named(**fields: Shape) -> ListOf:
    """Return a list of open objects merged by their name."""
    item = Struct(fields={"name": STRING, **fields}, required=("name",), open=True)
    return ListOf(item=item, keys=("name",), merge_key="name")


def _keyed(key: str) -> ListOf:
    return ListOf(item=Struct(fields={key: STRING}, required=(key,), open=True), keys=(key,), merge_key=key)


_CONTAINERS = _named(
    image=STRING,
    command=ListOf(item=STRING),
    args=ListOf(item=STRING),
    env=_named(value=STRING),
    volumeMounts=_keyed("mountPath"),
    volumeDevices=_keyed("devicePath"),
    resources=Struct(fields={"claims": ListOf(item=ANY)}, open=True),
)
_RESOURCE_CLAIMS = _named(resourceClaimName=STRING, resourceClaimTemplateName=STRING)
_POD_SPEC = Struct(
    fields={
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "volumes": _named(),
        "imagePullSecrets": _named(),
        "resourceClaims": _RESOURCE_CLAIMS,
        "nodeName": STRING,
        "nodeSelector": MapOf(value=STRING),
        "restartPolicy": STRING,
        "schedulerName": STRING,
        "terminationGracePeriodSeconds": INTEGER,
        "tolerations": ListOf(item=ANY),
        "hostNetwork": BOOLEAN,
    },
    required=("containers",),
    open=True,
)
_POD_STATUS = Struct(
    fields={"phase": STRING, "conditions": _keyed("type"), "resourceClaimStatuses": _named(resourceClaimName=STRING)},
    open=True,
)
_NODE_SPEC = Struct(fields={"taints": _keyed("key"), "unschedulable": BOOLEAN}, open=True)
_NODE_STATUS = Struct(fields={"conditions": _keyed("type"), "addresses": _keyed("type")}, open=True)

POD = meta.kind({"spec": _POD_SPEC, "status": _POD_STATUS}, required=("spec",), is_open=True)
NODE = meta.kind({"spec": _NODE_SPEC, "status": _NODE_STATUS}, is_open=True)
OTHER = meta.kind({}, is_open=True)
