"""URLs of the API: which resource, object and sub-resource a path names, and which verb a method is."""

from collections.abc import Mapping
from dataclasses import dataclass

from drakit_cluster.access.users import Attributes
from drakit_cluster.objects import errors, resources
from drakit_cluster.objects.resources import Resource

_TRUE = ("1", "true", "True")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of a path: a collection where ``name`` is empty."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def stored(self) -> Resource:
        """The version of the resource that the registry has."""
        return resources.stored(self.resource)


_BY_PATH: dict[tuple[str, str], Resource] = {(served.prefix, served.plural): served for served in resources.SERVED}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_COUNTED_AS = {"create": "POST", "update": "PUT"}


def parse(path: str) -> Target | None:
    """Return what ``path`` names, or None for a path that names no resource this server has."""
    parts = path.strip("/").split("/")
    depth = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    if rest[:1] == ["namespaces"] and (prefix, "".join(rest[2:3])) in _BY_PATH:
        resource = _BY_PATH[prefix, rest[2]]
        return _target(resource, rest[3:], namespace=rest[1]) if resource.namespaced else None
    found = _BY_PATH.get((prefix, rest[0])) if rest else None
    if found is None or (found.namespaced and len(rest) > 1):
        return None
    return _target(found, rest[1:], namespace="")


def _target(resource: Resource, rest: list[str], *, namespace: str) -> Target | None:
    if len(rest) > 2 or "" in rest:
        return None
    name, subresource = (*rest, "", "")[:2]
    parts = (*resource.posts, *resource.absent, *(["status"] if resource.has_status else []), *(["scale"] if resource.has_scale else []))
    known = not subresource or subresource in parts
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource) if known else None


def verb(target: Target, method: str, parameters: Mapping[str, str]) -> str:
    """Return RBAC's verb for a request; MethodNotAllowedError where there is none."""
    found = (_OBJECT_VERBS if target.name else _COLLECTION_VERBS).get(method, "")
    if target.subresource in (*target.resource.posts, *target.resource.absent):
        found = "create" if method == "POST" and target.subresource else found
    if found not in _allowed(target):
        raise errors.MethodNotAllowedError("the server does not allow this method on the requested resource")
    return "watch" if found == "list" and flag(parameters, "watch") else found


def _allowed(target: Target) -> tuple[str, ...]:
    if target.subresource in target.resource.absent:
        return ("get", "create")
    if target.subresource:
        return ("create",) if target.subresource in target.resource.posts else ("get", "update", "patch")
    return target.resource.verbs


def attributes(target: Target, word: str, parameters: Mapping[str, str]) -> Attributes:
    """Return what a request on a resource wants, for authorization. A list of one name is about that object."""
    selector = parameters.get("fieldSelector", "") if not target.name else ""
    named = [term.partition("=")[2].lstrip("=") for term in selector.split(",") if term.startswith("metadata.name=")]
    return Attributes(
        verb=word,
        group=target.resource.group,
        resource=target.resource.plural,
        subresource=target.subresource,
        namespace=_asked_namespace(target),
        name=target.name or (named[0] if len(named) == 1 else ""),
        field_selector=selector,
    )


def labels(target: Target, word: str) -> dict[str, str]:
    """Return how a request is counted in Kubernetes' metrics."""
    return {
        "group": target.resource.group,
        "resource": target.resource.plural,
        "scope": "resource" if target.name else "namespace" if target.namespace else "cluster",
        "subresource": target.subresource,
        "verb": _COUNTED_AS.get(word, word.upper()),
        "version": target.resource.version,
    }


def _asked_namespace(target: Target) -> str:
    """A namespace itself is asked about in itself, so that a role in it can allow reading it."""
    return target.name if target.resource is resources.NAMESPACE else target.namespace


def check_list_version(given: str, match: str, token: str) -> None:
    """Refuse a resourceVersion or resourceVersionMatch that makes no sense for a list; BadRequestError."""
    if given and not given.isdecimal():
        raise errors.BadRequestError(f"resourceVersion: want a number as given by the server, got {given!r}")
    if not match:
        return
    if match not in ("Exact", "NotOlderThan"):
        raise errors.BadRequestError(f'resourceVersionMatch: Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"')
    if token:
        raise errors.BadRequestError("resourceVersionMatch: is forbidden when continue is provided")
    if not given:
        raise errors.BadRequestError("resourceVersionMatch: is forbidden unless resourceVersion is provided")
    if match == "Exact" and given == "0":
        raise errors.BadRequestError('resourceVersionMatch: "exact" is forbidden for resourceVersion "0"')


def flag(parameters: Mapping[str, str], name: str) -> bool:
    """Return a boolean query parameter."""
    return parameters.get(name, "") in _TRUE


def whole(parameters: Mapping[str, str], name: str) -> int | None:
    """Return a query parameter that is a whole number, None if it is not given; BadRequestError if it is something else."""
    given = parameters.get(name, "")
    if not given:
        return None
    if not given.isdecimal():
        raise errors.BadRequestError(f"{name}: want a whole number, got {given!r}")
    return int(given)
