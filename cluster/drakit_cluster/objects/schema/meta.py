"""Shapes shared by all kinds: ObjectMeta, conditions, node selectors."""

from drakit_cluster.objects.schema.shape import ANY, BOOLEAN, INTEGER, STRING, TIME, ListOf, MapOf, Shape, Struct

_OWNER = Struct(
    fields={"apiVersion": STRING, "kind": STRING, "name": STRING, "uid": STRING, "controller": BOOLEAN, "blockOwnerDeletion": BOOLEAN},
    required=("apiVersion", "kind", "name", "uid"),
)
_MANAGED_FIELDS = Struct(
    fields={
        "manager": STRING,
        "operation": STRING,
        "apiVersion": STRING,
        "time": TIME,
        "fieldsType": STRING,
        "fieldsV1": ANY,
        "subresource": STRING,
    }
)
OBJECT_META = Struct(
    fields={
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "selfLink": STRING,
        "uid": STRING,
        "resourceVersion": STRING,
        "generation": INTEGER,
        "creationTimestamp": TIME,
        "deletionTimestamp": TIME,
        "deletionGracePeriodSeconds": INTEGER,
        "labels": MapOf(value=STRING),
        "annotations": MapOf(value=STRING),
        "ownerReferences": ListOf(item=_OWNER, keys=("uid",), merge_key="uid"),
        "finalizers": ListOf(item=STRING, unique=True),
        "managedFields": ListOf(item=_MANAGED_FIELDS),
    }
)
CONDITION = Struct(
    fields={
        "type": STRING,
        "status": STRING,
        "observedGeneration": INTEGER,
        "lastTransitionTime": TIME,
        "reason": STRING,
        "message": STRING,
    },
    required=("type", "status", "lastTransitionTime", "reason"),
)
REQUIREMENT = Struct(fields={"key": STRING, "operator": STRING, "values": ListOf(item=STRING)}, required=("key", "operator"))
NODE_SELECTOR = Struct(
    fields={
        "nodeSelectorTerms": ListOf(
            item=Struct(fields={"matchExpressions": ListOf(item=REQUIREMENT), "matchFields": ListOf(item=REQUIREMENT)})
        )
    },
    required=("nodeSelectorTerms",),
    atomic=True,
)
LABEL_SELECTOR = Struct(fields={"matchLabels": MapOf(value=STRING), "matchExpressions": ListOf(item=REQUIREMENT)}, atomic=True)


def kind(fields: dict[str, Shape], *, required: tuple[str, ...] = (), is_open: bool = False) -> Struct:
    """Return the shape of a whole kind: ``fields`` beside apiVersion, kind and metadata."""
    head: dict[str, Shape] = {"apiVersion": STRING, "kind": STRING, "metadata": OBJECT_META}
    return Struct(fields=head | fields, required=required, open=is_open)
