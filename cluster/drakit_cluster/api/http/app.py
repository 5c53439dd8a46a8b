"""The API as an ASGI application: authenticate, find the target, authorize, act, and turn every error into a Status."""

import functools
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from drakit.telemetry import logs
from drakit_cluster.access.accounts import Accounts
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.tokens import Tokens
from drakit_cluster.access.users import Attributes, User, denial
from drakit_cluster.admission.request_review import RequestReview
from drakit_cluster.api.http import answers, discovery, openapi, targets, verbs
from drakit_cluster.api.http.answers import Pages
from drakit_cluster.api.http.reviews import Reviews
from drakit_cluster.api.http.streams import Streams
from drakit_cluster.api.http.targets import Target
from drakit_cluster.api.http.verbs import Call, Context
from drakit_cluster.api.metrics import MEDIA, Metrics
from drakit_cluster.api.registry import Registry
from drakit_cluster.objects import errors, features, json_types, resources
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_METRICS_PATH = "/metrics"
_OPEN_DOCUMENTS = ("/version",)

_log = logs.get_logger(__name__)


class App:
    """The ASGI callable. One instance serves one registry on one event loop."""

    def __init__(self, registry: Registry, tokens: Tokens, authorizer: Authorizer, metrics: Metrics, *, bookmark_every: float) -> None:
        self.streams = Streams(registry.store)
        self._registry = registry
        self._tokens = tokens
        self._authorizer = authorizer
        self._metrics = metrics
        self._documents: Mapping[str, Object] = {
            **discovery.documents(registry.gates),
            openapi.PREFIX: openapi.index(registry.gates),
        }
        self._context = Context(
            registry=registry,
            streams=self.streams,
            pages=Pages(),
            reviews=Reviews(authorizer=authorizer, accounts=Accounts(store=registry.store, tokens=tokens)),
            bookmark_every=bookmark_every,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except errors.ApiError as error:
            response = answers.refusal(error)
        except Exception:  # noqa: BLE001 -- one bad request must not end the server; logged with its trace.
            _log.exception("request failed", method=request.method, path=scope["path"])
            response = answers.refusal(errors.InternalError("the server failed; its log says why"))
        if labels := getattr(request.state, "labels", None):
            self._metrics.request(code=str(response.status_code), **labels)
            self._metrics.received(labels["verb"], labels["resource"], int(request.headers.get("content-length", 0)))
            send = self._counted(send, labels["verb"], labels["resource"])
        await response(scope, receive, send)

    def _counted(self, send: Send, verb: str, resource: str) -> Send:
        """Return a ``send`` that counts bytes as they are sent, those of a watch while it is open."""

        async def counting(message: Message) -> None:
            await send(message)
            self._metrics.sent(verb, resource, len(message.get("body", b"")))

        return counting

    async def _respond(self, request: Request) -> Response:
        path: str = request.scope["path"]
        if path in _HEALTH_PATHS:
            return PlainTextResponse("ok")
        if path in _OPEN_DOCUMENTS:
            return answers.document(self._documents[path])
        user = self._user(request)
        if (document := self._documents.get(path.rstrip("/"))) is not None:
            self._authorize(user, Attributes(verb="get", path=path))
            return answers.document(document)
        if path.startswith("/openapi/"):
            self._authorize(user, Attributes(verb="get", path=path))
            return await self._described(path)
        if path == _METRICS_PATH:
            self._authorize(user, Attributes(verb="get", path=path))
            return Response(self._metrics.text(), media_type=MEDIA)
        target = targets.parse(path)
        if target is None or not self._registry.gates.serves(target.resource):
            self._authorize(user, Attributes(verb=request.method.lower(), path=path))
            raise errors.NotFoundError(_not_found_message(path, target, self._registry.gates))
        return await self._act(request, user, target)

    async def _described(self, path: str) -> Response:
        """Answer an OpenAPI document. It is made at the first request, in a thread, because reading its texts takes time."""
        if path == openapi.V2_PATH:
            return Response(openapi.V2, media_type=openapi.V2_MEDIA)
        return answers.raw(await run_in_threadpool(_openapi, self._registry.gates, path))

    def _user(self, request: Request) -> User:
        """Return the user of a request. Raises BadRequestError for impersonation, which would otherwise run as the token's own user."""
        if any(name.startswith("impersonate-") for name in request.headers):
            raise errors.BadRequestError("Impersonate-User: the local cluster has no impersonation; use a token of that user")
        return self._tokens.user(request.headers.get("authorization", ""))

    async def _act(self, request: Request, user: User, target: Target) -> Response:
        verb = targets.verb(target, request.method, request.query_params)
        request.state.labels = targets.labels(target, verb)
        self._authorize(user, targets.attributes(target, verb, request.query_params))
        if target.subresource in target.resource.absent:
            raise self._absent(target)
        review = RequestReview(user=user, verb=verb, authorizer=self._authorizer, store=self._registry.store, gates=self._registry.gates)
        return await verbs.TABLE[verb](self._context, Call(request=request, target=target, user=user, review=review))

    def _absent(self, target: Target) -> errors.ApiError:
        """Return the error for a request to containers, such as for logs: NotFoundError where the pod does not exist."""
        try:
            pod = self._registry.entry(target.stored, target.name, target.namespace).view
        except errors.NotFoundError as missing:
            return missing
        reason = f"the local cluster does not serve {target.subresource}, and simulates containers without --run-pods"
        if target.subresource == "log":
            file = f"{json_types.text(pod, 'spec', 'nodeName') or 'NODE'}/logs/{json_types.text(pod, 'metadata', 'uid')}/CONTAINER.log"
            reason = (
                f"the local cluster serves no logs; with --run-pods containers write to {file} in the cluster's folder, else they have none"
            )
        return errors.BadRequestError(
            f"pod {target.name}: {reason}; see "
            f"its status, its events and its claims instead: kubectl -n {target.namespace} describe pod {target.name}"
        )

    def _authorize(self, user: User, attributes: Attributes) -> None:
        if self._authorizer.allows(user, attributes):
            return
        why = denial(user, attributes)
        if attributes.path:
            raise errors.ForbiddenError(f"forbidden: {why}")
        qualified = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
        quoted_name = f' "{attributes.name}"' if attributes.name else ""
        details = Details(name=attributes.name, group=attributes.group, kind=attributes.resource)
        raise errors.ForbiddenError(f"{qualified}{quoted_name} is forbidden: {why}", details)


@functools.lru_cache(maxsize=64)
def _openapi(gates: FeatureGates, path: str) -> bytes:
    """Return an encoded OpenAPI document. Raises NotFoundError for another path."""
    if (made := openapi.document(gates, path)) is None:
        raise errors.NotFoundError(_not_found_message(path, None, gates))
    return answers.encode(made)


def _not_found_message(path: str, target: Target | None, gates: FeatureGates) -> str:
    if target is not None:
        return f"the server could not find the requested resource: {features.not_served(target.resource, gates)}"
    for prefix, why in resources.REFUSED_VERSIONS.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return why
    return "the server could not find the requested resource"
