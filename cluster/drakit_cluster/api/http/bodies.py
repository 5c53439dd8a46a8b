"""Request bodies and the options of writes, checked as Kubernetes does: ValidateCreateOptions and its siblings in apimachinery's meta/v1.

Bodies are JSON (YAML for apply patches), limited in size, and checked for unknown fields.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from starlette.datastructures import QueryParams
from starlette.requests import Request

from drakit.inputs import documents
from drakit_cluster.api.http import protobuf
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import api_models, table
from drakit_cluster.objects.schema import unknown_fields as schema_unknown
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

MAX_BODY_BYTES = 3 * 1024 * 1024
_JSON_TYPES = ("", "application/json", "*/*")
_STRICT = "Strict"
_IGNORE = "Ignore"


def media_type(request: Request) -> str:
    """Return the content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip()


async def read(request: Request) -> bytes:
    """Return the body; TooLargeError if it is larger than a real server accepts."""
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
        patch_kind = PatchKind(kind)
    except ValueError as error:
        known_types = ", ".join(known_kind.value for known_kind in PatchKind)
        raise errors.UnsupportedMediaError(f"patches of type {kind or '(none)'} are not known; known are {known_types}") from error
    body = await read(request)
    return patch_kind, _parse_yaml(body) if patch_kind is PatchKind.APPLY else _parse_json(body)


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


def unknown_fields(resource: Resource, body: Json, parameters: Mapping[str, str], gates: FeatureGates) -> list[str]:
    """Return warnings for the unknown fields of a body, as the fieldValidation parameter asks (Warn is the default).

    Raises BadRequestError for Strict.
    """
    mode = parameters.get("fieldValidation", "")
    if mode == _IGNORE or not isinstance(body, dict):
        return []
    _, paths = table.decode(resource, body, gates)
    if mode == _STRICT:  # Other clients than kubectl do not ask for it, and the first look at the models takes time.
        paths += schema_unknown.find(table.shape_of(resource, gates), api_models.name_of(resource), body, "")
    warnings = [f'unknown field "{path}"' for path in paths if "$" not in path]
    if warnings and mode == _STRICT:
        raise errors.BadRequestError(f"strict decoding error: {', '.join(warnings)}")
    return warnings


_GROUP = "meta.k8s.io"
_ALL = "All"
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_MAX_MANAGER = 128


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """The options of a delete. ``grace_seconds`` is None if the object decides; ``orphan`` keeps the objects that it owns."""

    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    dry_run: bool = False
    orphan: bool = False


def is_dry_run(kind: str, parameters: QueryParams, *, apply: bool = False) -> bool:
    """Check the parameters of a create, update or patch; return whether it is a dry run.

    ``kind`` is CreateOptions, UpdateOptions or PatchOptions. Raises InvalidError.
    """
    dry_run = parameters.getlist("dryRun")
    failures = [*_manager(parameters.get("fieldManager", "")), *_check_dry_run(dry_run)]
    mode = parameters.get("fieldValidation", "")
    if mode not in _FIELD_VALIDATIONS:
        failures.append(failure.not_supported("fieldValidation", mode, _FIELD_VALIDATIONS))
    if kind == "PatchOptions" and not apply and "force" in parameters:
        failures.append(failure.forbidden("force", "may not be specified for non-apply patch"))
    if kind == "PatchOptions" and apply and not parameters.get("fieldManager"):
        failures.append(failure.required("fieldManager", "is required for apply patch"))
    _refuse(kind, failures)
    return bool(dry_run)


def of_delete(body: Json, parameters: QueryParams) -> DeleteOptions:
    """Return the options of a delete from the body, and those that it does not set from the query. Raises InvalidError."""
    dry: list[str] = json_types.strings(body, "dryRun") or parameters.getlist("dryRun")
    policy = json_types.text(body, "propagationPolicy") or parameters.get("propagationPolicy", "")
    failures = list(_check_dry_run(dry))
    if policy and policy not in _PROPAGATIONS:
        failures.append(failure.not_supported("propagationPolicy", policy, (*_PROPAGATIONS, "nil")))
    _refuse("DeleteOptions", failures)
    return DeleteOptions(
        uid=json_types.text(body, "preconditions", "uid"),
        resource_version=json_types.text(body, "preconditions", "resourceVersion"),
        grace_seconds=_grace(body, parameters.get("gracePeriodSeconds", "")),
        dry_run=bool(dry),
        orphan=policy == "Orphan" or json_types.at(body, "orphanDependents") is True,
    )


def _grace(body: Json, parameter: str) -> int | None:
    if parameter:
        if not parameter.isdecimal():
            raise errors.BadRequestError(f"gracePeriodSeconds: want a whole number, got {parameter!r}")
        return int(parameter)
    seconds = json_types.at(body, "gracePeriodSeconds")
    return seconds if isinstance(seconds, int) else None


def _check_dry_run(values: list[str]) -> Iterator[Failure]:
    if any(value != _ALL for value in values):
        yield failure.not_supported("dryRun", json_types.from_strings(values), (_ALL,))


def _manager(name: str) -> Iterator[Failure]:
    if len(name) > _MAX_MANAGER:
        yield failure.too_long("fieldManager", _MAX_MANAGER)
    for position, character in enumerate(name):
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            yield failure.invalid("fieldManager", name, detail)


def _refuse(kind: str, failures: list[Failure]) -> None:
    if failures:
        raise failure.refusal(f"{kind}.{_GROUP}", "", failures, Details(group=_GROUP, kind=kind))
