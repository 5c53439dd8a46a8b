"""Responses: JSON in the client's version of a kind, lists in pages, Status, warnings.

All pages of a list show the same moment, because the server keeps the rest of the list. It keeps at most ``MAX_OPEN`` lists. A page of an older
list is answered with 410, and the client lists again from the start.
"""

import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from drakit_cluster.api.http import tables
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


def object_response(request: Request, resource: Resource, entry: Entry) -> Response:
    """Return the response for a stored object, as a Table where the client prefers one."""
    if tables.is_requested(request.headers.get("accept", "")):
        include = request.query_params.get("includeObject", "")
        return document(tables.table(resource, [entry.view], str(entry.version), include))
    return raw(outward_bytes(resource, entry.encoded))


def list_response(request: Request, resource: Resource, entries: list[Entry], metadata: Object) -> Response:
    """Return the response for a list; ``metadata`` is its ListMeta."""
    if tables.is_requested(request.headers.get("accept", "")):
        include = request.query_params.get("includeObject", "")
        table = tables.table(resource, [entry.view for entry in entries], "", include)
        return document(table | {"metadata": metadata})
    head: Object = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    opening = encode({"apiVersion": resources.stored(resource).api_version, "kind": resource.kind})[:-1] + b","
    items = b",".join(_untyped(entry.encoded, opening) for entry in entries)
    return raw(encode(head)[:-1] + b',"items":[' + items + b"]}")


def _untyped(encoded: bytes, opening: bytes) -> bytes:
    """Return an item of a list as servers send it: without its apiVersion and kind, which the list's own imply."""
    return b"{" + encoded[len(opening) :] if encoded.startswith(opening) else encoded


def created() -> Response:
    """Return the Status of a post that created no object of its own."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return document(status, code=201)


def success(resource: Resource, name: str, uid: str) -> Response:
    """Return the Status of a deletion whose kind does not answer with the object."""
    details = Details(name=name, group=resource.group, kind=resource.plural, uid=uid)
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return document(status | {"details": details.encode()})


def inward(resource: Resource, body: Json) -> Json:
    """Return a body or patch in the stored version; one whose version differs from its URL's is returned as it is."""
    stored = resources.stored(resource)
    if stored is resource or not isinstance(body, dict) or body.get("apiVersion") != resource.api_version:
        return body
    return body | {"apiVersion": stored.api_version}


def inward_object(resource: Resource, body: Object) -> Object:
    """Return an object in the stored version."""
    stored_body = inward(resource, body)
    return stored_body if isinstance(stored_body, dict) else body


def outward(resource: Resource, obj: Object) -> Object:
    """Return a stored object in the client's version."""
    return obj if resources.stored(resource) is resource else obj | {"apiVersion": resource.api_version}


def outward_bytes(resource: Resource, encoded: bytes) -> bytes:
    """Return an encoded object in the client's version; a Status is not of the kind and keeps its version."""
    stored = resources.stored(resource)
    if stored is resource:
        return encoded
    stored_opening, served_opening = _opening(stored), _opening(resource)
    if encoded.startswith(stored_opening):
        return served_opening + encoded[len(stored_opening) :]
    obj: Object = json.loads(encoded)
    return json.dumps(obj | {"apiVersion": resource.api_version}, ensure_ascii=False, separators=(",", ":")).encode()


def _opening(resource: Resource) -> bytes:
    return f'{{"apiVersion":"{resource.api_version}",'.encode()


MAX_OPEN = 32


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of a list, the version of the list, and the token of the next part (empty at the end)."""

    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int = 0


class Pages:
    """The lists that clients have read in part. Only the server's thread uses it."""

    def __init__(self) -> None:
        self._rest: OrderedDict[str, tuple[list[Entry], int]] = OrderedDict()

    def first(self, entries: list[Entry], version: int, limit: int) -> Page:
        """Return the first page of at most ``limit`` entries (0: all)."""
        if not limit or len(entries) <= limit:
            return Page(entries=entries, version=version)
        token, rest = secrets.token_urlsafe(12), entries[limit:]
        self._rest[token] = (rest, version)
        if len(self._rest) > MAX_OPEN:
            self._rest.popitem(last=False)
        return Page(entries=entries[:limit], version=version, token=token, remaining=len(rest))

    def following(self, token: str, limit: int) -> Page:
        """Return the page after ``token``; GoneError for a token that is unknown, or too old."""
        if token not in self._rest:
            raise errors.GoneError(
                "The provided continue parameter is too old to display a consistent list result. Start a new list without it."
            )
        entries, version = self._rest[token]
        return self.first(entries, version, limit)
