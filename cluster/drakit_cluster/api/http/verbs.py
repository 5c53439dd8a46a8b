"""One function per verb: from a request on a parsed target to a response. A Deployment has a scale, as autoscaling/v1 defines it."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar, Unpack

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from drakit_cluster.access.users import User
from drakit_cluster.admission.request_review import RequestReview
from drakit_cluster.api.http import answers, bodies, streams, targets
from drakit_cluster.api.http.answers import Page, Pages
from drakit_cluster.api.http.reviews import Reviews
from drakit_cluster.api.http.streams import Streams
from drakit_cluster.api.http.targets import Target
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.registry import Registry
from drakit_cluster.api.reviewing import Change, Operation
from drakit_cluster.api.storage import query
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.api import Listing, PatchOptions
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import table as shapes

_T = TypeVar("_T")
_SCALE = "scale"
SCALE_GROUP, SCALE_VERSION, SCALE_KIND = "autoscaling", "v1", "Scale"


@dataclass(frozen=True, kw_only=True)
class Context:
    """The dependencies of the verbs."""

    registry: Registry
    streams: Streams
    pages: Pages
    reviews: Reviews
    bookmark_every: float


@dataclass(frozen=True, kw_only=True)
class Call:
    """An authorized request: its target, its user, and the review of its writes."""

    request: Request
    target: Target
    user: User
    review: RequestReview


Verb: TypeAlias = Callable[[Context, Call], Awaitable[Response]]


async def _write(context: Context, work: Callable[[], _T]) -> _T:
    """Run a write on the event loop, or in a thread where webhooks are configured: the server must answer while a webhook decides."""
    if context.registry.store.scan(resources.WEBHOOKS)[0]:
        return await run_in_threadpool(work)
    return work()


def _write_response(call: Call, obj: Object, warnings: list[str], *, code: int = 200) -> Response:
    body = answers.outward(call.target.resource, obj)
    return answers.raw(answers.encode(body), code=code, warnings=[*warnings, *call.review.warnings])


async def get(context: Context, call: Call) -> Response:
    """Answer with one object."""
    target = call.target
    entry = context.registry.entry(target.stored, target.name, target.namespace)
    if target.subresource == _SCALE:
        return answers.document(_scale_of(entry.view))
    return answers.object_response(call.request, target.resource, entry)


async def list_(context: Context, call: Call) -> Response:
    """Answer with a list, or with one page of it."""
    parameters = call.request.query_params
    limit = targets.whole_number(parameters, "limit") or 0
    requested_version, match = parameters.get("resourceVersion", ""), parameters.get("resourceVersionMatch", "")
    token = parameters.get("continue", "")
    targets.check_list_version(requested_version, match, token)
    if token:
        page = context.pages.following(token, limit)
    else:
        entries, version = context.registry.select(call.target.stored, _selection(call))
        _check_version(requested_version, match, version)
        page = context.pages.first(entries, version, limit)
    return answers.list_response(call.request, call.target.resource, page.entries, _list_metadata(page))


def _list_metadata(page: Page) -> Object:
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.token:
        metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
    return metadata


def _check_version(requested: str, match: str, current: int) -> None:
    """Raise GoneError for an exact version of the past and ExpiredWaitError for one of the future: only the present can be listed."""
    version = int(requested) if requested else 0
    if match == "Exact" and version < current:
        raise errors.GoneError(f"The provided resource version is too old: {version} ({current})")
    if version > current:
        raise errors.ExpiredWaitError(f"Too large resource version: {version}, current: {current}")


def _selection(call: Call) -> query.Query:
    parameters = call.request.query_params
    return query.parse(
        call.target.stored,
        namespace=call.target.namespace,
        field_selector=parameters.get("fieldSelector", ""),
        label_selector=parameters.get("labelSelector", ""),
    )


async def watch(context: Context, call: Call) -> Response:
    """Answer with a stream of events."""
    options = streams.parse_options(call.request.query_params, call.request.headers.get("accept", ""), context.bookmark_every)
    try:
        return context.streams.open(call.target, _selection(call), options)
    except errors.GoneError as error:
        return streams.ended(error)


async def create(context: Context, call: Call) -> Response:
    """Store the body as a new object, or answer it where it is a review."""
    target = call.target
    if target.stored is resources.POD and target.subresource:
        return await _POD_POSTS[target.subresource](context, call)
    if target.subresource or target.resource.verbs == resources.REVIEW_VERBS:
        return await _answer(context, call, await bodies.read_object(call.request))
    call = _with_dry_run(call, dry_run=bodies.is_dry_run("CreateOptions", call.request.query_params))
    body = await bodies.read_object(call.request)
    warnings = bodies.unknown_fields(target.resource, body, call.request.query_params, context.registry.gates)
    obj = answers.inward_object(target.resource, body)
    manager, store = call.request.query_params.get("fieldManager", ""), context.registry.create
    created = await _write(context, lambda: store(target.stored, obj, namespace=target.namespace, manager=manager, review=call.review))
    return _write_response(call, created, warnings, code=201)


async def _answer(context: Context, call: Call, body: Object) -> Response:
    """Answer a review or a token request, which is not stored. Policies see a token request as an object posted to the account."""
    target = call.target
    if target.subresource:
        call = _with_dry_run(call, dry_run=bodies.is_dry_run("CreateOptions", call.request.query_params))
        key = Key(target.namespace, target.name)
        change = Change(operation=Operation.CREATE, resource=target.stored, key=key)
        await _write(context, functools.partial(call.review.as_post(target.subresource, body).admit, change))
    return answers.document(context.reviews.answer(target, body, call.user), code=201)


async def _evict(context: Context, call: Call) -> Response:
    """Delete a pod as ``kubectl drain`` requests it. This cluster has no disruption budgets, so every eviction is allowed."""
    body, _ = shapes.decode(resources.EVICTION, await bodies.read_object(call.request))
    delete_options = bodies.of_delete(body.get("deleteOptions"), call.request.query_params)
    call = _posting(_with_dry_run(call, dry_run=delete_options.dry_run), body)
    await _write(context, lambda: _delete_target(context, call, delete_options))
    return answers.created()


async def _bind(context: Context, call: Call) -> Response:
    target = call.target
    body, _ = shapes.decode(resources.POD_BINDING, await bodies.read_object(call.request))
    call = _posting(_with_dry_run(call, dry_run=bodies.is_dry_run("CreateOptions", call.request.query_params)), body)
    node, uid = json_types.text(body, "target", "name"), json_types.text(body, "metadata", "uid")
    if not node:
        raise errors.InvalidError("target.name: Required value")

    pod = context.registry.entry(target.stored, target.name, target.namespace).view
    if bound := json_types.text(pod, "spec", "nodeName"):
        raise errors.ConflictError(f"Operation cannot be fulfilled on pods/binding: pod {target.name} is already assigned to node {bound}")
    await _patch_target(context, call, {"metadata": {"uid": uid} if uid else {}, "spec": {"nodeName": node}})
    return answers.created()


_POD_POSTS: dict[str, Verb] = {"eviction": _evict, "binding": _bind}


async def update(context: Context, call: Call) -> Response:
    """Replace an object, or its status, by the body."""
    target = call.target
    call = _with_dry_run(call, dry_run=bodies.is_dry_run("UpdateOptions", call.request.query_params))
    body = await bodies.read_object(call.request)
    if target.subresource == _SCALE:
        return await _patch_scale(context, call, body)
    metadata = json_types.child(body, "metadata")
    for field, expected in (("name", target.name), ("namespace", target.namespace)):
        if json_types.text(metadata, field) not in ("", expected):
            raise errors.BadRequestError(f"metadata.{field}: {metadata[field]} does not match {expected} of the URL")
        if expected:
            metadata[field] = expected
    warnings = bodies.unknown_fields(target.resource, body, call.request.query_params, context.registry.gates)
    new, manager = answers.inward_object(target.resource, body), _manager(call.request, bodies.media_type(call.request))
    replace = context.registry.update
    stored = await _write(context, lambda: replace(target.stored, new, subresource=target.subresource, manager=manager, review=call.review))
    return _write_response(call, stored, warnings)


async def patch(context: Context, call: Call) -> Response:
    """Change an object by the patch in the body."""
    target = call.target
    kind, body = await bodies.read_patch(call.request)
    dry_run = bodies.is_dry_run("PatchOptions", call.request.query_params, apply=kind is PatchKind.APPLY)
    call = _with_dry_run(call, dry_run=dry_run)
    if target.subresource == _SCALE:
        return await _patch_scale(context, call, body)
    warnings = bodies.unknown_fields(target.resource, body, call.request.query_params, context.registry.gates)
    forced = targets.flag(call.request.query_params, "force")
    manager, change = _manager(call.request, kind.value), answers.inward(target.resource, body)
    stored = await _patch_target(context, call, change, kind, subresource=target.subresource, manager=manager, force=forced)
    return _write_response(call, stored, warnings)


async def _patch_target(
    context: Context, call: Call, patch: Json, kind: PatchKind = PatchKind.MERGE, **options: Unpack[PatchOptions]
) -> Object:
    """Change the target's object."""
    target, patch_object = call.target, context.registry.patch
    work = functools.partial(
        patch_object, target.stored, target.name, patch, namespace=target.namespace, kind=kind, review=call.review, **options
    )
    return await _write(context, work)


