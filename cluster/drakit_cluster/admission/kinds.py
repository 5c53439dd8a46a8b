"""Rules of the kinds that govern access and admission. Source: the validation of each group in Kubernetes 1.36."""

import base64
import binascii
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

from drakit_cluster.admission import expressions
from drakit_cluster.api.reviewing import Change
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
_FAILURE_POLICIES = ("Fail", "Ignore")
_ACTIONS = ("Deny", "Warn", "Audit")
_NOT_FOUND_ACTIONS = ("Allow", "Deny")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_MAX_TIMEOUT = 30


def _policy(obj: Object, _old: Object | None) -> Iterator[Failure]:
    """Yield what is wrong with a ValidatingAdmissionPolicy."""
    spec = json_types.mapping(obj, "spec")
    yield from _param_kind(spec)
    if not json_types.items(spec, "matchConstraints", "resourceRules"):
        yield failure.required("spec.matchConstraints.resourceRules")
    yield from _match_rules(json_types.items(spec, "matchConstraints", "resourceRules"), "spec.matchConstraints.resourceRules")
    yield from _word(spec, "failurePolicy", _FAILURE_POLICIES)
    if not json_types.items(spec, "validations") and not json_types.items(spec, "auditAnnotations"):
        yield failure.required("spec.validations", "validations or auditAnnotations must contain at least one item")
    places = (
        ("variables", "expression"),
        ("matchConditions", "expression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
        ("auditAnnotations", "valueExpression"),
    )
    for field, key in places:
        for index, one in enumerate(json_types.items(spec, field)):
            yield from _expression(json_types.text(one, key), f"spec.{field}[{index}].{key}")


def _param_kind(spec: Object) -> Iterator[Failure]:
    kind = spec.get("paramKind")
    if isinstance(kind, dict):
        yield from (failure.required(f"spec.paramKind.{field}") for field in ("apiVersion", "kind") if not json_types.text(kind, field))


def _expression(text: str, path: str) -> Iterator[Failure]:
    if not text:
        return
    try:
        expressions.compiled(text)
    except expressions.ExpressionError as error:
        yield failure.invalid(path, text, str(error))


def _policy_binding(obj: Object, _old: Object | None) -> Iterator[Failure]:
    """Yield what is wrong with a ValidatingAdmissionPolicyBinding."""
    spec = json_types.mapping(obj, "spec")
    reference = spec.get("paramRef")
    if isinstance(reference, dict):
        yield from _param_ref(reference)
    actions = json_types.items(spec, "validationActions")
    if not actions:
        yield failure.required("spec.validationActions")
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield failure.not_supported(f"spec.validationActions[{index}]", action, _ACTIONS)
    if {"Deny", "Warn"} <= {str(action) for action in actions}:
        yield failure.invalid("spec.validationActions", actions, "must not contain both Deny and Warn (repeating the same message)")
    yield from _match_rules(json_types.items(spec, "matchResources", "resourceRules"), "spec.matchResources.resourceRules")


def _param_ref(reference: Object) -> Iterator[Failure]:
    if reference.get("name") and reference.get("selector") is not None:
        yield failure.forbidden("spec.paramRef.name", "name and selector are mutually exclusive")
    elif not reference.get("name") and reference.get("selector") is None:
        yield failure.required("spec.paramRef", "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        yield failure.required("spec.paramRef.parameterNotFoundAction")
    elif action not in _NOT_FOUND_ACTIONS:
        yield failure.not_supported("spec.paramRef.parameterNotFoundAction", action, _NOT_FOUND_ACTIONS)


def _webhooks(obj: Object, _old: Object | None) -> Iterator[Failure]:
    """Yield what is wrong with a ValidatingWebhookConfiguration."""
    for index, webhook in enumerate(json_types.objects(obj, "webhooks")):
        path = f"webhooks[{index}]"
        yield from _match_rules(json_types.items(webhook, "rules"), f"{path}.rules")
        yield from _word(webhook, "failurePolicy", _FAILURE_POLICIES, path)
        yield from _word(webhook, "sideEffects", _NO_SIDE_EFFECTS, path)
        seconds = json_types.number(webhook, "timeoutSeconds")
        if not 1 <= seconds <= _MAX_TIMEOUT:
            yield failure.invalid(f"{path}.timeoutSeconds", seconds, f"the timeout value must be between 1 and {_MAX_TIMEOUT} seconds")
        if "v1" not in json_types.items(webhook, "admissionReviewVersions"):
            given = webhook.get("admissionReviewVersions")
            yield failure.invalid(f"{path}.admissionReviewVersions", given, "must include at least one of v1")
        yield from _client(json_types.mapping(webhook, "clientConfig"), f"{path}.clientConfig")
        for place, one in enumerate(json_types.items(webhook, "matchConditions")):
            yield from _expression(json_types.text(one, "expression"), f"{path}.matchConditions[{place}].expression")


def _client(config: Object, path: str) -> Iterator[Failure]:
    url, service = json_types.text(config, "url"), config.get("service")
    if bool(url) == bool(service):
        yield failure.required(path, "exactly one of url or service is required")
    if service:
        yield failure.forbidden(f"{path}.service", "this cluster has no services to call; use url")
    if url and urllib.parse.urlsplit(url).scheme != "https":
        yield failure.invalid(f"{path}.url", url, "'https' is the only allowed URL scheme")
    try:
        base64.b64decode(json_types.text(config, "caBundle"), validate=True)
    except binascii.Error:
        yield failure.invalid(f"{path}.caBundle", "", "unable to load root certificates: not base64")


def _match_rules(rules: list[Json], path: str) -> Iterator[Failure]:
    for index, rule in enumerate(rules):
        for field in ("operations", "apiGroups", "apiVersions", "resources"):
            if not json_types.items(rule, field):
                yield failure.required(f"{path}[{index}].{field}")
        for operation in json_types.items(rule, "operations"):
            if operation not in OPERATIONS:
                yield failure.not_supported(f"{path}[{index}].operations", operation, OPERATIONS)


def _word(holder: Object, field: str, allowed: tuple[str, ...], path: str = "spec") -> Iterator[Failure]:
    if holder.get(field) not in (None, *allowed):
        yield failure.not_supported(f"{path}.{field}", holder.get(field), allowed)


_SUBJECTS = ("User", "Group", "ServiceAccount")


def failures(change: Change) -> list[Failure]:
    """Return what is wrong with a new or changed object of these kinds; nothing for others."""
    check = _CHECKS.get(change.resource)
    if check is None or change.new is None or change.subresource:
        return []
    return list(check(change.new, change.before.view if change.before else None))


def _role(role: Object, _old: Object | None) -> Iterator[Failure]:
    yield from _rules(role, urls=False)


def _cluster_role(role: Object, _old: Object | None) -> Iterator[Failure]:
    yield from _rules(role, urls=True)


def _rules(role: Object, *, urls: bool) -> Iterator[Failure]:
    for index, rule in enumerate(json_types.objects(role, "rules")):
        path = f"rules[{index}]"
        if not json_types.items(rule, "verbs"):
            yield failure.required(f"{path}.verbs", "verbs must contain at least one value")
        if paths := json_types.items(rule, "nonResourceURLs"):
            if not urls:
                yield failure.invalid(f"{path}.nonResourceURLs", paths, "namespaced rules cannot apply to non-resource URLs")
            if json_types.items(rule, "apiGroups") or json_types.items(rule, "resources"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield failure.invalid(f"{path}.nonResourceURLs", paths, detail)
            continue
        if not json_types.items(rule, "apiGroups"):
            yield failure.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not json_types.items(rule, "resources"):
            yield failure.required(f"{path}.resources", "resource rules must supply at least one resource")


def _role_binding(binding: Object, old: Object | None) -> Iterator[Failure]:
    yield from _binding(binding, old, ("Role", "ClusterRole"), namespaced=True)


def _cluster_binding(binding: Object, old: Object | None) -> Iterator[Failure]:
    yield from _binding(binding, old, ("ClusterRole",), namespaced=False)


def _binding(binding: Object, old: Object | None, roles: tuple[str, ...], *, namespaced: bool) -> Iterator[Failure]:
    reference = json_types.mapping(binding, "roleRef")
    if json_types.text(reference, "apiGroup") != resources.RBAC_GROUP:
        yield failure.not_supported("roleRef.apiGroup", reference.get("apiGroup"), (resources.RBAC_GROUP,))
    if json_types.text(reference, "kind") not in roles:
        yield failure.not_supported("roleRef.kind", reference.get("kind"), roles)
    if old is not None and reference != json_types.mapping(old, "roleRef"):
        yield failure.invalid("roleRef", reference, "cannot change roleRef")
    for index, subject in enumerate(json_types.objects(binding, "subjects")):
        path, kind = f"subjects[{index}]", json_types.text(subject, "kind")
        if kind not in _SUBJECTS:
            yield failure.not_supported(f"{path}.kind", kind, _SUBJECTS)
        if kind == "ServiceAccount" and not namespaced and not json_types.text(subject, "namespace"):
            yield failure.required(f"{path}.namespace")


def _workload(obj: Object, old: Object | None) -> Iterator[Failure]:
    """The selector finds the template's pods, and stays."""
    selector = json_types.mapping(obj, "spec", "selector")
    labels = json_types.mapping(obj, "spec", "template", "metadata", "labels")
    wanted = json_types.mapping(selector, "matchLabels")
    if not wanted and not json_types.items(selector, "matchExpressions"):
        yield failure.invalid("spec.selector", selector, "empty selector is invalid")
    elif any(labels.get(key) != value for key, value in wanted.items()):
        yield failure.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    if old is not None and selector != json_types.mapping(old, "spec", "selector"):
        yield failure.invalid("spec.selector", selector, "field is immutable")
    if json_types.text(obj, "spec", "template", "spec", "restartPolicy") not in ("", "Always"):
        given = json_types.text(obj, "spec", "template", "spec", "restartPolicy")
        yield failure.not_supported("spec.template.spec.restartPolicy", given, ("Always",))


_CHECKS: dict[Resource, Callable[[Object, Object | None], Iterable[Failure]]] = {
    resources.ROLE: _role,
    resources.CLUSTER_ROLE: _cluster_role,
    resources.ROLE_BINDING: _role_binding,
    resources.CLUSTER_ROLE_BINDING: _cluster_binding,
    resources.DAEMON_SET: _workload,
    resources.DEPLOYMENT: _workload,
    resources.ADMISSION_POLICY: _policy,
    resources.ADMISSION_BINDING: _policy_binding,
    resources.WEBHOOKS: _webhooks,
}
