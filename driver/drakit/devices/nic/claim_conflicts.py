"""Conflicts between the grants of one claim: every pod that uses the claim gets all of them.

Grants are checked while they are planned, one after the other in one thread, before anything is changed. Conflicts between claims of one pod are only
known when the pod attaches.
"""

import dataclasses
import threading

from drakit.core import claim as claims
from drakit.core import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What one grant asks for: ``key`` is the grant's own, ``name`` the interface's in the pod, ``hosts`` its addresses without prefixes."""

    key: str
    request: str
    name: str
    hosts: frozenset[str] = frozenset()


class ClaimConflicts:
    """The grants of a claim that this thread is planning; safe between threads."""

    def __init__(self) -> None:
        self._local = threading.local()

    def add(self, claim: claims.ClaimRef, asked: Wanted) -> None:
        """One more grant of the claim; raises ConfigError where it asks for what an earlier one asks for."""
        planned, earlier = getattr(self._local, "planned", (None, ()))
        same_round = planned == claim.uid and asked.key not in {one.key for one in earlier}
        others: tuple[Wanted, ...] = earlier if same_round else ()
        self._local.planned = (None, ())  # What is refused is planned anew from the first grant on.
        for other in others:
            check_apart(claim, other, asked)
        self._local.planned = (claim.uid, (*others, asked))

    def forget(self) -> None:
        """All of the claim is planned."""
        self._local.planned = (None, ())


def check_apart(claim: claims.ClaimRef, one: Wanted, other: Wanted) -> None:
    """Raise ConfigError where two grants of a claim ask for one name or one address."""
    sandbox_id = (
        f"by the requests {one.request} and {other.request}" if one.request != other.request else f"twice by the request {one.request}"
    )
    if one.name and one.name == other.name:
        raise errors.ConfigError(f"{one.name!r} is asked for {sandbox_id} of claim {claim}", field="parameters.interfaceName")
    for address in sorted(one.hosts & other.hosts):
        raise errors.ConfigError(f"{address} is asked for {sandbox_id} of claim {claim}", field="parameters.addresses")
