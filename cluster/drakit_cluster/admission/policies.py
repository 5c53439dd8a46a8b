"""Validating admission policies: expressions over a write, evaluated in this process. A policy is evaluated once for each parameter."""

from collections.abc import Iterator
from typing import NamedTuple

from drakit_cluster.admission import expressions, matching, params
from drakit_cluster.admission.matching import Subject
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.errors import Cause, Details
from drakit_cluster.objects.json_types import Json, Object

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
                denial
                for params in params.of_binding(store, policy, spec, subject)
                for denial in _evaluate(policy, scope | {"params": params})
            ]
        except params.ParamsError as error:
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
