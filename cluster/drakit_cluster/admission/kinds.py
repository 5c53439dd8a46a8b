"""Rules of the kinds that govern access and admission. Source: the validation of each group in Kubernetes 1.36."""

from collections.abc import Callable, Iterable, Iterator

from drakit_cluster.admission import policy_rules
from drakit_cluster.api.reviewing import Change
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

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
    resources.ADMISSION_POLICY: policy_rules.policy,
    resources.ADMISSION_BINDING: policy_rules.binding,
    resources.WEBHOOKS: policy_rules.webhooks,
}
