"""Rules of the kinds that govern access and admission, and what this cluster does not do. Source: the validation of each group in Kubernetes 1.36."""

import base64
import binascii
import urllib.parse
from collections.abc import Callable, Iterator

from drakit_cluster.admission import expressions, workloads
from drakit_cluster.api.reviewing import Change
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.validation import failure, rules
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.rules import Rule

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
_MAX_TIMEOUT = 30
_SUBJECTS = ("User", "Group", "ServiceAccount")


def failures(change: Change) -> list[Failure]:
    """Return the failures of a new or changed object of these kinds; an empty list for other kinds."""
    check = _CHECKS.get(change.resource)
    if check is None or change.new is None or change.subresource:
        return []
    return list(check(change.new, change.before.view if change.before else None))


_UNBUILT = (
    *("gang", "schedulingConstraints", "disruptionMode", "parentCompositePodGroupName"),
    *("priorityClassName", "priority", "preemptionPolicy"),
)


def unbuilt(change: Change) -> Iterator[Failure]:
    """Yield the failures of a new PodGroup's valid fields that this cluster would ignore."""
    if change.resource is not resources.POD_GROUP or change.before is not None or change.new is None:
        return
    spec = json_types.mapping(change.new, "spec")
    for name in _UNBUILT:
        path = f"schedulingPolicy.{name}" if name == "gang" else name
        if json_types.at(spec, *path.split(".")) is not None:
            detail = "the local cluster schedules the pods of a group one by one: use schedulingPolicy: {basic: {}}, without this field"
            yield failure.forbidden(f"spec.{path}", detail)


def _require(*fields: str) -> Rule:
    return lambda holder, path: (failure.required(f"{path}.{field}") for field in fields if not json_types.at(holder, field))


def _operations(rule: Json, path: str) -> Iterator[Failure]:
    for operation in json_types.items(rule, "operations"):
        if operation not in OPERATIONS:
            yield failure.not_supported(f"{path}.operations", operation, OPERATIONS)


def _expression(text: str, path: str) -> Iterator[Failure]:
    if text:
        try:
            expressions.compiled(text)
        except expressions.ExpressionError as error:
            yield failure.invalid(path, text, str(error))


def _expressions(field: str, *names: str) -> Rule:
    return rules.items(field, rules.text(_expression, *names))


def _match_rules(field: str) -> Rule:
    return rules.items(field, rules.all_of(_require("operations", "apiGroups", "apiVersions", "resources"), _operations))


_FAILURE_POLICY = rules.word("failurePolicy", ("Fail", "Ignore"), optional=True)
_POLICY_SPEC = rules.all_of(
    rules.if_set(_require("apiVersion", "kind"), "paramKind"),
    rules.if_set(rules.all_of(_require("resourceRules"), _match_rules("resourceRules")), "matchConstraints"),
    _FAILURE_POLICY,
    _expressions("variables", "expression"),
    _expressions("matchConditions", "expression"),
    _expressions("validations", "expression", "messageExpression"),
    _expressions("auditAnnotations", "valueExpression"),
)


def _policy(policy: Object, _old: Object | None) -> Iterator[Failure]:
    spec = json_types.mapping(policy, "spec")
    yield from _POLICY_SPEC(spec, "spec")
    if not json_types.items(spec, "validations") and not json_types.items(spec, "auditAnnotations"):
        yield failure.required("spec.validations", "validations or auditAnnotations must contain at least one item")


def _param_ref(reference: Json, path: str) -> Iterator[Failure]:
    named, chosen = json_types.text(reference, "name"), json_types.at(reference, "selector") is not None
    if named and chosen:
        yield failure.forbidden(f"{path}.name", "name and selector are mutually exclusive")
    elif not named and not chosen:
        yield failure.required(path, "one of name or selector must be specified")
    yield from rules.word("parameterNotFoundAction", ("Allow", "Deny"))(reference, path)


_POLICY_BINDING_SPEC = rules.all_of(
    rules.if_set(_param_ref, "paramRef"), _require("validationActions"), rules.if_set(_match_rules("resourceRules"), "matchResources")
)


