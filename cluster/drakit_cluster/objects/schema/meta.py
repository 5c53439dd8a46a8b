"""Shapes shared by all kinds: ObjectMeta, conditions, selectors."""

from drakit_cluster.objects.schema.shape import STRING, ListOf, Shape, Struct, atomic, by_key, opened, struct

_OWNER = struct("apiVersion! kind! name! uid! controller:bool blockOwnerDeletion:bool")
_MANAGED_FIELDS = struct("manager operation apiVersion time:time fieldsType fieldsV1:any subresource")
OBJECT_META = struct(
    """name generateName namespace selfLink uid resourceVersion generation:int creationTimestamp:time deletionTimestamp:time
    deletionGracePeriodSeconds:int labels:{} annotations:{}""",
    ownerReferences=by_key("uid", _OWNER),
    finalizers=ListOf(item=STRING, unique=True),
    managedFields=ListOf(item=_MANAGED_FIELDS),
)
CONDITION = struct("type! status! observedGeneration:int lastTransitionTime:time! reason! message")
CONDITIONS = ListOf(item=CONDITION, keys=("type",))
REQUIREMENTS = ListOf(item=struct("key! operator! values:[]"))
NODE_TERM = struct(matchExpressions=REQUIREMENTS, matchFields=REQUIREMENTS)
NODE_SELECTOR = atomic("nodeSelectorTerms!", nodeSelectorTerms=ListOf(item=NODE_TERM))
LABEL_SELECTOR = atomic("matchLabels:{}", matchExpressions=REQUIREMENTS)


def kind(required: str = "", /, **fields: Shape) -> Struct:
    """Return the shape of a whole kind: ``fields`` beside apiVersion, kind and metadata. ``required`` is written as ``struct`` takes it."""
    return struct(f"apiVersion kind {required}", metadata=OBJECT_META, **fields)


def opened_kind(required: str = "", /, **fields: Shape) -> Struct:
    """Return the shape of a kind of which only the fields that this cluster uses are described."""
    return opened(f"apiVersion kind {required}", metadata=OBJECT_META, **fields)
