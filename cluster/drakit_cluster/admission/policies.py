"""Validating admission policies: expressions over a write, evaluated in this process, and their parameters.

Parameters are the objects that a binding chooses, of the kind that the policy names. A policy is evaluated once for each of them. Only
kinds that this cluster serves can be parameters. Any other kind is unknown, as a kind without its CustomResourceDefinition is unknown to
Kubernetes. Source: CollectParams of Kubernetes' generic policy dispatcher.
"""

from collections.abc import Iterator
from typing import NamedTuple

from drakit_cluster.admission import expressions, matching
from drakit_cluster.admission.matching import Subject
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.errors import Cause, Details
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

_CLASSES: dict[str, type[errors.ApiError]] = {
    "Invalid": errors.InvalidError,
    "Forbidden": errors.ForbiddenError,
    "Unauthorized": errors.UnauthorizedError,
}


class Denial(NamedTuple):
    """One validation that failed."""

    message: str
    reason: str


def check(store: Store, subject: Subject, request: Object) -> list[str]:
    """Raise the error of the first denial; return the warnings of the validations that only warn. ``request`` is the AdmissionRequest."""
    scope: dict[str, Json] = {"object": subject.new, "oldObject": subject.old, "request": request, "params": None}
    scope["namespaceObject"] = subject.namespace
    warnings = []
    for entry in store.scan(resources.ADMISSION_BINDING)[0]:
        spec = json_types.mapping(entry.view, "spec")
        policy_entry = store.get(resources.ADMISSION_POLICY, Key("", json_types.text(spec, "policyName")))
        if policy_entry is None or not matching.matches(json_types.mapping(spec, "matchResources"), "resourceRules", subject):
            continue
        policy = json_types.mapping(policy_entry.view, "spec")
        if not matching.matches(json_types.mapping(policy, "matchConstraints"), "resourceRules", subject):
            continue
        label = f"ValidatingAdmissionPolicy '{policy_entry.key.name}' with binding '{entry.key.name}'"
        actions = spec.get("validationActions")
        try:
            denials = [
                denial for params in of_binding(store, policy, spec, subject) for denial in _evaluate(policy, scope | {"params": params})
            ]
        except ParamsError as error:
            ignored = json_types.text(policy, "failurePolicy") == "Ignore"
            denials, actions = [] if ignored else [Denial(f"failed to configure binding: {error}", "Invalid")], ["Deny"]
        for denial in denials:
            if isinstance(actions, list) and "Deny" in actions:
                raise _refusal(f"{label} denied request: {denial.message}", denial.reason, subject)
            if isinstance(actions, list) and "Warn" in actions:
                warnings.append(f"Validation failed for {label}: {denial.message}")
    return warnings


def _refusal(text: str, reason: str, subject: Subject) -> errors.ApiError:
    resource = subject.resource
    details = Details(name=subject.name, group=resource.group, kind=resource.plural, causes=(Cause(reason="", message=text),))
    return _CLASSES.get(reason, errors.InvalidError)(f'{resource.qualified} "{subject.name}" is forbidden: {text}', details)


def _evaluate(policy: Object, scope: dict[str, Json]) -> Iterator[Denial]:
    """Yield a denial for each validation that fails. Errors count as failures unless the policy ignores them."""
    expressions_by_name = {
        json_types.text(variable, "name"): json_types.text(variable, "expression") for variable in json_types.objects(policy, "variables")
    }
    variables = expressions.Variables(expressions_by_name, scope)
    full_scope = scope | {"variables": variables}
    ignores = json_types.text(policy, "failurePolicy") == "Ignore"
    try:
        if not applies(json_types.objects(policy, "matchConditions"), full_scope):
            return
    except expressions.ExpressionError as error:
        if not ignores:
            yield Denial(str(error), "Invalid")
        return
    for validation in json_types.objects(policy, "validations"):
        text, reason = json_types.text(validation, "expression"), json_types.text(validation, "reason") or "Invalid"
        try:
            if not expressions.compiled(text).verdict(full_scope):
                yield Denial(_message(validation, full_scope), reason)
        except expressions.ExpressionError as error:
            if not ignores:
                yield Denial(f"expression '{text}' resulted in error: {error}", "Invalid")


def applies(conditions: list[Object], scope: dict[str, Json]) -> bool:
    """Return whether every match condition is true. A false condition outweighs errors in others.

    Raises ExpressionError if a condition fails and none is false.
    """
    failed: expressions.ExpressionError | None = None
    for condition in conditions:
        name = json_types.text(condition, "name")
        try:
            if not expressions.compiled(json_types.text(condition, "expression")).verdict(scope):
                return False
        except expressions.ExpressionError as error:
            failed = expressions.ExpressionError(f"matchCondition {name!r} resulted in error: {error}")
    if failed is not None:
        raise failed
    return True


def _message(validation: Object, scope: dict[str, Json]) -> str:
    fallback = json_types.text(validation, "message") or f"failed expression: {json_types.text(validation, 'expression')}"
    text = json_types.text(validation, "messageExpression")
    if not text:
        return fallback
    try:
        message = expressions.compiled(text).value(scope)
    except expressions.ExpressionError:
        return fallback
    return message if isinstance(message, str) and message.strip() and "\n" not in message else fallback


_BY_KIND = {(served.api_version, served.kind): served for served in resources.SERVED if served.verbs is resources.STORED_VERBS}


class ParamsError(Exception):
    """A binding whose parameters are unavailable; the message says why. The policy's failurePolicy decides the outcome."""


def kind_of(policy: Object) -> Resource | None:
    """Return the kind that a policy's spec.paramKind names, None if this cluster does not serve it."""
    param_kind = json_types.mapping(policy, "paramKind")
    return _BY_KIND.get((json_types.text(param_kind, "apiVersion"), json_types.text(param_kind, "kind")))


def of_binding(store: Store, policy: Object, binding: Object, subject: Subject) -> list[Json]:
    """Return the value of ``params`` in each evaluation, from both specs; one None if the policy uses no parameters. Raises ParamsError."""
    reference = binding.get("paramRef")
    if policy.get("paramKind") is None or not isinstance(reference, dict):
        return [None]
    resource = kind_of(policy)
    if resource is None:
        raise ParamsError(f"paramKind kind `{_shown(policy)}` not known")
    params = _chosen(store, resource, reference, _namespace(resource, reference, subject))
    if not params and json_types.text(reference, "parameterNotFoundAction") == "Deny":
        raise ParamsError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [entry | {"apiVersion": resource.api_version} for entry in params]


def _shown(policy: Object) -> str:
    param_kind = json_types.mapping(policy, "paramKind")
    return f"&ParamKind{{APIVersion:{json_types.text(param_kind, 'apiVersion')},Kind:{json_types.text(param_kind, 'kind')},}}"


def _namespace(resource: Resource, reference: Object, subject: Subject) -> str:
    """Return the namespace of the parameters: the one that the reference names, else that of the object."""
    named = json_types.text(reference, "namespace")
    if not resource.namespaced:
        if named:
            raise ParamsError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    own = json_types.text(subject.namespace, "metadata", "name")
    if not (named or own):
        raise ParamsError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return named or own


def _chosen(store: Store, resource: Resource, reference: Object, namespace: str) -> list[Object]:
    stored = resources.stored(resource)
    if name := json_types.text(reference, "name"):
        entry = store.get(stored, Key(namespace, name))
        return [entry.view] if entry is not None else []
    selector = json_types.mapping(reference, "selector")
    entries = [entry for entry in store.scan(stored)[0] if entry.key.namespace == namespace]
    return [entry.view for entry in entries if matching.selects(selector, entry.view)]
