"""From an allocated claim to the grants of one driver on one node, and the intents that the author's ``plan`` chooses for them.

Resolving is a pure check that a claim means what it says: others write claims, so every name is looked up and none is trusted. Planning
runs under the locks of the devices and ends in ``journal.begin``, so the journal and this thread's own plan know all that is promised of a
device.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.core import advanced, config, edits, errors, lifecycle, names, ports, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import inventory_cache

UNKNOWN = "unknown"
"""The namespace, name and request of what is known by the names of CDI files alone."""


def unknown_ref(uid: names.ClaimUid) -> claims.ClaimRef:
    """Return the reference of a claim of which only the UID is known."""
    return claims.ClaimRef(uid=uid, namespace=UNKNOWN, name=UNKNOWN)


def resolve(
    claim: claims.Claim, author: inventory_cache.Author, pool: str, device_of: Callable[[claims.AllocationResult], devices.Device | None]
) -> tuple[drivers.Grant[object], ...]:
    """The grants of a claim in the order of its results. Devices of ``pool`` are looked up by ``device_of``, those of others the author may know.

    Raises ClaimError for a claim without a result of this driver, a foreign pool, an unknown device, a share without an id or an id without a
    share, more of a capacity than the device has, or the same grant twice; ConfigError for parameters that do not decode.
    """
    results = claim.results_of(author.name)
    if not results:
        others = ", ".join(sorted({result.driver for result in claim.results})) or "none"
        raise errors.ClaimError(
            errors.ClaimFault.FOREIGN,
            f"no device of driver {author.name} is allocated (drivers: {others})",
            field="status.allocation.devices.results",
        )
    grants = tuple(_grant(claim, index, result, author, pool, device_of) for index, result in enumerate(results))
    _check_distinct(grants)
    return grants


def _grant(
    claim: claims.Claim,
    index: int,
    result: claims.AllocationResult,
    author: inventory_cache.Author,
    pool: str,
    device_of: Callable[[claims.AllocationResult], devices.Device | None],
) -> drivers.Grant[object]:
    field = f"status.allocation.devices.results[{index}]"
    found = device_of(result) if result.pool == pool else advanced.cluster_device(author, result.pool, result.device)
    if found is None and result.pool != pool:
        raise errors.ClaimError(
            errors.ClaimFault.UNKNOWN_DEVICE,
            f"{result.pool!r} is not this node's pool {pool!r}, which is the node's name",
            field=f"{field}.pool",
        )
    if found is None:
        raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, f"this node has no device {result.device!r}", field=f"{field}.device")
    _check_share(result, found, field)
    _check_amounts(result, found, field)
    chosen = config.choose(claim, result, author, found)
    return drivers.Grant(
        claim=claim.ref,
        request=result.request,
        pool=result.pool,
        device=found,
        config=chosen.config,
        config_source=chosen.source,
        parameters=chosen.parameters,
        share_id=result.share_id,
        consumed_capacity=result.consumed_capacity,
        admin_access=result.admin_access,
    )


def _check_share(result: claims.AllocationResult, found: devices.Device, field: str) -> None:
    if result.admin_access:
        return
    if found.allow_multiple_allocations and result.share_id is None:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, "a share of a shared device needs an id", field=f"{field}.shareID")
    if not found.allow_multiple_allocations and result.share_id is not None:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, "the device is not shared", field=f"{field}.shareID")


def _check_amounts(result: claims.AllocationResult, found: devices.Device, field: str) -> None:
    for name, amount in result.consumed_capacity.items():
        capacity = found.capacity.get(name)
        if capacity is not None and amount > capacity.value:
            reason = f"{found.name} has {capacity.value}, the claim says {amount}"
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, reason, field=f"{field}.consumedCapacity[{name}]")


def _check_distinct(grants: Sequence[drivers.Grant[object]]) -> None:
    # Pools are left out: a claim's CDI files are told apart by the device's name.
    seen: set[tuple[str, str]] = set()
    for grant in grants:
        key = (grant.device.name, grant.share_id or (grant.request if grant.admin_access else ""))
        if key in seen:
            raise errors.ClaimError(
                errors.ClaimFault.MALFORMED, f"{grant.device.name} is granted twice", field="status.allocation.devices.results"
            )
        seen.add(key)


def to_entry(grant: drivers.Grant[object]) -> lifecycle.GrantEntry:
    """What the journal keeps of a grant before it is prepared."""
    return lifecycle.GrantEntry(
        request=grant.request,
        pool=grant.pool,
        device=grant.device,
        share_id=grant.share_id,
        consumed_capacity=grant.consumed_capacity,
        admin_access=grant.admin_access,
        parameters=grant.parameters,
        config_source=grant.config_source,
        intent=grant.intent,
    )


def begun(ref: claims.ClaimRef, grants: Sequence[drivers.Grant[object]], boot_id: str) -> lifecycle.Entry:
    """Return the entry that the journal gets of a claim before its devices are prepared."""
    return lifecycle.Entry(claim=ref, state=lifecycle.State.PREPARING, grants=tuple(map(to_entry, grants)), boot_id=boot_id)


def with_begun_intents(grants: Sequence[drivers.Grant[object]], entry: lifecycle.Entry) -> Sequence[drivers.Grant[object]]:
    """Return the grants with the intents that the journal has of them."""
    begun = {kept.key: kept.intent for kept in entry.grants}
    return [dataclasses.replace(grant, intent=begun.get(to_entry(grant).key, grant.intent)) for grant in grants]


def in_order(
    grants: Sequence[drivers.Grant[object]], begun: Sequence[lifecycle.GrantEntry]
) -> dict[tuple[str, str, str, str], drivers.Grant[object]]:
    """The grants by ``GrantEntry.key``, in the order in which the claim was begun; raises ClaimError where they are not those it was begun with.

    An allocation under the same UID may name the same devices in another order.
    """
    by_key = {to_entry(grant).key: grant for grant in grants}
    if len(grants) != len(begun) or by_key.keys() != {kept.key for kept in begun}:
        raise errors.ClaimError(
            errors.ClaimFault.REPLACED, "the devices are not those the claim was begun with", field="status.allocation.devices.results"
        )
    return {kept.key: by_key[kept.key] for kept in begun}


def cdi_name(driver: str, ref: claims.ClaimRef, kept: lifecycle.GrantEntry) -> edits.CdiName:
    """What a grant's CDI file is named after; only admin access, which may hold one device twice, is told apart by its request."""
    request = kept.request.replace("/", ".") if kept.admin_access else ""
    return edits.CdiName(driver=driver, claim_uid=ref.uid, device=kept.device.name, share_id=kept.share_id, request=request)


