"""Shapes of what runs and configures a driver: DaemonSet, Deployment, Lease, Secret, ConfigMap, ServiceAccount.

Shapes of the core kinds. They are open: only fields that this cluster reads, merges or applies by key are described.
"""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import ANY, BOOLEAN, INTEGER, STRING, TIME, ListOf, MapOf, Shape, Struct


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
_STRINGS = ListOf(item=STRING)
_POD_TERM = Struct(
    fields={
        "labelSelector": meta.LABEL_SELECTOR,
        "matchLabelKeys": _STRINGS,
        "mismatchLabelKeys": _STRINGS,
        "namespaces": _STRINGS,
        "namespaceSelector": meta.LABEL_SELECTOR,
        "topologyKey": STRING,
    },
    required=("topologyKey",),
)
_NODE_TERM = Struct(fields={"matchExpressions": ListOf(item=meta.REQUIREMENT), "matchFields": ListOf(item=meta.REQUIREMENT)})


def _affinity(required: Shape, term: str, preferred: Shape) -> Struct:
    """Return what must hold, and what is preferred by weight, while a pod is scheduled."""
    weighted = Struct(fields={"weight": INTEGER, term: preferred}, required=("weight", term))
    when = "DuringSchedulingIgnoredDuringExecution"
    return Struct(fields={f"required{when}": required, f"preferred{when}": ListOf(item=weighted)})


_BETWEEN_PODS = _affinity(ListOf(item=_POD_TERM), "podAffinityTerm", _POD_TERM)
_AFFINITY = Struct(
    fields={
        "nodeAffinity": _affinity(meta.NODE_SELECTOR, "preference", _NODE_TERM),
        "podAffinity": _BETWEEN_PODS,
        "podAntiAffinity": _BETWEEN_PODS,
    }
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
        "affinity": _AFFINITY,
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
    fields={"phase": STRING, "conditions": _keyed("type"), "resourceClaimStatuses": _named(resourceClaimName=STRING)}, open=True
)
_NODE_SPEC = Struct(fields={"taints": _keyed("key"), "unschedulable": BOOLEAN}, open=True)
_NODE_STATUS = Struct(fields={"conditions": _keyed("type"), "addresses": _keyed("type")}, open=True)

POD = meta.kind({"spec": _POD_SPEC, "status": _POD_STATUS}, required=("spec",), is_open=True)
NODE = meta.kind({"spec": _NODE_SPEC, "status": _NODE_STATUS}, is_open=True)
OTHER = meta.kind({}, is_open=True)


_TEMPLATE = Struct(fields={"metadata": meta.OBJECT_META, "spec": POD.fields["spec"]}, required=("spec",))
_CONDITIONS = ListOf(item=Struct(fields={"type": STRING}, open=True), keys=("type",), merge_key="type")
_COUNTS = ("observedGeneration", "replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas")
_DAEMON_COUNTS = (
    "observedGeneration",
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "numberAvailable",
    "numberUnavailable",
    "updatedNumberScheduled",
)


def _status(*counts: str) -> Struct:
    known: dict[str, Shape] = dict.fromkeys(counts, INTEGER)
    return Struct(fields=known | {"collisionCount": INTEGER, "conditions": _CONDITIONS})


def _strategy(field: str) -> dict[str, Shape]:
    return {field: Struct(fields={"type": STRING, "rollingUpdate": ANY})}


_SPEC: dict[str, Shape] = {
    "selector": meta.LABEL_SELECTOR,
    "template": _TEMPLATE,
    "minReadySeconds": INTEGER,
    "revisionHistoryLimit": INTEGER,
}
_NEEDED = ("selector", "template")

DAEMON_SET = meta.kind(
    {"spec": Struct(fields=_SPEC | _strategy("updateStrategy"), required=_NEEDED), "status": _status(*_DAEMON_COUNTS)}, required=("spec",)
)
DEPLOYMENT = meta.kind(
    {
        "spec": Struct(
            fields=_SPEC | _strategy("strategy") | {"replicas": INTEGER, "paused": BOOLEAN, "progressDeadlineSeconds": INTEGER},
            required=_NEEDED,
        ),
        "status": _status(*_COUNTS),
    },
    required=("spec",),
)
LEASE = meta.kind(
    {
        "spec": Struct(
            fields={
                "holderIdentity": STRING,
                "leaseDurationSeconds": INTEGER,
                "acquireTime": TIME,
                "renewTime": TIME,
                "leaseTransitions": INTEGER,
                "strategy": STRING,
                "preferredHolder": STRING,
            }
        )
    }
)
SECRET = meta.kind({"type": STRING, "data": MapOf(value=STRING), "stringData": MapOf(value=STRING), "immutable": BOOLEAN})
CONFIG_MAP = meta.kind({"data": MapOf(value=STRING), "binaryData": MapOf(value=STRING), "immutable": BOOLEAN})
_REFERENCES = ListOf(item=Struct(fields={"name": STRING}, open=True), keys=("name",), merge_key="name")
SERVICE_ACCOUNT = meta.kind({"secrets": _REFERENCES, "imagePullSecrets": _REFERENCES, "automountServiceAccountToken": BOOLEAN})
