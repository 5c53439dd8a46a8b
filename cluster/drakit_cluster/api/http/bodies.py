"""Request bodies: JSON (YAML for apply patches), limited in size, checked for unknown fields."""

import json
from collections.abc import Mapping

from starlette.requests import Request

from drakit.inputs import documents
from drakit_cluster.api.http import protobuf
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table

MAX_BODY_BYTES = 3 * 1024 * 1024
_JSON_TYPES = ("", "application/json", "*/*")
_STRICT = "Strict"
_IGNORE = "Ignore"


def media_type(request: Request) -> str:
    """Return the content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip()


async def read(request: Request) -> bytes:
    """Return the whole body; TooLargeError if it is larger than a real server would take."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise errors.TooLargeError(f"Request entity too large: limit is {MAX_BODY_BYTES}")
        chunks.append(chunk)
    return b"".join(chunks)


async def read_json(request: Request) -> Json:
    """Return the body of a create, update or delete; None if it is empty. Some kinds may be protobuf."""
    kind = media_type(request)
    if kind == protobuf.MEDIA_TYPE:
        body = await read(request)
        return protobuf.read(body) if body else None
    if kind not in _JSON_TYPES:
        raise errors.UnsupportedMediaError(f"the body of the request was in an unknown format ({kind}); send application/json")
    body = await read(request)
    return _parse_json(body) if body else None


async def read_object(request: Request) -> Object:
    """Return the body of a create or update."""
    body = await read_json(request)
    if not isinstance(body, dict):
        raise errors.BadRequestError("body: want a JSON object")
    return body


async def read_patch(request: Request) -> tuple[PatchKind, Json]:
    """Return a patch and its kind, by the content type."""
    kind = media_type(request)
    try:
        found = PatchKind(kind)
    except ValueError as error:
        known = ", ".join(one.value for one in PatchKind)
        raise errors.UnsupportedMediaError(f"patches of type {kind or '(none)'} are not known; known are {known}") from error
    body = await read(request)
    return found, _parse_yaml(body) if found is PatchKind.APPLY else _parse_json(body)


def _parse_json(body: bytes) -> Json:
    try:
        return json_types.parse(body)
    except (ValueError, RecursionError) as error:
        raise errors.BadRequestError(f"body: not JSON: {error}") from error


def _parse_yaml(body: bytes) -> Json:
    if body.lstrip()[:1] == b"{":
        return _parse_json(body)
    try:
        parsed = documents.load(body.decode("utf-8"))
        return json_types.parse(json.dumps(parsed))
    except (ValueError, TypeError) as error:
        raise errors.BadRequestError(f"body: not YAML that stands for JSON: {error}") from error


def unknown_fields(resource: Resource, body: Json, parameters: Mapping[str, str]) -> list[str]:
    """Return warnings for the unknown fields of a body, as the fieldValidation parameter asks (Warn is the default).

    Raises BadRequestError for Strict.
    """
    mode = parameters.get("fieldValidation", "")
    if mode == _IGNORE or not isinstance(body, dict):
        return []
    _, paths = table.decode(resource, body)
    found = [f'unknown field "{path}"' for path in paths if "$" not in path]
    if found and mode == _STRICT:
        raise errors.BadRequestError(f"strict decoding error: {', '.join(found)}")
    return found
