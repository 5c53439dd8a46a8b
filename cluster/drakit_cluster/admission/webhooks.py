"""Validating webhooks: an AdmissionReview over HTTPS, and the outcome of its answer."""

import base64
import contextlib
import http
import json
import urllib.parse

from drakit_cluster.admission import expressions, matching, policies
from drakit_cluster.admission.matching import Subject
from drakit_cluster.api import tls
from drakit_cluster.api.storage.store import Store
from drakit_cluster.client import https
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.json_types import Json, Object


class CallError(Exception):
    """A webhook gave no usable answer. Its failurePolicy decides the outcome."""


def matching_hooks(store: Store, subject: Subject) -> list[Object]:
    """Return the webhooks that must review a write, in the order of their configurations' names."""
    configurations = (entry.view for entry in store.scan(resources.WEBHOOKS)[0])
    hooks = (hook for configuration in configurations for hook in json_types.objects(configuration, "webhooks"))
    return [hook for hook in hooks if matching.matches(hook, "rules", subject)]


def review(hook: Object, subject: Subject, request: Object) -> list[str]:
    """Call a webhook and return its warnings. Raises the error of its refusal, or of a failure that its failurePolicy does not ignore."""
    name = json_types.text(hook, "name")
    try:
        if not _applies(hook, subject, request):
            return []
        answer = _call(hook, request)
    except CallError as error:
        if json_types.text(hook, "failurePolicy") == "Ignore":
            return []
        message = f'Internal error occurred: failed calling webhook "{name}": {error}'
        raise errors.InternalError(message, Details(kind=subject.resource.plural)) from error
    if answer.get("allowed") is not True:
        raise _refusal(name, answer)
    return json_types.strings(answer, "warnings")


def _applies(hook: Object, subject: Subject, request: Object) -> bool:
    scope: dict[str, Json] = {"object": subject.new, "oldObject": subject.old, "request": request, "params": None}
    scope |= {"namespaceObject": subject.namespace, "variables": {}}
    try:
        return policies.applies(json_types.objects(hook, "matchConditions"), scope)
    except expressions.ExpressionError as error:
        raise CallError(str(error)) from error


def _call(hook: Object, request: Object) -> Object:
    """Post the review; return the response part of the answer. Raises CallError."""
    url = json_types.text(hook, "clientConfig", "url")
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    try:
        trusted = tls.client_context(base64.b64decode(json_types.text(hook, "clientConfig", "caBundle")) or None)
        server = https.Server(url, trusted, headers={"content-type": "application/json"}, seconds=json_types.number(hook, "timeoutSeconds"))
        with contextlib.closing(server):
            posted = server.request("POST", urllib.parse.urlsplit(url).path or "/", content=json.dumps(body).encode())
        if posted.status != http.HTTPStatus.OK:
            raise CallError(f'Post "{url}": the webhook answered {posted.status}')
        answer: Json = posted.json()
    except (*https.FAILURES, ValueError) as error:
        raise CallError(f'Post "{url}": {str(error) or type(error).__name__}') from error
    response = json_types.mapping(answer, "response")
    if not response or json_types.text(response, "uid") != json_types.text(request, "uid"):
        raise CallError(f'Post "{url}": expected a response with uid {json_types.text(request, "uid")}')
    return response


def _refusal(name: str, answer: Object) -> errors.ApiError:
    reason, code = json_types.text(answer, "status", "message"), json_types.number(answer, "status", "code")
    text = f'admission webhook "{name}" denied the request' + (f": {reason}" if reason else " without explanation")
    return errors.BY_CODE.get(code, errors.ForbiddenError)(text)
