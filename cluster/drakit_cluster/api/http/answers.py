"""Responses: JSON bytes, lists, Status, warnings."""

import json

from starlette.requests import Request
from starlette.responses import Response

from drakit_cluster.api.http import tables, versions
from drakit_cluster.api.storage.store import Entry
from drakit_cluster.objects import errors, resources
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

_JSON = "application/json"


def encode(value: Json) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def raw(body: bytes, *, code: int = 200, warnings: list[str] | None = None) -> Response:
    """Return a response of encoded JSON, with a Warning header for each warning."""
    response = Response(body, status_code=code, media_type=_JSON)
    for warning in warnings or []:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.append("warning", f'299 - "{quoted}"')
    return response


def document(value: Json, *, code: int = 200) -> Response:
    """Return a response of one JSON value."""
    return raw(encode(value), code=code)


def refusal(error: errors.ApiError) -> Response:
    """Return the response of a refused request."""
    response = document(error.status(), code=error.code)
    if isinstance(error, errors.UnauthorizedError):
        response.headers["www-authenticate"] = 'Bearer realm="drakit"'
    return response


def one(request: Request, resource: Resource, entry: Entry) -> Response:
    """Return the response for a stored object, as a Table where the client prefers one."""
    if tables.wanted(request.headers.get("accept", "")):
        return document(tables.table(resource, [entry.view], str(entry.version)))
    return raw(versions.outward_bytes(resource, entry.encoded))


def many(request: Request, resource: Resource, entries: list[Entry], metadata: Object) -> Response:
    """Return the response for a list; ``metadata`` is its ListMeta."""
    if tables.wanted(request.headers.get("accept", "")):
        table = tables.table(resource, [entry.view for entry in entries], "")
        return document(table | {"metadata": metadata})
    head: Object = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    opening = encode({"apiVersion": resources.stored(resource).api_version, "kind": resource.kind})[:-1] + b","
    items = b",".join(_untyped(entry.encoded, opening) for entry in entries)
    return raw(encode(head)[:-1] + b',"items":[' + items + b"]}")


def _untyped(encoded: bytes, opening: bytes) -> bytes:
    """Return a list's item as servers send it: without the apiVersion and kind that the list's own imply."""
    return b"{" + encoded[len(opening) :] if encoded.startswith(opening) else encoded


def created() -> Response:
    """Return the Status of a post that made no object of its own."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return document(status, code=201)


def success(resource: Resource, name: str, uid: str) -> Response:
    """Return the Status of a deletion whose kind does not answer with the object."""
    details = Details(name=name, group=resource.group, kind=resource.plural, uid=uid)
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return document(status | {"details": details.encode()})
