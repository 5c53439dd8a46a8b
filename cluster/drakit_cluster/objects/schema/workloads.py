"""Shapes of what runs and configures a driver: DaemonSet, Deployment, Lease, Secret, ConfigMap, ServiceAccount."""

from drakit_cluster.objects.schema import core, meta
from drakit_cluster.objects.schema.shape import ANY, BOOLEAN, INTEGER, STRING, TIME, ListOf, MapOf, Shape, Struct

_TEMPLATE = Struct(fields={"metadata": meta.OBJECT_META, "spec": core.POD.fields["spec"]}, required=("spec",))
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
    {"spec": Struct(fields=_SPEC | _strategy("updateStrategy"), required=_NEEDED), "status": _status(*_DAEMON_COUNTS)},
    required=("spec",),
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