async def _patch_scale(context: Context, call: Call, body: Json) -> Response:
    kind = (SCALE_GROUP, SCALE_VERSION, SCALE_KIND)
    call = replace(call, review=call.review.as_part(_SCALE, kind, _scale_of))
    return answers.document(_scale_of(await _patch_target(context, call, _scale_change(body))))


def _manager(request: Request, media_type: str) -> str:
    """Return the field manager: the fieldManager parameter, or without it, except for an apply, the client's name."""
    manager = request.query_params.get("fieldManager", "")
    if manager or media_type == "application/apply-patch+yaml":
        return manager
    return request.headers.get("user-agent", "").partition("/")[0]


async def delete(context: Context, call: Call) -> Response:
    """Delete an object under the preconditions of the body (DeleteOptions)."""
    target = call.target
    delete_options = bodies.of_delete(await bodies.read_json(call.request), call.request.query_params)
    call = _with_dry_run(call, dry_run=delete_options.dry_run)
    last = await _write(context, lambda: _delete_target(context, call, delete_options))
    if target.resource.returns_deleted:
        return _write_response(call, last, [])
    return answers.success(target.resource, target.name, json_types.text(last, "metadata", "uid"))


def _delete_target(context: Context, call: Call, delete_options: bodies.DeleteOptions) -> Object:
    return context.registry.delete(
        call.target.stored,
        call.target.name,
        namespace=call.target.namespace,
        uid=delete_options.uid,
        resource_version=delete_options.resource_version,
        grace_seconds=delete_options.grace_seconds,
        orphan=delete_options.orphan,
        review=call.review,
    )


