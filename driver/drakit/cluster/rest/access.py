"""Who asks, and whether they may: bearer tokens and the one seam for authorization."""

import hashlib
import secrets
import threading
from dataclasses import dataclass

from drakit.cluster import errors

ADMIN_NAME = "kubernetes-admin"
MASTERS = "system:masters"
_AUTHENTICATED = "system:authenticated"
_SCHEME = "bearer "


@dataclass(frozen=True, kw_only=True)
class User:
    """An identity, as a token's review would give it."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Attributes:
    """What a request wants, in RBAC's terms. ``path`` is set instead of ``resource`` for URLs that name no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Tokens:
    """The tokens that were issued. Only their hashes are kept, so looking one up takes the same time whether or not it exists."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[bytes, User] = {}

    def issue(self, name: str, groups: tuple[str, ...] = ()) -> str:
        """Return a new token of the user ``name``."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._users[_digest(token)] = User(name=name, groups=(*groups, _AUTHENTICATED))
        return token

    def revoke(self, token: str) -> None:
        """Forget a token; an unknown one is ignored."""
        with self._lock:
            self._users.pop(_digest(token), None)

    def user(self, authorization: str) -> User:
        """Return the user of an Authorization header; UnauthorizedError for none, another scheme, or an unknown token."""
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            with self._lock:
                found = self._users.get(_digest(authorization[len(_SCHEME) :].strip()))
            if found is not None:
                return found
        raise errors.UnauthorizedError("Unauthorized")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def authorize(user: User, attributes: Attributes) -> bool:
    """Say whether ``user`` may do what ``attributes`` describe.

    Every known user may do everything for now: roles and bindings are not evaluated yet. This function is the only place that decides,
    and the server asks it before every request but the health checks.
    """
    return bool(user.name and attributes.verb)
