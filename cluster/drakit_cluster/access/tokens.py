"""Bearer tokens, which this process issues and keeps in memory only."""

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
"""Whom a token is for unless it says otherwise: this API server, which takes no others."""


@dataclass(frozen=True, kw_only=True)
class _Issued:
    user: User
    audiences: tuple[str, ...]
    expires: float | None
    holds: Callable[[], bool] | None


class Tokens:
    """The tokens that were issued. Only their hashes are kept, so looking one up takes the same time whether or not it exists."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._issued: dict[bytes, _Issued] = {}
        self._clock = clock

    def issue(self, name: str, groups: tuple[str, ...] = (), extra: Mapping[str, tuple[str, ...]] | None = None) -> str:
        """Return a new token of the user ``name`` that holds until revoked."""
        return self.issue_to(User(name=name, groups=groups, extra=dict(extra or {})))

    def issue_to(
        self,
        user: User,
        *,
        seconds: float | None = None,
        holds: Callable[[], bool] | None = None,
        audiences: tuple[str, ...] = (AUDIENCE,),
    ) -> str:
        """Return a new token of ``user``, valid for ``seconds`` and as long as ``holds`` says so (no limit where None)."""
        token = secrets.token_urlsafe(32)
        known = User(name=user.name, uid=user.uid, groups=(*user.groups, AUTHENTICATED), extra=user.extra)
        expires = None if seconds is None else self._clock() + seconds
        with self._lock:
            self._issued[_digest(token)] = _Issued(user=known, audiences=audiences, expires=expires, holds=holds)
        return token

    def revoke(self, token: str) -> None:
        """Forget a token; an unknown one is ignored."""
        with self._lock:
            self._issued.pop(_digest(token), None)

    def user(self, authorization: str) -> User:
        """Return the user of an Authorization header; UnauthorizedError for none, another scheme, or a token that does not hold."""
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            known = self.known(authorization[len(_SCHEME) :].strip())
            if known is not None and AUDIENCE in known[1]:
                return known[0]
        raise errors.UnauthorizedError("Unauthorized")

    def known(self, token: str) -> tuple[User, tuple[str, ...]] | None:
        """Return the user of a token and whom the token is for, None for a token that does not hold."""
        digest = _digest(token)
        with self._lock:
            found = self._issued.get(digest)
        if found is None:
            return None
        if self._holds(found):
            return found.user, found.audiences
        with self._lock:
            self._issued.pop(digest, None)
        return None

    def _holds(self, issued: _Issued) -> bool:
        if issued.expires is not None and self._clock() >= issued.expires:
            return False
        return issued.holds is None or issued.holds()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
