"""``ports.ClaimSource`` in memory."""

import threading

from drakit.core import claim as claims
from drakit.core import errors, names


class FakeClaimSource:
    """Claims by namespace and name; ``failures`` are raised by the next fetches, one each. ``fetched`` remembers who was asked for."""

    def __init__(self, *known: claims.Claim) -> None:
        self.failures: list[errors.DrakitError] = []
        self.fetched: list[claims.ClaimRef] = []
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[names.ClaimUid, claims.Claim | None]] = {}
        for one in known:
            self.put(one)

    def put(self, claim: claims.Claim) -> claims.ClaimRef:
        """An allocated claim."""
        with self._lock:
            self._known[claim.ref.namespace, claim.ref.name] = claim.ref.uid, claim
        return claim.ref

    def put_unallocated(self, ref: claims.ClaimRef) -> claims.ClaimRef:
        """A claim that waits for the scheduler."""
        with self._lock:
            self._known[ref.namespace, ref.name] = ref.uid, None
        return ref

    def remove(self, ref: claims.ClaimRef) -> None:
        """The claim is deleted."""
        with self._lock:
            self._known.pop((ref.namespace, ref.name), None)

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        with self._lock:
            self.fetched.append(ref)
            if self.failures:
                raise self.failures.pop(0)
            uid, claim = self._known.get((ref.namespace, ref.name), (None, None))
        if uid is None:
            raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim no longer exists")
        if claim is None:
            raise errors.ClaimError(errors.ClaimFault.NOT_ALLOCATED, "the claim is not allocated")
        if uid != ref.uid:
            raise errors.ClaimError(errors.ClaimFault.REPLACED, "the claim was deleted and another of its name was created")
        return claim
