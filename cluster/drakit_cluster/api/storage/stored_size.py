"""How many bytes an object takes in etcd, and what etcd refuses.

Kubernetes stores its own kinds in protobuf. The size is computed by the rules of that encoding, without encoding: a key of one byte for each
value (two from field number 16 on, which few fields have), lengths and whole numbers as varints, a quantity as a message with one text, a
time as one with seconds. For the kinds here that is right to within a few percent. Source: etcd's --max-request-bytes, the default of its
client's MaxCallSendMsgSize.
"""

import json

from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type

REQUEST_LIMIT = 3 << 19
"""Bytes of one request to etcd: 1.5 MiB."""
MESSAGE_LIMIT = 2 << 20
"""Bytes that etcd's client sends at all."""
_ENVELOPE = 128
"""The transaction, the type of the object and the revision that is compared, about."""
_KEY_COPIES = 3
_TIME_BYTES = 8
_GROUP_BITS = 7


def check(resource: Resource, key: tuple[str, str], obj: Object, encoded: int) -> None:
    """Raise StorageError for an object that etcd would not take. ``key`` is namespace and name, ``encoded`` the size as JSON, in bytes."""
    if encoded <= REQUEST_LIMIT // 2:
        return
    size = request_bytes(resource, key, obj)
    if size > MESSAGE_LIMIT:
        words = f"trying to send message larger than max ({size} vs. {MESSAGE_LIMIT})"
        raise errors.StorageError(f"rpc error: code = ResourceExhausted desc = {words}")
    if size > REQUEST_LIMIT:
        raise errors.StorageError("etcdserver: request is too large")


def request_bytes(resource: Resource, key: tuple[str, str], obj: Object) -> int:
    """Return the size of the request that writes an object."""
    path = "/".join(part for part in ("/registry", resource.plural, *key) if part)
    return _message(table.shape_of(resource), obj) + _KEY_COPIES * len(path.encode()) + _ENVELOPE


def _message(shape: Shape, value: Json) -> int:
    """Return the size of a value without its key; of a list or a map, with the keys of its items. Free JSON is stored as it is."""
    if _is_free(shape) and isinstance(value, list | dict):
        return len(json.dumps(value, separators=(",", ":")).encode())
    if isinstance(value, list):
        item = shape.item if isinstance(shape, ListOf) else _UNKNOWN
        return sum(_field(item, one) for one in value)
    if isinstance(value, dict):
        if isinstance(shape, MapOf):
            return sum(_prefixed(_prefixed(len(name.encode())) + _field(shape.value, one)) for name, one in value.items())
        fields = shape.fields if isinstance(shape, Struct) else {}
        return sum(_field(fields.get(name, _UNKNOWN), one) for name, one in value.items())
    return _leaf(shape, value)


def _field(shape: Shape, value: Json) -> int:
    """Return the size of a value with its key: of a list or map, that of its items."""
    if value is None:
        return 0
    if not _is_free(shape) and (isinstance(value, list) or isinstance(shape, MapOf)):
        return _message(shape, value)
    if isinstance(value, bool):
        return 2
    size = _message(shape, value)
    return 1 + size if isinstance(value, int) else _prefixed(size)


def _is_free(shape: Shape) -> bool:
    return isinstance(shape, Leaf) and shape.type is Type.ANY


def _leaf(shape: Shape, value: Json) -> int:
    """Return the size of a single value; a number that means no quantity is a varint."""
    kind = shape.type if isinstance(shape, Leaf) else Type.ANY
    if kind is Type.TIME:
        return _TIME_BYTES
    size = len(value.encode()) if isinstance(value, str) else _varint(value) if isinstance(value, int) else len(str(value))
    return _prefixed(size) if kind is Type.QUANTITY else size


def _prefixed(size: int) -> int:
    """Return the size with key and length."""
    return 1 + _varint(size) + size


def _varint(number: int) -> int:
    return max(1, -(-(number % (1 << 64)).bit_length() // _GROUP_BITS))


_UNKNOWN = Struct(fields={}, open=True)
"""What a field is that the shape of an open kind does not describe."""
