"""The API as an ASGI application: authenticate, find the target, authorize, act, and turn every error into a Status."""

import logging

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from drakit.cluster import errors
from drakit.cluster.json_types import Object
from drakit.cluster.registry import Registry
from drakit.cluster.rest import access, answers, discovery, openapi, targets, verbs
from drakit.cluster.rest.access import Attributes, Tokens, User
from drakit.cluster.rest.paging import Pages
from drakit.cluster.rest.streams import Streams
from drakit.cluster.rest.targets import Target
from drakit.cluster.rest.verbs import Context

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_OPEN_DOCUMENTS = ("/version",)

_log = logging.getLogger(__name__)


class App:
    """The ASGI callable. One instance serves one registry on one event loop."""

    def __init__(self, registry: Registry, tokens: Tokens, *, bookmark_every: float, gone_as_status: bool) -> None:
        self.streams = Streams(registry.store)
        self._tokens = tokens
        self._documents = discovery.documents() | openapi.documents()
        self._context = Context(
            registry=registry,
            streams=self.streams,
            pages=Pages(),
            bookmark_every=bookmark_every,
            gone_as_status=gone_as_status,
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
            _log.exception("request failed", extra={"method": request.method, "path": request.url.path})
            response = answers.refusal(errors.InternalError("the server failed; its log says why"))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.url.path
        if path in _HEALTH_PATHS:
            return PlainTextResponse("ok")
        if path in _OPEN_DOCUMENTS:
            return answers.document(self._documents[path])
        user = self._tokens.user(request.headers.get("authorization", ""))
        if (found := self._document(path)) is not None:
            _authorize(user, Attributes(verb="get", path=path))
            return answers.document(found)
        target = targets.parse(path)
        if target is None:
            raise errors.NotFoundError("the server could not find the requested resource")
        return await self._act(request, user, target)

    def _document(self, path: str) -> Object | None:
        return self._documents.get(path.rstrip("/"))

    async def _act(self, request: Request, user: User, target: Target) -> Response:
        verb = targets.verb(target, request.method, request.query_params)
        _authorize(user, targets.attributes(target, verb))
        if request.query_params.get("dryRun"):
            raise errors.BadRequestError("dryRun: this server makes no dry runs; nothing was changed")
        return await verbs.TABLE[verb](self._context, request, target)


def _authorize(user: User, attributes: Attributes) -> None:
    if access.authorize(user, attributes):
        return
    wanted = f'{attributes.verb} resource "{attributes.resource}" in API group "{attributes.group}"'
    where = f' in the namespace "{attributes.namespace}"' if attributes.namespace else " at the cluster scope"
    what = f'{attributes.verb} path "{attributes.path}"' if attributes.path else wanted + where
    raise errors.ForbiddenError(f'User "{user.name}" cannot {what}')