async def delete_collection(context: Context, call: Call) -> Response:
    """Delete a selection."""
    target, parameters = call.target, call.request.query_params
    delete_options = bodies.of_delete(await bodies.read_json(call.request), parameters)
    call = _with_dry_run(call, dry_run=delete_options.dry_run)

    def work() -> Listing:
        return context.registry.delete_collection(
            target.stored,
            namespace=target.namespace,
            field_selector=parameters.get("fieldSelector", ""),
            label_selector=parameters.get("labelSelector", ""),
            grace_seconds=delete_options.grace_seconds,
            review=call.review,
        )

    listing = await _write(context, work)
    head: Object = {"kind": f"{target.resource.kind}List", "apiVersion": target.resource.api_version}
    items = [answers.outward(target.resource, element) for element in listing.items]
    return answers.document(head | {"metadata": {"resourceVersion": listing.resource_version}, "items": json_types.from_objects(items)})


def _posting(call: Call, body: Object) -> Call:
    """Return the call whose review sees the posted body, as Kubernetes reviews an eviction or a binding, and not the pod's change."""
    return replace(call, review=call.review.as_post(call.target.subresource, body))


def _with_dry_run(call: Call, *, dry_run: bool) -> Call:
    return replace(call, review=replace(call.review, dry_run=dry_run))


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


def _scale_of(deployment: Object) -> Object:
    metadata = json_types.mapping(deployment, "metadata")
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = json_types.mapping(deployment, "spec", "selector", "matchLabels")
    status: Object = {
        "replicas": json_types.number(deployment, "status", "replicas"),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    }
    return {
        "kind": SCALE_KIND,
        "apiVersion": f"{SCALE_GROUP}/{SCALE_VERSION}",
        "metadata": {field: metadata[field] for field in fields if field in metadata},
        "spec": {"replicas": json_types.number(deployment, "spec", "replicas")},
        "status": status,
    }


def _scale_change(body: Json) -> Object:
    """Return the Deployment's merge patch for a Scale, or for a merge patch of one; InvalidError, BadRequestError."""
    replicas = json_types.at(body, "spec", "replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.BadRequestError("spec.replicas: want a whole number")
    if replicas < 0:
        raise errors.InvalidError(f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0")
    metadata: Object = {field: value for field in ("uid", "resourceVersion") if (value := json_types.text(body, "metadata", field))}
    return {"metadata": metadata, "spec": {"replicas": replicas}}
