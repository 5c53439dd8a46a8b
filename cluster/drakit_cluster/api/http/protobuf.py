"""Bodies in Kubernetes' protobuf form, which kubectl sends for what it makes itself: ``create``, ``auth``, ``drain``.

Only the kinds below are read, and only what kubectl writes into them; answers are JSON. The wire format is protobuf's own: a key (field
number and type), then a varint or a length and bytes. Field numbers: the generated.proto file of each group.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES = 10


@dataclass(frozen=True, kw_only=True)
class _Field:
    """A field of a message: text unless it is a ``message`` or ``raw`` bytes; ``many`` fields are lists, a ``map`` has its values' message.

    ``flag`` says that a number is true or false.
    """

    name: str
    message: "Mapping[int, _Field] | None" = None
    many: bool = False
    map: bool = False
    raw: bool = False
    flag: bool = False


_Message: TypeAlias = Mapping[int, _Field]


def _texts(*names: str) -> dict[int, _Field]:
    return {number: _Field(name=name) for number, name in enumerate(names, 1)}


def _with_spec(spec: _Message) -> _Message:
    return {2: _Field(name="spec", message=spec)}


_ACCESS: _Message = {
    1: _Field(name="resourceAttributes", message=_texts("namespace", "verb", "group", "version", "resource", "subresource", "name")),
    2: _Field(name="nonResourceAttributes", message=_texts("path", "verb")),
}
_TOKEN: _Message = {
    1: _Field(name="audiences", many=True),
    3: _Field(name="boundObjectRef", message=_texts("kind", "apiVersion", "name", "uid")),
    4: _Field(name="expirationSeconds"),
}
_META = _Field(
    name="metadata",
    message={**_texts("name", "generateName", "namespace"), 11: _Field(name="labels", map=True), 12: _Field(name="annotations", map=True)},
)
_RULE: _Message = {
    number: _Field(name=name, many=True)
    for number, name in enumerate(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), 1)
}
_ROLE: _Message = {1: _META, 2: _Field(name="rules", message=_RULE, many=True)}
_BINDING: _Message = {
    1: _META,
    2: _Field(name="subjects", message=_texts("kind", "apiGroup", "name", "namespace"), many=True),
    3: _Field(name="roleRef", message=_texts("apiGroup", "kind", "name")),
}
_CONTAINER: _Message = {
    **_texts("name", "image"),
    3: _Field(name="command", many=True),
    4: _Field(name="args", many=True),
    6: _Field(name="ports", message={1: _Field(name="name"), 3: _Field(name="containerPort")}, many=True),
}
_DEPLOYMENT: _Message = {
    1: _Field(name="replicas"),
    2: _Field(name="selector", message={1: _Field(name="matchLabels", map=True)}),
    3: _Field(
        name="template", message={1: _META, 2: _Field(name="spec", message={2: _Field(name="containers", message=_CONTAINER, many=True)})}
    ),
}
_DELETE: _Message = {
    1: _Field(name="gracePeriodSeconds"),
    2: _Field(name="preconditions", message=_texts("uid", "resourceVersion")),
    3: _Field(name="orphanDependents", flag=True),
    4: _Field(name="propagationPolicy"),
    5: _Field(name="dryRun", many=True),
}
_KINDS: dict[str, _Message] = {
    "Namespace": {1: _META},
    "ConfigMap": {
        1: _META,
        2: _Field(name="data", map=True),
        3: _Field(name="binaryData", map=True, raw=True),
        4: _Field(name="immutable", flag=True),
    },
    "Secret": {
        1: _META,
        2: _Field(name="data", map=True, raw=True),
        3: _Field(name="type"),
        4: _Field(name="stringData", map=True),
        5: _Field(name="immutable", flag=True),
    },
    "ServiceAccount": {1: _META},
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "Deployment": {1: _META, 2: _Field(name="spec", message=_DEPLOYMENT)},
    "Eviction": {1: _META, 2: _Field(name="deleteOptions", message=_DELETE)},
    "DeleteOptions": _DELETE,
    "SelfSubjectReview": {},
    "SelfSubjectAccessReview": _with_spec(_ACCESS),
    "SelfSubjectRulesReview": _with_spec(_texts("namespace")),
    "TokenRequest": _with_spec(_TOKEN),
}
_ENVELOPE: _Message = {1: _Field(name="type", message=_texts("apiVersion", "kind"))}


def read(body: bytes) -> Object:
    """Return the object that a body holds; UnsupportedMediaError for other kinds, BadRequestError for bytes that make no sense."""
    if not body.startswith(_MAGIC):
        raise errors.BadRequestError(f"body: not {MEDIA_TYPE}")
    content = body[len(_MAGIC) :]
    kind = _decode(content, _ENVELOPE).get("type")
    named: Object = kind if isinstance(kind, dict) else {}
    message = _KINDS.get(str(named.get("kind")))
    if message is None:
        raise errors.UnsupportedMediaError(f"the body of the request was in an unknown format ({MEDIA_TYPE}); send application/json")
    raw = next((value for number, value in _fields(content) if number == 2 and isinstance(value, bytes)), b"")
    spec: Object = {"spec": {}} if 2 in message and message[2].name == "spec" else {}
    return named | spec | _decode(raw, message)


def _decode(content: bytes, message: _Message) -> Object:
    found: Object = {}
    for number, value in _fields(content):
        field = message.get(number)
        if field is None:
            continue
        if field.map:
            entry = _decode(value if isinstance(value, bytes) else b"", {1: _Field(name="key"), 2: replace(field, name="value", map=False)})
            json_types.child(found, field.name)[str(entry.get("key", ""))] = entry.get("value", "")
            continue
        decoded = _value(value, field)
        if field.many:
            listed = found.setdefault(field.name, [])
            if isinstance(listed, list):
                listed.append(decoded)
        elif decoded != "":
            found[field.name] = decoded
    return found


def _value(value: int | bytes, field: _Field) -> Json:
    if isinstance(value, int):
        return bool(value) if field.flag else value
    if field.message is not None:
        return _decode(value, field.message)
    return base64.b64encode(value).decode() if field.raw else value.decode(errors="replace")


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; fields of fixed size, which no review has, are passed over."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(content, place)
            yield number, value
            continue
        size, place = (_FIXED[kind], place) if kind in _FIXED else _length(content, place, kind)
        if place + size > len(content):
            raise errors.BadRequestError("body: the message ends too early")
        if kind == _BYTES:
            yield number, content[place : place + size]
        place += size


def _length(content: bytes, place: int, kind: int) -> tuple[int, int]:
    if kind != _BYTES:
        raise errors.BadRequestError(f"body: there is no wire type {kind}")
    return _varint(content, place)


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(content[place : place + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, place + index + 1
    raise errors.BadRequestError("body: the message ends within a number")