def from_entry(ref: claims.ClaimRef, entry: lifecycle.GrantEntry, author: inventory_cache.Author) -> drivers.Grant[object]:
    """The grant as it was; parameters that no longer decode (an upgrade in between) give way to defaults, because undoing must go on."""
    return drivers.Grant(
        claim=ref,
        request=entry.request,
        pool=entry.pool,
        device=entry.device,
        config=_recall(entry, author),
        config_source=entry.config_source,
        parameters=entry.parameters,
        share_id=entry.share_id,
        consumed_capacity=entry.consumed_capacity,
        admin_access=entry.admin_access,
        intent=entry.intent,
        record=entry.record,
    )


def _recall(entry: lifecycle.GrantEntry, author: inventory_cache.Author) -> object:
    """The configuration as it was; the default where it no longer decodes, NoConfig where there is no default: undoing must go on."""
    try:
        if entry.parameters is not None:
            return config.decode(entry.parameters, author.config_types)
    except errors.ConfigError:
        pass
    try:
        return config.default_for(author, entry.device)
    except errors.ConfigError:
        return drivers.NoConfig()


def is_same(entry: lifecycle.Entry, claim: claims.Claim, author: inventory_cache.Author) -> bool:
    """Whether an entry is about the allocation the claim has now; a claim can be deallocated and allocated anew under one UID."""
    before = {grant.key: grant for grant in entry.grants}
    now = {(r.request, r.pool, r.device, r.share_id or ""): r for r in claim.results_of(author.name)}
    return before.keys() == now.keys() and all(_is_same_grant(before[key], result, claim, author) for key, result in now.items())


def _is_same_grant(
    entry: lifecycle.GrantEntry, result: claims.AllocationResult, claim: claims.Claim, author: inventory_cache.Author
) -> bool:
    if (entry.admin_access, entry.consumed_capacity) != (result.admin_access, result.consumed_capacity):
        return False
    try:
        return config.choose(claim, result, author, entry.device).parameters == entry.parameters
    except errors.ConfigError:
        # What was accepted at prepare and is not any more (the driver was upgraded) is no reason to take the device from a running pod.
        return True


def lock_names(grants: Sequence[lifecycle.GrantEntry] | Sequence[drivers.Grant[object]]) -> frozenset[str]:
    """The locks that guard everything these grants touch."""
    return frozenset(name for grant in grants for name in grant.device.lock_names)


Grant = drivers.Grant[object]


class Planner:
    """Plans for one author; ``pool`` is the node's own. Safe between threads."""

    def __init__(self, author: inventory_cache.Author, journal: ports.Journal, pool: str) -> None:
        self._author = author
        self._journal = journal
        self._pool = pool
        self._local = _Local()

    def plan(self, grants: Sequence[Grant]) -> Sequence[Grant]:
        """The grants with their intents; raises what the author raises."""
        planned: list[Grant] = []
        self._local.planned = planned
        try:
            for grant in grants:
                planned += [dataclasses.replace(grant, intent=_intent(self._author.plan(grant)))]
        finally:
            self._local.planned = None
        return tuple(planned)

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        """Return the intents of a device's grants: those in the journal, then those that this thread has planned for the claim at hand."""
        planned = self._local.planned or ()
        begun = self._journal.intents_of(self._pool, device.name)
        return [*begun, *(grant.intent for grant in planned if grant.device.name == device.name)]


def _intent(planned: object) -> records.Record:
    if not isinstance(planned, Mapping):
        raise TypeError(f"plan() returned {type(planned).__name__}; return a mapping, which is grant.intent afterwards")
    return planned


class _Local(threading.local):
    """What this thread has planned of the claim at hand; None where it plans none."""

    planned: list[Grant] | None = None
