"""Shapes of roles, their bindings, and the reviews that ask about them."""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import ANY, INTEGER, STRING, TIME, ListOf, MapOf, Shape, Struct

_STRINGS = ListOf(item=STRING)
_RULES = ListOf(
    item=Struct(
        fields={"verbs": _STRINGS, "apiGroups": _STRINGS, "resources": _STRINGS, "resourceNames": _STRINGS, "nonResourceURLs": _STRINGS},
        required=("verbs",),
    )
)
_SUBJECT = Struct(fields={"kind": STRING, "apiGroup": STRING, "name": STRING, "namespace": STRING}, required=("kind", "name"), atomic=True)
_ROLE_REF = Struct(fields={"apiGroup": STRING, "kind": STRING, "name": STRING}, required=("kind", "name"), atomic=True)
_AGGREGATION = Struct(fields={"clusterRoleSelectors": ListOf(item=meta.LABEL_SELECTOR)})

ROLE = meta.kind({"rules": _RULES})
CLUSTER_ROLE = meta.kind({"rules": _RULES, "aggregationRule": _AGGREGATION})
BINDING = meta.kind({"roleRef": _ROLE_REF, "subjects": ListOf(item=_SUBJECT)}, required=("roleRef",))

_RESOURCE_ATTRIBUTES = Struct(
    fields={
        "namespace": STRING,
        "verb": STRING,
        "group": STRING,
        "version": STRING,
        "resource": STRING,
        "subresource": STRING,
        "name": STRING,
        "fieldSelector": ANY,
        "labelSelector": ANY,
    }
)
_ACCESS: dict[str, Shape] = {
    "resourceAttributes": _RESOURCE_ATTRIBUTES,
    "nonResourceAttributes": Struct(fields={"path": STRING, "verb": STRING}),
}
_USER: dict[str, Shape] = {"uid": STRING, "groups": _STRINGS, "extra": MapOf(value=_STRINGS)}

TOKEN_REVIEW = meta.kind({"spec": Struct(fields={"token": STRING, "audiences": _STRINGS}), "status": ANY}, required=("spec",))
ACCESS_REVIEW = meta.kind({"spec": Struct(fields=_ACCESS | {"user": STRING} | _USER), "status": ANY}, required=("spec",))
SELF_ACCESS_REVIEW = meta.kind({"spec": Struct(fields=_ACCESS), "status": ANY}, required=("spec",))
SELF_RULES_REVIEW = meta.kind({"spec": Struct(fields={"namespace": STRING}), "status": ANY}, required=("spec",))
SELF_REVIEW = meta.kind({"status": Struct(fields={"userInfo": Struct(fields={"username": STRING} | _USER)})})
_BOUND = Struct(fields={"apiVersion": STRING, "kind": STRING, "name": STRING, "uid": STRING})
TOKEN_REQUEST = meta.kind(
    {
        "spec": Struct(fields={"audiences": _STRINGS, "expirationSeconds": INTEGER, "boundObjectRef": _BOUND}),
        "status": Struct(fields={"token": STRING, "expirationTimestamp": TIME}),
    },
    required=("spec",),
)