def _policy_binding(binding: Object, _old: Object | None) -> Iterator[Failure]:
    actions = json_types.items(binding, "spec", "validationActions")
    yield from _POLICY_BINDING_SPEC(binding.get("spec"), "spec")
    for index, action in enumerate(actions):
        if action not in (supported := ("Deny", "Warn", "Audit")):
            yield failure.not_supported(f"spec.validationActions[{index}]", action, supported)
    if {"Deny", "Warn"} <= {str(action) for action in actions}:
        yield failure.invalid("spec.validationActions", actions, "must not contain both Deny and Warn (repeating the same message)")


def _client_config(config: Json, path: str) -> Iterator[Failure]:
    url, service = json_types.text(config, "url"), json_types.at(config, "service")
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


_HOOK = rules.all_of(
    _match_rules("rules"),
    _FAILURE_POLICY,
    rules.word("sideEffects", ("None", "NoneOnDryRun"), optional=True),
    rules.if_set(_client_config, "clientConfig"),
    _expressions("matchConditions", "expression"),
)


def _webhook(hook: Json, path: str) -> Iterator[Failure]:
    yield from _HOOK(hook, path)
    seconds, versions = json_types.number(hook, "timeoutSeconds"), json_types.items(hook, "admissionReviewVersions")
    if not 1 <= seconds <= _MAX_TIMEOUT:
        yield failure.invalid(f"{path}.timeoutSeconds", seconds, f"the timeout value must be between 1 and {_MAX_TIMEOUT} seconds")
    if "v1" not in versions:
        yield failure.invalid(f"{path}.admissionReviewVersions", versions, "must include at least one of v1")


def _webhooks(configuration: Object, _old: Object | None) -> Iterator[Failure]:
    return rules.each(json_types.items(configuration, "webhooks"), "webhooks", _webhook)


def _rule(*, urls: bool) -> Rule:
    """Return the rule for the rules of a role; ``urls``: whether they may name paths."""

    def check(rule: Json, path: str) -> Iterator[Failure]:
        paths, groups, named = (json_types.items(rule, field) for field in ("nonResourceURLs", "apiGroups", "resources"))
        if not json_types.items(rule, "verbs"):
            yield failure.required(f"{path}.verbs", "verbs must contain at least one value")
        if paths and not urls:
            yield failure.invalid(f"{path}.nonResourceURLs", paths, "namespaced rules cannot apply to non-resource URLs")
        if paths and (groups or named):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            yield failure.invalid(f"{path}.nonResourceURLs", paths, detail)
        if not paths and not groups:
            yield failure.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not paths and not named:
            yield failure.required(f"{path}.resources", "resource rules must supply at least one resource")

    return check


def _role(role: Object, _old: Object | None) -> Iterator[Failure]:
    return rules.each(json_types.items(role, "rules"), "rules", _rule(urls=False))


def _cluster_role(role: Object, _old: Object | None) -> Iterator[Failure]:
    return rules.each(json_types.items(role, "rules"), "rules", _rule(urls=True))


def _role_binding(binding: Object, old: Object | None) -> Iterator[Failure]:
    return _binding(binding, old, "Role", "ClusterRole")


def _cluster_binding(binding: Object, old: Object | None) -> Iterator[Failure]:
    return _binding(binding, old, "ClusterRole")


def _binding(binding: Object, old: Object | None, *roles: str) -> Iterator[Failure]:
    reference, namespaced = json_types.mapping(binding, "roleRef"), "Role" in roles
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


_CHECKS: dict[Resource, Callable[[Object, Object | None], Iterator[Failure]]] = {
    resources.ROLE: _role,
    resources.CLUSTER_ROLE: _cluster_role,
    resources.ROLE_BINDING: _role_binding,
    resources.CLUSTER_ROLE_BINDING: _cluster_binding,
    resources.DAEMON_SET: workloads.daemon_set,
    resources.DEPLOYMENT: workloads.deployment,
    resources.REPLICA_SET: workloads.replica_set,
    resources.STATEFUL_SET: workloads.stateful_set,
    resources.JOB: workloads.job,
    resources.CRON_JOB: workloads.cron_job,
    resources.ADMISSION_POLICY: _policy,
    resources.ADMISSION_BINDING: _policy_binding,
    resources.WEBHOOKS: _webhooks,
}
