"""Parameters of admission policies: the objects that a binding chooses, of the kind that the policy names.

A policy is evaluated once for each of them. Kinds of this cluster can be parameters; others are not known here, as a kind without its
CustomResourceDefinition is not known to Kubernetes. Source: CollectParams of Kubernetes' generic policy dispatcher.
"""

from drakit_cluster.admission import matching
from drakit_cluster.admission.matching import Subject
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

_BY_KIND = {(one.api_version, one.kind): one for one in resources.SERVED if one.verbs is resources.STORED_VERBS}


class ParamsError(Exception):
    """A binding whose parameters cannot be had; the message says why. The policy's failurePolicy decides what that means."""


def kind_of(policy: Object) -> Resource | None:
    """Return the kind that a policy's spec.paramKind names, None for one that this cluster does not have."""
    wanted = json_types.mapping(policy, "paramKind")
    return _BY_KIND.get((json_types.text(wanted, "apiVersion"), json_types.text(wanted, "kind")))


def of_binding(store: Store, policy: Object, binding: Object, subject: Subject) -> list[Json]:
    """Return what ``params`` is in each evaluation, given both specs: one None where no parameters are asked for. Raises ParamsError."""
    reference = binding.get("paramRef")
    if policy.get("paramKind") is None or not isinstance(reference, dict):
        return [None]
    resource = kind_of(policy)
    if resource is None:
        raise ParamsError(f"paramKind kind `{_shown(policy)}` not known")
    found = _chosen(store, resource, reference, _namespace(resource, reference, subject))
    if not found and json_types.text(reference, "parameterNotFoundAction") == "Deny":
        raise ParamsError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [one | {"apiVersion": resource.api_version} for one in found]


def _shown(policy: Object) -> str:
    wanted = json_types.mapping(policy, "paramKind")
    return f"&ParamKind{{APIVersion:{json_types.text(wanted, 'apiVersion')},Kind:{json_types.text(wanted, 'kind')},}}"


def _namespace(resource: Resource, reference: Object, subject: Subject) -> str:
    """Return where to look: in the namespace that is named, else in that of the object."""
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
