"""Server-side apply: the ownership of fields, and merging by it.

Ownership is a set of paths per manager, stored in metadata.managedFields as Kubernetes writes it (FieldsV1). A path is a tuple of steps:
``f:name`` for a field or map key, ``k:{...}`` for an item of a list with keys, ``v:...`` for a member of a set.

Tracking begins with a creation that names its field manager, as kubectl does, or with the first apply. In the second case the fields that
the object had before belong to ``before-first-apply``, as in Kubernetes for objects without managedFields. A write of an object without
managers does no work here.

A server-side apply of kubectl takes over what its client-side apply wrote: the values of the annotation last-applied-configuration that the
object still has cause no conflict, and the annotation is updated. kubectl then rewrites managedFields itself, so a write may replace them.
Source: lastappliedmanager.go, lastappliedupdater.go and ``decodeLiveOrNew`` in apimachinery's managedfields.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from drakit.telemetry import plurals
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.errors import Cause, Details
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema.shape import Leaf, ListOf, Shape, Struct, field_shape

Path: TypeAlias = tuple[str, ...]

FIRST = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
"""The manager of kubectl's server-side apply. Only this one takes over from client-side apply."""
_OPERATIONS = frozenset({"Apply", "Update"})
_SERVER_FIELDS = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
        "generateName",
    }
)
_MISSING: Json = "\x00missing"


