"""The three patches that need only the object: JSON patch (RFC 6902), JSON merge patch (RFC 7396), and strategic merge patch.

Apply patches also need ownership: see ``applying``. Every public function returns a new object and does not change its arguments.
"""

import enum

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema.shape import ListOf, Shape, field_shape


class PatchKind(enum.Enum):
    """A patch's kind; the value is its content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def merge(target: Json, patch: Json) -> Json:
    """Apply a JSON merge patch: null deletes a field, objects merge, every other value replaces."""
    if not isinstance(patch, dict):
        return json_types.copy(patch)
    result: Object = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Json, operations: Json) -> Json:
    """Apply a JSON patch; an operation that does not fit raises InvalidError (``test``) or BadRequestError (the others)."""
    if not isinstance(operations, list):
        raise errors.BadRequestError("body: a JSON patch is a list of operations")
    result = json_types.copy(target)
    for index, operation in enumerate(operations):
        result = _operate(result, operation, f"[{index}]")
    return result


def _operate(target: Json, operation: Json, where: str) -> Json:
    verb, path = json_types.text(operation, "op"), _pointer(operation, "path", where)
    if verb in ("add", "replace", "test") and not (isinstance(operation, dict) and "value" in operation):
        raise errors.BadRequestError(f"{where}: {verb} needs a value")
    value = json_types.copy(json_types.at(operation, "value"))
    if verb == "test":
        if _read(target, path, where) != value:
            raise errors.InvalidError(f"{where}: the value at {json_types.text(operation, 'path')} is not the one tested for")
        return target
    if verb in ("move", "copy"):
        source = _pointer(operation, "from", where)
        value = json_types.copy(_read(target, source, where))
        target = _write(target, source, where, verb="remove", value=None) if verb == "move" else target
        verb = "add"
    if verb not in ("add", "replace", "remove"):
        raise errors.BadRequestError(f"{where}.op: unknown operation {verb!r}")
    return _write(target, path, where, verb=verb, value=value)


def _pointer(operation: Json, field: str, where: str) -> list[str]:
    pointer = json_types.at(operation, field)
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise errors.BadRequestError(f"{where}.{field}: want a JSON pointer such as /spec/name")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _position(values: list[Json], step: str, where: str, *, adding: bool) -> int:
    if adding and step == "-":
        return len(values)
    if not step.isdecimal() or int(step) >= len(values) + adding:
        raise errors.BadRequestError(f"{where}: there is no list position {step}")
    return int(step)


def _read(target: Json, path: list[str], where: str) -> Json:
    for step in path:
        if isinstance(target, list):
            target = target[_position(target, step, where, adding=False)]
        elif isinstance(target, dict) and step in target:
            target = target[step]
        else:
            raise errors.BadRequestError(f"{where}: there is no {step!r} in the object")
    return target


def _write(target: Json, path: list[str], where: str, *, verb: str, value: Json) -> Json:
    """Change ``target`` in place at ``path`` and return it (or ``value`` where the path is that of the document)."""
    if not path:
        return None if verb == "remove" else value
    parent, last = _read(target, path[:-1], where), path[-1]
    if isinstance(parent, list):
        position = _position(parent, last, where, adding=verb == "add")
        end = position if verb == "add" else position + 1
        parent[position:end] = [] if verb == "remove" else [value]
    elif isinstance(parent, dict):
        if verb != "add" and last not in parent:
            raise errors.BadRequestError(f"{where}: there is no {last!r} in the object")
        if verb == "remove":
            del parent[last]
        else:
            parent[last] = value
    else:
        raise errors.BadRequestError(f"{where}: {last!r} has no object or list to be in")
    return target


def strategic(shape: Shape, target: Json, patch: Json) -> Json:
    """Apply a strategic merge patch: a merge patch in which lists with a merge key merge by it, and ``$`` directives are obeyed."""
    if not isinstance(patch, dict):
        return json_types.copy(patch)
    directive = patch.get("$patch")
    body = {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "replace":
        return json_types.copy(body)
    if directive == "delete":
        return {}
    result: Object = dict(target) if isinstance(target, dict) else {}
    for key, value in body.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _strategic_field(field_shape(shape, key), result.get(key), value)
    _delete_primitives(result, patch)
    return _retained(result, patch)


def _strategic_field(shape: Shape, old: Json, new: Json) -> Json:
    if isinstance(new, list) and isinstance(shape, ListOf):
        current = old if isinstance(old, list) else []
        if shape.merge_key:
            return _merge_by_key(shape, current, new)
        if shape.unique:
            return [*current, *(item for item in new if item not in current)]
    return strategic(shape, old, new)


def _merge_by_key(shape: ListOf, old: list[Json], new: list[Json]) -> list[Json]:
    key = shape.merge_key
    if any(json_types.at(item, "$patch") == "replace" for item in new):
        return [json_types.copy(item) for item in new if json_types.at(item, "$patch") != "replace"]
    merged = {json_types.text(item, key): item for item in old}
    for item in new:
        name = json_types.text(item, key)
        if json_types.at(item, "$patch") == "delete":
            merged.pop(name, None)
        else:
            merged[name] = strategic(shape.item, merged.get(name), item)
    return list(merged.values())


def _delete_primitives(result: Object, patch: Object) -> None:
    marker = "$deleteFromPrimitiveList/"
    for key, deleted in patch.items():
        if key.startswith(marker) and isinstance(deleted, list):
            field = key.removeprefix(marker)
            result[field] = [element for element in json_types.items(result, field) if element not in deleted]


def _retained(result: Object, patch: Object) -> Object:
    if "$retainKeys" not in patch:
        return result
    retained = json_types.strings(patch, "$retainKeys")
    return {key: value for key, value in result.items() if key in retained}
