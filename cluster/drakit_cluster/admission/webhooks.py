"""Webhooks: an AdmissionReview over HTTPS, and what its answer means.

Mutating ones are asked first, one after the other, and each is shown what those before it made of the object; validating ones see the result.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace

import httpx

from drakit_cluster.admission import expressions, matching, policies
from drakit_cluster.admission.matching import Subject
from drakit_cluster.api import patching, tls
from drakit_cluster.api.storage.store import Store
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.errors import Details
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

_REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


class CallError(Exception):
    """A webhook gave no answer that can be used; its failurePolicy decides what that means."""


def concerned(store: Store, subject: Subject, configurations: Resource = resources.WEBHOOKS) -> list[Object]:
    """Return the webhooks that a write must be shown to, in the order of their configurations' names."""
    found: list[Object] = []
    for entry in store.scan(configurations)[0]:
        found += [one for one in json_types.objects(entry.view, "webhooks") if matching.matches(one, "rules", subject)]
    return found


def check(hooks: list[Object], subject: Subject, request: Object) -> list[str]:
    """Ask every webhook; raise the error of the first refusal, return all warnings."""
    warnings: list[str] = []
    for hook in hooks:
        warnings += _ask(hook, subject, request)
    return warnings


def mutated(store: Store, subject: Subject, request: Object, warnings: list[str]) -> Object | None:
    """Return what the mutating webhooks make of the object; ``warnings`` gets theirs. Raises the error of the first refusal."""
    for hook in concerned(store, subject, resources.MUTATING_WEBHOOKS):
        if not matching.matches(hook, "rules", subject):
            continue  # What another one made of the object is none of its business any more.
        answer = _answer(hook, subject, request)
        warnings += json_types.strings(answer, "warnings")
        changed = _patched(hook, subject, answer)
        subject, request = replace(subject, new=changed), request | {"object": changed}
    return subject.new


def _patched(hook: Object, subject: Subject, answer: Object) -> Object | None:
    """Return the object with the JSON patch of an answer; a patch that cannot be applied is the server's failure, as in Kubernetes."""
    name, encoded = json_types.text(hook, "name"), json_types.text(answer, "patch")
    if not encoded:
        return subject.new
    if subject.new is None:
        raise errors.InternalError(f'admission webhook "{name}" attempted to modify the object, which is not supported for this operation')
    if json_types.text(answer, "patchType") != "JSONPatch":
        raise errors.InternalError(f'admission webhook "{name}": response.patchType: want JSONPatch beside response.patch')
    try:
        changed = patching.json_patch(json_types.copy(subject.new), json.loads(base64.b64decode(encoded, validate=True)))
    except (ValueError, errors.ApiError) as error:
        raise errors.InternalError(f'admission webhook "{name}": the patch cannot be applied: {error}') from error
    if not isinstance(changed, dict):
        raise errors.InternalError(f'admission webhook "{name}": the patch leaves no object')
    return changed


def _ask(hook: Object, subject: Subject, request: Object) -> Iterator[str]:
    yield from json_types.strings(_answer(hook, subject, request), "warnings")


def _answer(hook: Object, subject: Subject, request: Object) -> Object:
    """Return what a webhook answers, nothing where it is not asked or may fail; raise the error of its refusal."""
    name, ignores = json_types.text(hook, "name"), json_types.text(hook, "failurePolicy") == "Ignore"
    try:
        if not _applies(hook, subject, request):
            return {}
        answer = _call(hook, request)
    except CallError as error:
        if ignores:
            return {}
        message = f'Internal error occurred: failed calling webhook "{name}": {error}'
        raise errors.InternalError(message, Details(kind=subject.resource.plural)) from error
    if answer.get("allowed") is not True:
        raise _refusal(name, answer)
    return answer


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
    seconds = json_types.number(hook, "timeoutSeconds")
    try:
        trusted = tls.client_context(base64.b64decode(json_types.text(hook, "clientConfig", "caBundle")) or None)
        with httpx.Client(verify=trusted, timeout=seconds, trust_env=False) as client:
            posted = client.post(url, content=json.dumps({**_REVIEW, "request": request}), headers={"content-type": "application/json"})
        answer: Json = posted.raise_for_status().json()
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise CallError(f'Post "{url}": {str(error) or type(error).__name__}') from error
    response = json_types.mapping(answer, "response")
    if not response or json_types.text(response, "uid") != json_types.text(request, "uid"):
        raise CallError(f'Post "{url}": expected a response with uid {json_types.text(request, "uid")}')
    return response


def _refusal(name: str, answer: Object) -> errors.ApiError:
    status = json_types.mapping(answer, "status")
    said = json_types.text(status, "message")
    text = f'admission webhook "{name}" denied the request' + (f": {said}" if said else " without explanation")
    code = json_types.number(status, "code")
    kind = errors.BY_CODE.get(code, errors.ForbiddenError)
    return kind(text, Details(causes=()))
