"""URLs of the API: the resource, object and sub-resource that a path names, and the verb of a method."""

from collections.abc import Mapping
from dataclasses import dataclass

from drakit_cluster.access.users import Attributes
from drakit_cluster.objects import errors, resources
from drakit_cluster.objects.resources import Resource

_TRUE = ("1", "true", "True")
_BY_PATH: dict[tuple[str, str], Resource] = {(served.prefix, served.plural): served for served in resources.SERVED}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_COUNTED_AS = {"create": "POST", "update": "PUT"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of a path: a collection where ``name`` is empty."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def stored(self) -> Resource:
        """The version of the resource that the registry stores."""
        return resources.stored(self.resource)


def parse(path: str) -> Target | None:
    """Return what ``path`` names, or None for a path that names no resource this server has."""
    parts = path.strip("/").split("/")
    depth = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    if rest[:1] == ["namespaces"] and (prefix, "".join(rest[2:3])) in _BY_PATH:
        resource = _BY_PATH[prefix, rest[2]]
        return _target(resource, rest[3:], namespace=rest[1]) if resource.namespaced else None
    served = _BY_PATH.get((prefix, rest[0])) if rest else None
    if served is None or (served.namespaced and len(rest) > 1):
        return None
    return _target(served, rest[1:], namespace="")


def _target(resource: Resource, rest: list[str], *, namespace: str) -> Target | None:
    if len(rest) > 2 or "" in rest:
        return None
    name, subresource = (*rest, "", "")[:2]
    subresources = (
        *resource.posts,
        *resource.absent,
        *(["status"] if resource.has_status else []),
        *(["scale"] if resource.has_scale else []),
    )
    is_served = not subresource or subresource in subresources
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource) if is_served else None


def verb(target: Target, method: str, parameters: Mapping[str, str]) -> str:
    """Return RBAC's verb for a request; MethodNotAllowedError where there is none."""
    method_verb = (_OBJECT_VERBS if target.name else _COLLECTION_VERBS).get(method, "")
    if target.subresource in (*target.resource.posts, *target.resource.absent):
        method_verb = "create" if method == "POST" and target.subresource else method_verb
    if method_verb not in _allowed(target):
        raise errors.MethodNotAllowedError("the server does not allow this method on the requested resource")
    return "watch" if method_verb == "list" and flag(parameters, "watch") else method_verb


def _allowed(target: Target) -> tuple[str, ...]:
    if target.subresource in target.resource.absent:
        return ("get", "create")
    if target.subresource:
        return ("create",) if target.subresource in target.resource.posts else ("get", "update", "patch")
    return target.resource.verbs


def attributes(target: Target, verb_name: str, parameters: Mapping[str, str]) -> Attributes:
    """Return the attributes of a request for authorization. A list that selects one name counts as a request on that object."""
    selector = parameters.get("fieldSelector", "") if not target.name else ""
    names = [term.partition("=")[2].lstrip("=") for term in selector.split(",") if term.startswith("metadata.name=")]
    return Attributes(
        verb=verb_name,
        group=target.resource.group,
        resource=target.resource.plural,
        subresource=target.subresource,
        namespace=_authorized_namespace(target),
        name=target.name or (names[0] if len(names) == 1 else ""),
        field_selector=selector,
    )


def labels(target: Target, verb_name: str) -> dict[str, str]:
    """Return the labels under which Kubernetes' metrics count a request."""
    return {
        "group": target.resource.group,
        "resource": target.resource.plural,
        "scope": "resource" if target.name else "namespace" if target.namespace else "cluster",
        "subresource": target.subresource,
        "verb": _COUNTED_AS.get(verb_name, verb_name.upper()),
        "version": target.resource.version,
    }


def _authorized_namespace(target: Target) -> str:
    """Return the namespace to authorize in. A Namespace counts as an object in itself, so that a role in it can allow reading it."""
    return target.name if target.resource is resources.NAMESPACE else target.namespace


def check_list_version(requested: str, match: str, token: str) -> None:
    """Raise BadRequestError for a resourceVersion or resourceVersionMatch that is not valid for a list."""
    if requested and not requested.isdecimal():
        raise errors.BadRequestError(f"resourceVersion: want a number as given by the server, got {requested!r}")
    if not match:
        return
    if match not in ("Exact", "NotOlderThan"):
        raise errors.BadRequestError(f'resourceVersionMatch: Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"')
    if token:
        raise errors.BadRequestError("resourceVersionMatch: is forbidden when continue is provided")
    if not requested:
        raise errors.BadRequestError("resourceVersionMatch: is forbidden unless resourceVersion is provided")
    if match == "Exact" and requested == "0":
        raise errors.BadRequestError('resourceVersionMatch: "exact" is forbidden for resourceVersion "0"')


def flag(parameters: Mapping[str, str], name: str) -> bool:
    """Return a boolean query parameter."""
    return parameters.get(name, "") in _TRUE


def whole_number(parameters: Mapping[str, str], name: str) -> int | None:
    """Return a query parameter that is a whole number, None if it is not set; BadRequestError if it is something else."""
    value = parameters.get(name, "")
    if not value:
        return None
    if not value.isdecimal():
        raise errors.BadRequestError(f"{name}: want a whole number, got {value!r}")
    return int(value)
