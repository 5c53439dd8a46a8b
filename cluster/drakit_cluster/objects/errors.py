"""The API's errors, and their Status objects.

Every refusal is an :class:`ApiError` that knows its metav1 ``Status``: the server encodes it, the client decodes it to the same class,
so callers of either handle one set of errors.
"""

from dataclasses import dataclass
from typing import ClassVar

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason inside a Status: which field, which kind of failure, and the message for it."""

    reason: str
    message: str
    field: str = ""

    def encode(self) -> Object:
        """Return the metav1 StatusCause."""
        cause: Object = {"reason": self.reason, "message": self.message}
        return cause | ({"field": self.field} if self.field else {})


@dataclass(frozen=True, kw_only=True)
class Details:
    """The subject of the failure: ``kind`` holds the plural resource, or the kind for invalid objects, as Kubernetes does."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()

    def encode(self) -> Object:
        """Return the metav1 StatusDetails, without empty fields."""
        named: Object = {"name": self.name, "group": self.group, "kind": self.kind, "uid": self.uid}
        details: Object = {key: value for key, value in named.items() if value}
        if self.causes:
            details["causes"] = [cause.encode() for cause in self.causes]
        return details


_BY_REASON: dict[str, type["ApiError"]] = {}


class ApiError(Exception):
    """A refused request. ``code`` is the HTTP status, ``reason`` the word that machines compare; ``details`` name its subject."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init_subclass__(cls, *, code: int = 500, reason: str = "") -> None:
        cls.code, cls.reason = code, reason
        _BY_REASON[reason] = cls

    def __init__(self, message: str, details: Details | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or Details()

    def status(self) -> Object:
        """Return the metav1 Status that goes on the wire."""
        status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        status |= {"reason": self.reason, "code": self.code} if self.reason else {"code": self.code}
        details = self.details.encode()
        return status | ({"details": details} if details else {})


class BadRequestError(ApiError, code=400, reason="BadRequest"):
    """The request cannot be understood."""


class UnauthorizedError(ApiError, code=401, reason="Unauthorized"):
    """The request has no credentials, or unknown ones."""


class ForbiddenError(ApiError, code=403, reason="Forbidden"):
    """The user is known but may not do this."""


class NotFoundError(ApiError, code=404, reason="NotFound"):
    """There is no such object or resource."""


class MethodNotAllowedError(ApiError, code=405, reason="MethodNotAllowed"):
    """The resource exists but has no such verb."""


class AlreadyExistsError(ApiError, code=409, reason="AlreadyExists"):
    """An object of that name exists."""


class ConflictError(ApiError, code=409, reason="Conflict"):
    """The resourceVersion is stale, the UID is another, or another field manager owns the field: read again, or force an apply."""


class GoneError(ApiError, code=410, reason="Expired"):
    """The requested history is no longer stored: list again, then watch from there."""


class TooLargeError(ApiError, code=413, reason="RequestEntityTooLarge"):
    """The body of the request is larger than the server reads."""


class UnsupportedMediaError(ApiError, code=415, reason="UnsupportedMediaType"):
    """The server does not read this content type."""


class InvalidError(ApiError, code=422, reason="Invalid"):
    """The object breaks a rule of its kind; ``details.causes`` name the fields."""


class InternalError(ApiError, reason="InternalError"):
    """The server has a bug."""


class StorageError(ApiError):
    """The store refuses the object. Kubernetes forwards the store's message without a reason."""


class ExpiredWaitError(ApiError, code=504, reason="Timeout"):
    """The requested resourceVersion does not exist yet."""


BY_CODE: dict[int, type[ApiError]] = {kind.code: kind for kind in _BY_REASON.values() if kind.code < InternalError.code}
"""The errors that blame the request, by HTTP status."""


def from_status(status: Json) -> ApiError:
    """Return the error that a metav1 Status describes; an unknown reason gives a plain :class:`ApiError`."""
    causes = tuple(
        Cause(**{key: json_types.text(cause, key) for key in ("reason", "message", "field")})
        for cause in json_types.objects(status, "details", "causes")
    )
    named = {key: json_types.text(status, "details", key) for key in ("name", "group", "kind", "uid")}
    kind = _BY_REASON.get(json_types.text(status, "reason"), ApiError)
    return kind(json_types.text(status, "message") or "the server gave no message", Details(**named, causes=causes))
