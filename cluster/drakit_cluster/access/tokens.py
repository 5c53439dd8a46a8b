"""Bearer tokens, which this process issues and stores in memory only."""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drakit_cluster.access.users import AUTHENTICATED, User
from drakit_cluster.objects import errors

_SCHEME = "bearer "
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
"""The default audience of a token: this API server, which accepts no other audience."""


@dataclass(frozen=True, kw_only=True)
class _Issued:
    user: User
    audiences: tuple[str, ...]
    expires: float | None
    still_valid: Callable[[], bool] | None


class Tokens:
    """The issued tokens. Only their hashes are stored, so that a lookup takes the same time whether or not the token exists."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._issued: dict[bytes, _Issued] = {}
        self._clock = clock

    def issue(self, name: str, groups: tuple[str, ...] = (), extra: Mapping[str, tuple[str, ...]] | None = None) -> str:
        """Return a new token of the user ``name`` that is valid until revoked."""
        return self.issue_to(User(name=name, groups=groups, extra=dict(extra or {})))

    def issue_to(
        self,
        user: User,
        *,
        seconds: float | None = None,
        still_valid: Callable[[], bool] | None = None,
        audiences: tuple[str, ...] = (AUDIENCE,),
    ) -> str:
        """Return a new token of ``user``, valid for ``seconds`` and as long as ``still_valid`` returns true (no limit where None)."""
        token = secrets.token_urlsafe(32)
        authenticated = User(name=user.name, uid=user.uid, groups=(*user.groups, AUTHENTICATED), extra=user.extra)
        expires = None if seconds is None else self._clock() + seconds
        with self._lock:
            self._issued[_digest(token)] = _Issued(user=authenticated, audiences=audiences, expires=expires, still_valid=still_valid)
        return token

    def user(self, authorization: str) -> User:
        """Return the user of an Authorization header; UnauthorizedError for none, another scheme, or an invalid token."""
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            issued = self.lookup(authorization[len(_SCHEME) :].strip())
            if issued is not None and AUDIENCE in issued[1]:
                return issued[0]
        raise errors.UnauthorizedError("Unauthorized")

    def lookup(self, token: str) -> tuple[User, tuple[str, ...]] | None:
        """Return the user and the audiences of a token, None for an invalid token."""
        digest = _digest(token)
        with self._lock:
            issued = self._issued.get(digest)
        if issued is None:
            return None
        if self._is_valid(issued):
            return issued.user, issued.audiences
        with self._lock:
            self._issued.pop(digest, None)
        return None

    def _is_valid(self, issued: _Issued) -> bool:
        if issued.expires is not None and self._clock() >= issued.expires:
            return False
        return issued.still_valid is None or issued.still_valid()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
