"""Answer an AdmissionReview (admission.k8s.io/v1) of the API server, about a claim, template or class, or about a pod with its claims.

Only an invalid new spec is denied. A deletion, a status update, an object that is being deleted and an update without a change of the spec are always
allowed, so that an object that an older version admitted can be labelled and removed.
"""

import dataclasses
import enum
import http
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from drakit.admission import lenient_json, opaque, whole_objects
from drakit.core import errors, records
from drakit.kube import api_objects
from drakit.telemetry import logs

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
PODS = "pods"
_POD = "v1 Pod"
_NAME_MAX = 253
_MESSAGE_MAX = 4096

_log = logs.get_logger(__name__)


class Verdict(enum.Enum):
    """The result of a request."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNREADABLE = "unreadable"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a request: HTTP status, body, and the written resource for metrics (empty for an unknown kind)."""

    verdict: Verdict
    status: http.HTTPStatus
    body: bytes
    resource: str = ""


def answer(body: bytes, rules: opaque.Rules, known: whole_objects.Known | None = None) -> Answer:
    """Return the answer to a review of an object, checked by the ``rules`` of each driver. ``known`` has what a pod refers to; None: no pods."""
    try:
        request = _request(body)
    except (errors.ConfigError, ValueError) as error:
        reason = f"send an AdmissionReview of {API_VERSION}: {error}\n"[:_MESSAGE_MAX]
        return Answer(verdict=Verdict.UNREADABLE, status=http.HTTPStatus.BAD_REQUEST, body=reason.encode(errors="replace"))
    kind = _kind(request.kind)
    resource = PODS if kind == _POD and known is not None else opaque.KINDS[kind].resource if kind in opaque.KINDS else ""
    if not resource:
        text = f"drakit does not check {kind}; remove it from the rules of the webhook"
        return _reviewed(request.uid, {"allowed": True, "warnings": [text]}, Verdict.ALLOWED)
    mistakes = _mistakes(kind, request, rules, known or {}) if _is_checked(request) else ()
    if not mistakes:
        return _reviewed(request.uid, {"allowed": True}, Verdict.ALLOWED, resource)
    name = api_objects.name_of(request.object)
    _log.info("object refused", object=f"{kind} {name}"[: 2 * _NAME_MAX], error=str(mistakes[0]))
    return _reviewed(request.uid, {"allowed": False, "status": _status(kind, name, mistakes)}, Verdict.DENIED, resource)


def claims_of_pod(body: bytes) -> Mapping[str, whole_objects.Reference]:
    """Return the claims and templates that the pod of a review refers to; none for a review that needs no check, and for what is no review."""
    try:
        request = _request(body)
    except (errors.ConfigError, ValueError):
        return {}
    is_pod = _kind(request.kind) == _POD and _is_checked(request)
    return whole_objects.claims_of(lenient_json.at(request.object, "spec"), _namespace(request)) if is_pod else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kind:
    group: str = ""
    version: str = ""
    kind: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Request:
    uid: str
    kind: _Kind = _Kind()
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""
    object: Any = None
    old_object: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Review:
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request


def _request(body: bytes) -> _Request:
    return api_objects.FORMAT.decode(_Review, records.parse_limited(body)).request


def _namespace(request: _Request) -> str:
    """Return the namespace of a new object. That of the request is always set; a pod may leave it to the API server."""
    return request.namespace or lenient_json.text(request.object, "metadata", "namespace")


def _mistakes(kind: str, request: _Request, rules: opaque.Rules, known: whole_objects.Known) -> Sequence[errors.ConfigError]:
    obj = request.object
    if kind == _POD:
        name = lenient_json.text(obj, "metadata", "name")
        return whole_objects.of_pod(lenient_json.mapping(obj, "spec"), rules, known, namespace=_namespace(request), name=name)
    return opaque.mistakes(kind, obj, rules) or whole_objects.of_claim(kind, obj, rules, known)


def _kind(kind: _Kind) -> str:
    """Return a kind of ``opaque.KINDS``, or apiVersion and kind of another one."""
    api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return kind.kind if opaque.is_known(api_version, kind.kind) else f"{api_version} {kind.kind}"[:_NAME_MAX]


def _is_checked(request: _Request) -> bool:
    """Return whether the request writes a spec: it creates an object, or changes the spec of one that is not being deleted."""
    new, old = request.object, request.old_object
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource or not isinstance(new, Mapping):
        return False
    metadata = new.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("deletionTimestamp"):
        return False
    return not isinstance(old, Mapping) or new.get("spec") != old.get("spec")


def _status(kind: str, name: str, mistakes: Sequence[errors.ConfigError]) -> Mapping[str, object]:
    """Return a metav1.Status in the form of the API server's own validation errors, so that clients show every field."""
    message = "; ".join(map(str, mistakes))
    return {
        "status": "Failure",
        "reason": "Invalid",
        "code": http.HTTPStatus.UNPROCESSABLE_ENTITY,
        "message": message if len(message) <= _MESSAGE_MAX else f"{message[:_MESSAGE_MAX]}...",
        "details": {
            "name": name.rpartition("/")[2],
            "group": opaque.GROUP if kind in opaque.KINDS else "",
            "kind": kind.rpartition(" ")[2],
            "causes": [{"reason": "FieldValueInvalid", "field": mistake.field, "message": mistake.reason} for mistake in mistakes],
        },
    }


def _reviewed(uid: str, response: Mapping[str, object], verdict: Verdict, resource: str = "") -> Answer:
    review = {"apiVersion": API_VERSION, "kind": KIND, "response": {"uid": uid, **response}}
    return Answer(verdict=verdict, status=http.HTTPStatus.OK, body=json.dumps(review).encode(), resource=resource)
