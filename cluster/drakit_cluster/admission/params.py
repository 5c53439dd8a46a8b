"""The parameters of validating admission policies: the objects that a binding chooses, of the kind that the policy names.

Only kinds that this cluster serves can be parameters. Any other kind is unknown, as a kind without its CustomResourceDefinition is unknown to
Kubernetes. Source: CollectParams of Kubernetes' generic policy dispatcher.
"""

from drakit_cluster.admission.matching import Subject
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, labels, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

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
    return [entry.view for entry in entries if labels.selects(selector, entry.view)]
