"""Rules of ObjectMeta on create and on update, for all kinds. Source: Kubernetes' apimachinery validation."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure, names, rules
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.rules import NameRule

MAX_ANNOTATION_BYTES = 256 * 1024
MAX_MANAGER_BYTES = 128
MAX_SUBRESOURCE_BYTES = 256

_FIXED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
_GRACE = "deletionGracePeriodSeconds"
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_CASCADING = ("orphan", "foregroundDeletion")
_OPERATIONS = ("Apply", "Update")
_TEMPLATE_FIELDS = ("annotations", "labels")
_GO_SPELLINGS = {"uid": "uID"}
"""The spelling of fields in failures whose name Kubernetes derives from the Go field."""


def create(obj: Object, *, namespaced: bool, naming: NameRule) -> Iterator[Failure]:
    """Yield what is wrong with the metadata of a new object. ``naming`` is the kind's rule for names."""
    metadata = json_types.mapping(obj, "metadata")
    yield from _name(metadata, naming)
    yield from _namespace(json_types.text(metadata, "namespace"), namespaced=namespaced)
    if (generation := json_types.number(metadata, "generation")) < 0:
        yield failure.invalid("metadata.generation", generation, "must be 0 or more")
    yield from _common(metadata)
    yield from _finalizers(json_types.strings(metadata, "finalizers"))


def update(new: Object, old: Object) -> Iterator[Failure]:
    """Yield what is wrong with metadata that replaces older metadata."""
    metadata, old_metadata = json_types.mapping(new, "metadata"), json_types.mapping(old, "metadata")
    if old_metadata.get("deletionTimestamp"):
        yield from _new_finalizers(metadata, old_metadata)
    if not metadata.get("resourceVersion"):
        yield failure.invalid("metadata.resourceVersion", "", "must be specified for an update: read the object first")
    generation = json_types.number(metadata, "generation")
    if generation < json_types.number(old_metadata, "generation"):
        yield failure.invalid("metadata.generation", generation, "must not be decremented")
    for field in _FIXED:
        if (metadata.get(field) or None) != (old_metadata.get(field) or None):
            yield failure.immutable(f"metadata.{field}", metadata.get(field))
    yield from failure.unchanged(f"metadata.{_GRACE}", metadata.get(_GRACE), old_metadata.get(_GRACE))
    yield from _common(metadata)


def template(metadata: Json, path: str) -> Iterator[Failure]:
    """Yield what is wrong with the metadata that a template gives its objects: labels and annotations only."""
    fields = json_types.mapping(metadata)
    yield from _annotations(fields, path)
    yield from _labels(fields, path)
    for field, value in fields.items():
        if field not in _TEMPLATE_FIELDS and value:
            yield failure.forbidden(f"{path}.{_GO_SPELLINGS.get(field, field)}", "a template sets only labels and annotations")


def _name(metadata: Object, naming: NameRule) -> Iterator[Failure]:
    name, prefix = json_types.text(metadata, "name"), json_types.text(metadata, "generateName")
    if prefix:
        yield from naming(f"{prefix[:-2]}a" if prefix.endswith("-") and len(prefix) > 1 else prefix, "metadata.generateName")
    yield from naming(name, "metadata.name") if name else [failure.required("metadata.name", "name or generateName is required")]


def _namespace(namespace: str, *, namespaced: bool) -> Iterator[Failure]:
    path = "metadata.namespace"
    if namespaced:
        yield from names.label(namespace, path) if namespace else [failure.required(path, "objects of this kind live in a namespace")]
    elif namespace:
        yield failure.forbidden(path, "objects of this kind have no namespace")


def _common(metadata: Object) -> Iterator[Failure]:
    yield from _labels(metadata, "metadata")
    yield from _annotations(metadata, "metadata")
    yield from _owners(json_types.items(metadata, "ownerReferences"))
    yield from rules.items("managedFields", _managed)(metadata, "metadata")


def _labels(metadata: Object, path: str) -> Iterator[Failure]:
    where = f"{path}.labels"
    for key, value in json_types.mapping(metadata, "labels").items():
        yield from names.label_key(key, where)
        yield from names.label_value(_text(value), where)


def _annotations(metadata: Object, path: str) -> Iterator[Failure]:
    where, annotations = f"{path}.annotations", json_types.mapping(metadata, "annotations")
    for key in annotations:
        yield from names.label_key(key.lower(), where)
    if sum(len(key.encode()) + len(_text(value).encode()) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
        yield failure.too_long(where, MAX_ANNOTATION_BYTES)


def _owners(owners: list[Json]) -> Iterator[Failure]:
    """Failures of owners have no index, as in Kubernetes."""
    path = "metadata.ownerReferences"
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not json_types.text(owner, field):
                yield failure.invalid(f"{path}.{field}", "", "must not be empty in a reference to an owner")
        if (json_types.text(owner, "apiVersion"), json_types.text(owner, "kind")) == ("v1", "Event"):
            yield failure.invalid(path, owner, "an Event cannot own objects")
    leaders = [json_types.text(owner, "name") for owner in owners if json_types.at(owner, "controller") is True]
    if len(leaders) > 1:
        yield failure.invalid(path, json_types.from_strings(leaders), "only one owner may be the controller")


def _managed(entry: Json, path: str) -> Iterator[Failure]:
    operation, kind, manager = (json_types.text(entry, field) for field in ("operation", "fieldsType", "manager"))
    if operation not in _OPERATIONS:
        yield failure.invalid(f"{path}.operation", operation, f"must be one of {', '.join(_OPERATIONS)}")
    if kind not in ("", "FieldsV1"):
        yield failure.invalid(f"{path}.fieldsType", kind, "must be FieldsV1")
    if not manager.isprintable():
        yield failure.invalid(f"{path}.manager", manager, "must be printable characters only")
    yield from rules.size(MAX_MANAGER_BYTES, "manager")(entry, path)
    yield from rules.size(MAX_SUBRESOURCE_BYTES, "subresource")(entry, path)


def _finalizers(finalizers: list[str]) -> Iterator[Failure]:
    """A malformed finalizer is reported for the list and for its place in it, as Kubernetes does."""
    path = "metadata.finalizers"
    for index, finalizer in enumerate(finalizers):
        where = f"{path}[{index}]"
        yield from names.label_key(finalizer, path)
        yield from names.label_key(finalizer, where)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield failure.invalid(where, finalizer, "write domain/name: only Kubernetes' own finalizers have no domain")
    if all(finalizer in finalizers for finalizer in _CASCADING):
        yield failure.invalid(path, json_types.from_strings(finalizers), f"must not have both {' and '.join(_CASCADING)}")


def _new_finalizers(metadata: Object, old_metadata: Object) -> Iterator[Failure]:
    old_finalizers = json_types.items(old_metadata, "finalizers")
    if added := [finalizer for finalizer in json_types.items(metadata, "finalizers") if finalizer not in old_finalizers]:
        detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
        yield failure.forbidden("metadata.finalizers", detail)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