@dataclass(frozen=True, kw_only=True)
class Manager:
    """A writer and the fields that it owns. Apply and Update, and each sub-resource, are different managers of the same name."""

    name: str
    operation: str
    subresource: str = ""
    fields: frozenset[Path] = frozenset()
    time: str = ""

    def same(self, other: "Manager") -> bool:
        """Return whether both are the same writer."""
        mine = (self.name, self.operation, self.subresource)
        return mine == (other.name, other.operation, other.subresource)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The outcome of an apply: the merged object and its managers."""

    obj: Object
    managers: tuple[Manager, ...]


def apply(shape: Shape, live: Object, config: Object, me: Manager, *, force: bool) -> Applied:
    """Merge ``config`` into ``live`` as ``me``. Fields that ``me`` applied before and leaves out now are removed unless another owns them.

    Unless ``force`` is set, raise ConflictError with each field that another manager owns with a different value, and its owner.
    """
    whole, config = config, configuration(config, me.subresource)
    managers = read_managers(live) or _first(shape, live, me.time)
    others = tuple(manager for manager in managers if not manager.same(me))
    before = frozenset[Path]().union(*(manager.fields for manager in managers if manager.same(me)))
    mine = frozenset(owned(shape, config))
    contested = {
        (manager, path) for manager in others for path in manager.fields & mine if lookup(shape, live, path) != lookup(shape, config, path)
    }
    if me.name == _KUBECTL and not me.subresource:
        permitted = _still_last_applied(shape, live) if contested else frozenset()
        contested_by_others = {(manager, path) for manager, path in contested if path not in permitted}
    else:
        contested_by_others = contested
    if contested_by_others and not force:
        raise _conflict(contested_by_others)
    lost = frozenset(path for _, path in contested)
    others = tuple(replace(manager, fields=manager.fields - lost) for manager in others)
    still_owned = mine.union(*(manager.fields for manager in others))
    merged = _merge(shape, live, config)
    for path in sorted(before - still_owned, key=len):  # Items are removed before their fields: without its keys an item has no path.
        _remove(shape, merged, path)
    if me.name == _KUBECTL and not me.subresource:
        _renew_last_applied(merged, whole)
    managers = (*others, _settled(managers, replace(me, fields=mine)))
    return Applied(obj=json_types.mapping(merged), managers=tuple(manager for manager in managers if manager.fields))


def _still_last_applied(shape: Shape, live: Object) -> frozenset[Path]:
    """Return the paths that client-side apply wrote last and whose values are unchanged since."""
    annotations = json_types.mapping(live, "metadata", "annotations")
    try:
        last = json_types.parse(json_types.text(annotations, LAST_APPLIED).encode())
    except (ValueError, RecursionError):
        return frozenset()
    if not isinstance(last, dict) or last.get("apiVersion") != live.get("apiVersion"):
        return frozenset()
    applied = configuration(last, "")
    return frozenset(path for path in owned(shape, applied) if lookup(shape, applied, path) == lookup(shape, live, path))


def _renew_last_applied(merged: Json, config: Object) -> None:
    """Write the configuration into the annotation of client-side apply, where the object has it."""
    annotations = json_types.mapping(merged, "metadata", "annotations")
    if LAST_APPLIED in annotations:
        annotations[LAST_APPLIED] = json.dumps(config, separators=(",", ":"), ensure_ascii=False) + "\n"


def created(shape: Shape, obj: Object, me: Manager) -> tuple[Manager, ...]:
    """Return the manager of a new object: ``me`` owns all its fields."""
    return (replace(me, fields=frozenset(owned(shape, configuration(obj, me.subresource)))),) if me.name else ()


def claimed_managers(old: Object, new: Object) -> tuple[Manager, ...]:
    """Return the managers that a write of the object sets itself, else those of the old object. One empty entry removes all managers."""
    if json_types.items(new, "metadata", "managedFields") == [{}]:
        return ()
    stored, written = read_managers(old), read_managers(new)
    is_valid = bool(written) and all(manager.name and manager.operation in _OPERATIONS for manager in written)
    is_changed = {replace(manager, time="") for manager in written} != {replace(manager, time="") for manager in stored}
    return written if is_valid and is_changed else stored


def after_write(shape: Shape, old: Object, new: Object, me: Manager, managers: tuple[Manager, ...]) -> tuple[Manager, ...]:
    """Return the managers after a write by ``me`` that is no apply: ``me`` owns the changed fields. ``managers`` are those before the write."""
    if not managers:
        return ()
    paths_now = frozenset(owned(shape, configuration(new, None)))
    paths_then = frozenset(owned(shape, configuration(old, None)))
    changed = {path for path in paths_now | paths_then if lookup(shape, old, path) != lookup(shape, new, path)}
    changed |= paths_now ^ paths_then
    others = [replace(manager, fields=manager.fields - changed) for manager in managers if not manager.same(me)]
    before = frozenset[Path]().union(*(manager.fields for manager in managers if manager.same(me)))
    mine = _settled(managers, replace(me, fields=(before & paths_now) | (changed & paths_now)))
    return tuple(manager for manager in (*others, mine) if manager.fields)


def _settled(managers: tuple[Manager, ...], me: Manager) -> Manager:
    """Return the earlier entry of a manager whose fields are unchanged, so that repeating an apply changes no time."""
    unchanged = (manager for manager in managers if manager.same(me) and manager.fields == me.fields)
    return next(unchanged, me)


def configuration(obj: Object, subresource: str | None) -> Object:
    """Return the part of an object that managers can own through ``subresource`` (None: through any)."""
    metadata = {key: value for key, value in json_types.mapping(obj, "metadata").items() if key not in _SERVER_FIELDS}
    body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    status: Object = {"status": obj["status"]} if "status" in obj else {}
    if subresource:
        return status if subresource == "status" else {}
    head: Object = {"metadata": metadata} if metadata else {}
    return head | body | (status if subresource is None else {})


def owned(shape: Shape, value: Json, path: Path = ()) -> Iterator[Path]:
    """Yield the paths that a writer of ``value`` owns: its leaves, and each item of a list with keys."""
    if isinstance(value, dict) and not _is_atomic(shape):
        if not value and path:
            yield path
        for key, item in value.items():
            yield from owned(field_shape(shape, key), item, (*path, f"f:{key}"))
    elif isinstance(value, list) and isinstance(shape, ListOf) and (shape.keys or shape.unique):
        for item in value:
            step = _item_step(shape, item)
            yield (*path, step)
            if shape.keys:
                yield from owned(shape.item, item, (*path, step))
    else:
        yield path


def lookup(shape: Shape, value: Json, path: Path) -> Json:
    """Return the value that a path names. For a list item return True where it exists: its content has paths of its own."""
    for step in path:
        if isinstance(value, list) and isinstance(shape, ListOf):
            value = next((item for item in value if _item_step(shape, item) == step), _MISSING)
            shape = shape.item
        elif isinstance(value, dict):
            shape, value = field_shape(shape, step[2:]), value.get(step[2:], _MISSING)
        else:
            return _MISSING
    is_item = bool(path) and path[-1].startswith(("k:", "v:"))
    return value if value is _MISSING or not is_item else True


def _merge(shape: Shape, live: Json, config: Json) -> Json:
    if isinstance(config, dict) and isinstance(live, dict) and not _is_atomic(shape):
        merged = json_types.copy_object(live)
        for key, item in config.items():
            merged[key] = _merge(field_shape(shape, key), live.get(key), item)
        return merged
    if isinstance(config, list) and isinstance(live, list) and isinstance(shape, ListOf) and (shape.keys or shape.unique):
        items = {_item_step(shape, item): item for item in live}
        for item in config:
            step = _item_step(shape, item)
            items[step] = _merge(shape.item, items.get(step), item)
        return [json_types.copy(element) for element in items.values()]
    return json_types.copy(config)


def _remove(shape: Shape, value: Json, path: Path) -> None:
    """Remove the value at ``path``, and containers that this leaves empty; a missing path is ignored."""
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(shape, ListOf):
        position = next((i for i, item in enumerate(value) if _item_step(shape, item) == step), None)
        if position is None:
            return
        if rest:
            _remove(shape.item, value[position], rest)
        else:
            del value[position]
    elif isinstance(value, dict) and step[2:] in value:
        field = step[2:]
        if rest:
            _remove(field_shape(shape, field), value[field], rest)
        if not rest or value[field] in ({}, []):
            del value[field]


def _is_atomic(shape: Shape) -> bool:
    """Return whether an object of this shape is owned and replaced as a single value."""
    return isinstance(shape, Struct | Leaf) and shape.atomic


def _item_step(shape: ListOf, item: Json) -> str:
    """Return the step that names a list item. An absent key field is left out, because absent differs from set."""
    if not shape.keys:
        return f"v:{json.dumps(item)}"
    keys = {key: json_types.at(item, key) for key in sorted(shape.keys)}
    present = {key: value for key, value in keys.items() if value is not None}
    return f"k:{json.dumps(present, separators=(',', ':'))}"


def _first(shape: Shape, live: Object, now: str) -> tuple[Manager, ...]:
    fields = frozenset(owned(shape, configuration(live, None)))
    return (Manager(name=FIRST, operation="Update", fields=fields, time=now),) if fields else ()


def _conflict(contested: set[tuple[Manager, Path]]) -> errors.ConflictError:
    causes = tuple(
        Cause(reason="FieldManagerConflict", message=f'conflict with "{manager.name}"', field=field_name(path))
        for manager, path in sorted(contested, key=lambda conflict: (conflict[0].name, conflict[1]))
    )
    named = "; ".join(f"{cause.message}: {cause.field}" for cause in causes)
    return errors.ConflictError(f"Apply failed with {plurals.counted(len(causes), 'conflict')}: {named}", Details(causes=causes))


def field_name(path: Path) -> str:
    """Return a path as Kubernetes writes it in a conflict: ``.status.devices[device="gpu-0",driver="x"].data``."""
    return "".join(map(_readable, path))


def _readable(step: str) -> str:
    kind, _, rest = step.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    return f"[{','.join(f'{key}={json.dumps(value)}' for key, value in json.loads(rest).items())}]"


def read_managers(obj: Object) -> tuple[Manager, ...]:
    """Return the managers that metadata.managedFields names."""
    return tuple(
        Manager(
            name=json_types.text(entry, "manager"),
            operation=json_types.text(entry, "operation"),
            subresource=json_types.text(entry, "subresource"),
            time=json_types.text(entry, "time"),
            fields=frozenset(_decode_fields(json_types.mapping(entry, "fieldsV1"))),
        )
        for entry in json_types.objects(obj, "metadata", "managedFields")
    )


def write_managers(obj: Object, managers: tuple[Manager, ...]) -> None:
    """Write the managers into metadata.managedFields of ``obj``; without managers remove the field."""
    metadata = json_types.child(obj, "metadata")
    metadata.pop("managedFields", None)
    if managers:
        api_version = json_types.text(obj, "apiVersion")
        metadata["managedFields"] = [_encode_manager(manager, api_version) for manager in managers]


def _encode_manager(manager: Manager, api_version: str) -> Json:
    entry: Object = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": api_version,
        "time": manager.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _encode_fields(manager.fields),
    }
    return entry | ({"subresource": manager.subresource} if manager.subresource else {})


def _encode_fields(paths: frozenset[Path]) -> Object:
    """Return FieldsV1: nested objects by step; a path with further paths below it is marked by ``.``."""
    root: Object = {}
    inner = {path[:length] for path in paths for length in range(1, len(path))}
    for path in sorted(paths):
        node = root
        for step in path:
            node = json_types.child(node, step)
        if path in inner:
            node["."] = {}
    return root


def _decode_fields(node: Object, path: Path = ()) -> Iterator[Path]:
    for step, inner in node.items():
        if step == ".":
            yield path
        elif isinstance(inner, dict) and inner:
            yield from _decode_fields(inner, (*path, step))
        else:
            yield (*path, step)
