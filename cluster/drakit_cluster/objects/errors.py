"""What the API refuses, and how it says so.

Every refusal is an :class:`ApiError` that knows its metav1 ``Status``: the server encodes it, the client decodes it to the same class,
so callers of either handle one set of errors::

    ApiError                      any failure; carries code, reason, message, details
      BadRequestError        400  the request cannot be understood
      UnauthorizedError      401  no or unknown credentials
      ForbiddenError         403  known, but not allowed
      NotFoundError          404
      MethodNotAllowedError  405
      ConflictError          409  stale resourceVersion, wrong UID, or another field manager owns the field
      AlreadyExistsError     409
      GoneError              410  the resourceVersion or continue token is too old; list again
      TooLargeError          413  the body is larger than the server reads
      UnsupportedMediaError  415
      InvalidError           422  the object breaks a rule; details name each field
      InternalError          500
      StorageError           500  etcd would not take the object; without a reason, as in Kubernetes
      ExpiredWaitError       504  the resourceVersion asked for does not exist yet
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
    """What the failure is about: ``kind`` holds the plural resource, or the kind for invalid objects, as Kubernetes does."""

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


class ApiError(Exception):
    """A refused request. ``code`` is the HTTP status, ``reason`` the word that machines compare."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(self, message: str, details: Details | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or Details()

    def status(self) -> Object:
        """Return the metav1 Status that goes on the wire."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:
            del status["reason"]
        details = self.details.encode()
        return status | ({"details": details} if details else {})


class BadRequestError(ApiError):
    """The request cannot be understood."""

    code = 400
    reason = "BadRequest"


class UnauthorizedError(ApiError):
    """No credentials, or unknown ones."""

    code = 401
    reason = "Unauthorized"


class ForbiddenError(ApiError):
    """The user is known but may not do this."""

    code = 403
    reason = "Forbidden"


class NotFoundError(ApiError):
    """There is no such object or resource."""

    code = 404
    reason = "NotFound"


class MethodNotAllowedError(ApiError):
    """The resource exists but has no such verb."""

    code = 405
    reason = "MethodNotAllowed"


class ConflictError(ApiError):
    """Somebody else was first: read again, or force an apply."""

    code = 409
    reason = "Conflict"


class AlreadyExistsError(ApiError):
    """An object of that name exists."""

    code = 409
    reason = "AlreadyExists"


class GoneError(ApiError):
    """The history asked for is lost: list again, then watch from there."""

    code = 410
    reason = "Expired"


class TooLargeError(ApiError):
    """The body of the request is larger than the server reads."""

    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaError(ApiError):
    """The content type is not one the server reads."""

    code = 415
    reason = "UnsupportedMediaType"


class InvalidError(ApiError):
    """The object breaks a rule of its kind; ``details.causes`` name the fields."""

    code = 422
    reason = "Invalid"


class InternalError(ApiError):
    """A bug of the server."""


class StorageError(ApiError):
    """The store refuses the object. Kubernetes passes its words on without a reason."""

    reason = ""


class ExpiredWaitError(ApiError):
    """A resourceVersion from the future was asked for."""

    code = 504
    reason = "Timeout"


_BY_REASON: dict[str, type[ApiError]] = {
    kind.reason: kind
    for kind in (
        BadRequestError,
        UnauthorizedError,
        ForbiddenError,
        NotFoundError,
        MethodNotAllowedError,
        ConflictError,
        AlreadyExistsError,
        GoneError,
        TooLargeError,
        UnsupportedMediaError,
        InvalidError,
        InternalError,
        StorageError,
        ExpiredWaitError,
    )
}

BY_CODE: dict[int, type[ApiError]] = {
    kind.code: kind for kind in _BY_REASON.values() if kind.code < InternalError.code and kind is not AlreadyExistsError
}
"""By HTTP status: the refusals that say that the request is at fault."""


def from_status(status: Json) -> ApiError:
    """Return the error that a metav1 Status describes; an unknown reason gives a plain :class:`ApiError`."""
    causes = tuple(
        Cause(reason=json_types.text(cause, "reason"), message=json_types.text(cause, "message"), field=json_types.text(cause, "field"))
        for cause in json_types.objects(status, "details", "causes")
    )
    details = Details(
        name=json_types.text(status, "details", "name"),
        group=json_types.text(status, "details", "group"),
        kind=json_types.text(status, "details", "kind"),
        uid=json_types.text(status, "details", "uid"),
        causes=causes,
    )
    kind = _BY_REASON.get(json_types.text(status, "reason"), ApiError)
    return kind(json_types.text(status, "message") or "the server gave no message", details)
