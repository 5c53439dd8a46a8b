"""``ports.ClaimStatuses``, ``ports.Events`` and ``ports.ClaimList`` in memory."""

import datetime
import threading
from collections.abc import Callable

from drakit.core import claim as claims
from drakit.core import claim_status, context, errors, names

Conditions = dict[str, tuple[bool, str]]


class FakeStatuses:
    """``standing`` is what the server has of each claim's devices: conditions by type, as (status, reason), and values.

    ``allocated`` says which device keys a claim has; a claim that is not in it is gone. ``lasting`` are the types of binding conditions.
    ``failures`` are raised by the next writes, one each.
    """

    def __init__(self, pool: str = "node-1") -> None:
        self.pool = pool
        self.allocated: dict[names.ClaimUid, set[claim_status.DeviceKey]] = {}
        self.standing: dict[names.ClaimUid, dict[claim_status.DeviceKey, claim_status.DeviceStatus]] = {}
        self.failures: list[errors.DrakitError] = []
        self.lasting: set[str] = set()
        self.writes = 0
        self.changed = threading.Condition()

    def write(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        with self.changed:
            if self.failures:
                raise self.failures.pop(0)
            if ref.uid not in self.allocated:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "gone")
            before = self.standing.get(ref.uid, {})
            self.standing[ref.uid] = {key: status for key in self.allocated[ref.uid] if (status := self._of(key, before.get(key), change))}
            self.writes += 1
            self.changed.notify_all()

    def _of(
        self, key: claim_status.DeviceKey, before: claim_status.DeviceStatus | None, change: claim_status.StatusChange
    ) -> claim_status.DeviceStatus | None:
        conditions = claim_status.merged(before.conditions if before else (), key, change, self.lasting)
        said = change.devices.get(key) or (None if change.cleared else before)
        made = claim_status.DeviceStatus(
            device=key[1], pool=key[0], conditions=conditions, values=said.values if said else {}, network=said.network if said else None
        )
        return made if made.conditions or made.values or made.network else None

    def is_blank(self, uid: names.ClaimUid) -> bool:
        return not self.standing.get(uid)

    def conditions(self, uid: names.ClaimUid, device: str) -> Conditions:
        found = {key[1]: status for key, status in self.standing.get(uid, {}).items()}
        return {one.type: (one.status, one.reason) for one in found[device].conditions} if device in found else {}


class FakeEvents:
    """``written`` has the events that were written, in order: claim, event, times."""

    def __init__(self) -> None:
        self.written: list[tuple[claims.ClaimRef, context.Event, int]] = []
        self.failures: list[errors.DrakitError] = []

    def record(self, ref: claims.ClaimRef, event: context.Event, times: int, since: datetime.datetime) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.written.append((ref, event, times))


class FakeClaimList:
    """The claims of ``known`` that have a device of the driver that is served; ``failures`` are raised by the next questions, one each.

    Those whose UID is ``unreadable`` are known by that alone.
    """

    def __init__(self, *known: claims.Claim) -> None:
        self.known = list(known)
        self.failures: list[errors.DrakitError] = []
        self.unreadable: frozenset[names.ClaimUid] = frozenset()

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        if self.failures:
            raise self.failures.pop(0)
        ours = (claim for claim in self.known if any(serves(one.pool, one.device) for one in claim.results_of(driver)))
        return claims.Listed(claims=tuple(claim for claim in ours if claim.ref.uid not in self.unreadable), unreadable=self.unreadable)
