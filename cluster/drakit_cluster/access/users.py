"""Identities, as a TokenReview returns them, and the attributes of their requests in RBAC's terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ADMIN_NAME = "kubernetes-admin"
MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
NODES = "system:nodes"
SERVICE_ACCOUNTS = "system:serviceaccounts"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
_NODE_PREFIX = "system:node:"
_ACCOUNT_PREFIX = "system:serviceaccount:"


@dataclass(frozen=True, kw_only=True)
class User:
    """An identity. ``extra`` holds what a token states besides name and groups, such as the node of the pod it is bound to."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Whether every authorizer allows the user everything."""
        return MASTERS in self.groups

    @property
    def node(self) -> str:
        """The node whose kubelet this is, or ``""``."""
        node = self.name.removeprefix(_NODE_PREFIX) if self.name.startswith(_NODE_PREFIX) else ""
        return node if NODES in self.groups else ""

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the service account that this is, or None."""
        if not self.name.startswith(_ACCOUNT_PREFIX):
            return None
        namespace, colon, name = self.name.removeprefix(_ACCOUNT_PREFIX).partition(":")
        return (namespace, name) if colon and namespace and name and ":" not in name else None

    @property
    def pod_node(self) -> str:
        """The one node of the pod that a service account's token is bound to, or ``""``."""
        nodes = self.extra.get(NODE_NAME, ())
        return nodes[0] if self.account is not None and len(nodes) == 1 else ""


def account_name(namespace: str, name: str) -> str:
    """Return a service account's user name."""
    return f"{_ACCOUNT_PREFIX}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of every service account of a namespace."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def node_name(node: str) -> str:
    """Return the user name of a node's kubelet."""
    return f"{_NODE_PREFIX}{node}"


@dataclass(frozen=True, kw_only=True)
class Attributes:
    """The attributes of a request, in RBAC's terms. ``path`` is set instead of ``resource`` for URLs that name no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: str = ""

    @property
    def qualified(self) -> str:
        """The resource with its sub-resource: ``resourceclaims/status``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def denial(user: User, attributes: Attributes, reason: str = "") -> str:
    """Return the message for a user whose request is denied."""
    target = f'resource "{attributes.qualified}" in API group "{attributes.group}"'
    scope = f' in the namespace "{attributes.namespace}"' if attributes.namespace else " at the cluster scope"
    text = f'User "{user.name}" cannot {attributes.verb} ' + (f'path "{attributes.path}"' if attributes.path else target + scope)
    return f"{text}: {reason}" if reason else text
