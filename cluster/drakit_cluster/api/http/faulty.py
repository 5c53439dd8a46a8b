"""An ASGI application with faults: it wraps the API and injects the faults of ``ApiFaults`` into requests."""

import asyncio
import http
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drakit_cluster.faults import ApiFault, ApiFaults, FaultKind
from drakit_cluster.objects import errors

_POLL_SECONDS = 0.01
_REASONS = {code: error.reason for code, error in errors.BY_CODE.items()} | {429: "TooManyRequests", 500: "InternalError"}


class _BrokenError(Exception):
    """Ends a response early."""


class Faulty:
    """The ASGI callable."""

    def __init__(self, app: ASGIApp, faults: ApiFaults) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or inject a fault."""
        fault = self._choose(scope) if scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, receive, send)
            return
        match fault.kind:
            case FaultKind.REFUSE:
                await _refusal(fault.status)(scope, receive, send)
            case FaultKind.NONSENSE:
                await PlainTextResponse("<html>it works!</html>")(scope, receive, send)
            case FaultKind.DELAY:
                await self._delay(fault)
                await self._app(scope, receive, send)
            case FaultKind.CUT:
                await self._cut(scope, receive, send)

    def _choose(self, scope: Scope) -> ApiFault | None:
        request = Request(scope)
        return self._faults.choose(request.method, request.headers.get("user-agent", ""))

    async def _delay(self, fault: ApiFault) -> None:
        end = time.monotonic() + fault.seconds
        while self._faults.is_active(fault) and time.monotonic() < end:  # noqa: ASYNC110 - switched in other threads
            await asyncio.sleep(_POLL_SECONDS)

    async def _cut(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and half of the first part of the body; the server closes a connection whose response is incomplete."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                return
            body = message.get("body", b"")
            await send({**message, "body": body[: len(body) // 2], "more_body": True})
            raise _BrokenError

        try:
            await self._app(scope, receive, sending)
        except* _BrokenError:
            pass


def _refusal(status: int) -> JSONResponse:
    reason = _REASONS.get(status, "")
    message = f"refused on purpose: {reason or http.HTTPStatus(status).phrase}"
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": status}
    headers = {"retry-after": "1"} if status == http.HTTPStatus.TOO_MANY_REQUESTS else {}
    return JSONResponse(body, status_code=status, headers=headers)
