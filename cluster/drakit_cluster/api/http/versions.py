"""Between the version of a kind that a client uses and the one that is stored. The versions served here differ in name only."""

import json

from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


def inward(resource: Resource, body: Json) -> Json:
    """Return a body or patch in the stored version; one that names another version than its URL stays wrong."""
    stored = resources.stored(resource)
    if stored is resource or not isinstance(body, dict) or body.get("apiVersion") != resource.api_version:
        return body
    return body | {"apiVersion": stored.api_version}


def inward_object(resource: Resource, body: Object) -> Object:
    """Return an object in the stored version."""
    found = inward(resource, body)
    return found if isinstance(found, dict) else body


def outward(resource: Resource, obj: Object) -> Object:
    """Return a stored object in the client's version."""
    return obj if resources.stored(resource) is resource else obj | {"apiVersion": resource.api_version}


def outward_bytes(resource: Resource, encoded: bytes) -> bytes:
    """Return an encoded object in the client's version; a Status is no object of the kind and stays as it is."""
    stored = resources.stored(resource)
    if stored is resource:
        return encoded
    opening, wanted = _opening(stored), _opening(resource)
    if encoded.startswith(opening):
        return wanted + encoded[len(opening) :]
    obj: Object = json.loads(encoded)
    return json.dumps(obj | {"apiVersion": resource.api_version}, ensure_ascii=False, separators=(",", ":")).encode()


def _opening(resource: Resource) -> bytes:
    return f'{{"apiVersion":"{resource.api_version}",'.encode()
