"""One function per verb: from a request on a known target to a response."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from drakit.cluster import errors, json_types, query
from drakit.cluster.json_types import Json, Object
from drakit.cluster.registry import Registry
from drakit.cluster.rest import answers, bodies, streams, targets
from drakit.cluster.rest.paging import Page, Pages
from drakit.cluster.rest.streams import Streams
from drakit.cluster.rest.targets import Target


@dataclass(frozen=True, kw_only=True)
class Context:
    """What verbs work on. ``gone_as_status`` answers a watch from a lost version with HTTP 410 instead of an ERROR event."""

    registry: Registry
    streams: Streams
    pages: Pages
    bookmark_every: float
    gone_as_status: bool


Verb: TypeAlias = Callable[[Context, Request, Target], Awaitable[Response]]


async def get(context: Context, request: Request, target: Target) -> Response:
    """Answer with one object."""
    entry = context.registry.entry(target.resource, target.name, target.namespace)
    return answers.one(request, target.resource, entry)


async def list_(context: Context, request: Request, target: Target) -> Response:
    """Answer with a list, or with one page of it."""
    parameters = request.query_params
    limit = targets.whole(parameters, "limit") or 0
    if token := parameters.get("continue", ""):
        page = context.pages.following(token, limit)
    else:
        entries, version = context.registry.select(target.resource, _selection(request, target))
        _check_version(parameters.get("resourceVersion", ""), parameters.get("resourceVersionMatch", ""), version)
        page = context.pages.first(entries, version, limit)
    return answers.many(request, target.resource, page.entries, _list_metadata(page))


def _list_metadata(page: Page) -> Object:
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.token:
        metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
    return metadata


def _check_version(given: str, match: str, current: int) -> None:
    """Refuse a list at a version that is over, or not yet there. This server lists the present only."""
    wanted = int(given) if given.isdecimal() else 0
    if match == "Exact" and 0 < wanted < current:
        raise errors.GoneError(f"The provided resource version is too old: {wanted} ({current})")
    if wanted > current:
        raise errors.ExpiredWaitError(f"Too large resource version: {wanted}, current: {current}")


def _selection(request: Request, target: Target) -> query.Query:
    parameters = request.query_params
    return query.parse(
        target.resource,
        namespace=target.namespace,
        field_selector=parameters.get("fieldSelector", ""),
        label_selector=parameters.get("labelSelector", ""),
    )


async def watch(context: Context, request: Request, target: Target) -> Response:
    """Answer with a stream of events."""
    how = streams.options(request.query_params, request.headers.get("accept", ""), context.bookmark_every)
    try:
        return context.streams.open(target, _selection(request, target), how)
    except errors.GoneError as error:
        if context.gone_as_status:
            raise
        return streams.ended(error)


async def create(context: Context, request: Request, target: Target) -> Response:
    """Store the body as a new object."""
    body = await bodies.read_object(request)
    warnings = bodies.unknown_fields(target.resource, body, request.query_params)
    made = context.registry.create(target.resource, body, namespace=target.namespace)
    return answers.raw(answers.encode(made), code=201, warnings=warnings)


async def update(context: Context, request: Request, target: Target) -> Response:
    """Replace an object, or its status, by the body."""
    body = await bodies.read_object(request)
    metadata = json_types.child(body, "metadata")
    for field, wanted in (("name", target.name), ("namespace", target.namespace)):
        if json_types.text(metadata, field) not in ("", wanted):
            raise errors.BadRequestError(f"metadata.{field}: {metadata[field]} does not match {wanted} of the URL")
        if wanted:
            metadata[field] = wanted
    warnings = bodies.unknown_fields(target.resource, body, request.query_params)
    stored = context.registry.update(
        target.resource, body, subresource=target.subresource, manager=_manager(request, bodies.media_type(request))
    )
    return answers.raw(answers.encode(stored), warnings=warnings)


async def patch(context: Context, request: Request, target: Target) -> Response:
    """Change an object by the patch in the body."""
    kind, body = await bodies.read_patch(request)
    warnings = bodies.unknown_fields(target.resource, body, request.query_params)
    stored = context.registry.patch(
        target.resource,
        target.name,
        body,
        namespace=target.namespace,
        kind=kind,
        subresource=target.subresource,
        manager=_manager(request, kind.value),
        force=targets.flag(request.query_params, "force"),
    )
    return answers.raw(answers.encode(stored), warnings=warnings)


def _manager(request: Request, media_type: str) -> str:
    """Return who writes: the fieldManager parameter; without one the client's name, but never for an apply."""
    named = request.query_params.get("fieldManager", "")
    if named or media_type == "application/apply-patch+yaml":
        return named
    return request.headers.get("user-agent", "").partition("/")[0]


async def delete(context: Context, request: Request, target: Target) -> Response:
    """Delete an object under the preconditions of the body (DeleteOptions)."""
    wanted = await bodies.read_json(request)
    grace = targets.whole(request.query_params, "gracePeriodSeconds")
    last = context.registry.delete(
        target.resource,
        target.name,
        namespace=target.namespace,
        uid=json_types.text(wanted, "preconditions", "uid"),
        resource_version=json_types.text(wanted, "preconditions", "resourceVersion"),
        grace_seconds=_grace(wanted) if grace is None else grace,
    )
    if target.resource.returns_deleted:
        return answers.document(last)
    return answers.success(target.resource, target.name, json_types.text(last, "metadata", "uid"))


def _grace(wanted: Json) -> int | None:
    given = json_types.at(wanted, "gracePeriodSeconds")
    return given if isinstance(given, int) else None


async def delete_collection(context: Context, request: Request, target: Target) -> Response:
    """Delete a selection."""
    listing = context.registry.delete_collection(
        target.resource,
        namespace=target.namespace,
        field_selector=request.query_params.get("fieldSelector", ""),
        label_selector=request.query_params.get("labelSelector", ""),
    )
    head: Object = {"kind": f"{target.resource.kind}List", "apiVersion": target.resource.api_version}
    metadata: Object = {"resourceVersion": listing.resource_version}
    return answers.document(head | {"metadata": metadata, "items": json_types.from_objects(listing.items)})


TABLE: dict[str, Verb] = {
    "get": get,
    "list": list_,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
