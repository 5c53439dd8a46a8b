"""From an allocated claim to the grants of one driver on one node: are they valid, are they free, and what the author's ``plan`` chooses for them.

Resolving checks that a claim means what it says: others write claims, so every name is looked up and none is trusted.

Whether the devices are free is the last check before hardware is touched. The scheduler has decided already, but it may race, a force-deleted pod may
not be unprepared yet, and a claim may lie. Checked are double use of a device or a share, and the counters of a set that overlapping devices draw
from. The sum of what shares take is the scheduler's to count: adding it up here would make every prepare cost as much as there are shares. Admin
access neither blocks nor is blocked.

Planning runs under the locks of the devices and ends in ``journal.begin``, so the journal and this thread's own plan know all that is promised of a
device.
"""

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from drakit.core import advanced, config, edits, errors, inventory, lifecycle, names, ports, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import inventory_cache

UNKNOWN = "unknown"
"""The namespace, name and request of what is known by the names of CDI files alone."""


Grant = drivers.Grant[object]


def unknown_ref(uid: names.ClaimUid) -> claims.ClaimRef:
    """Return the reference of a claim of which only the UID is known."""
    return claims.ClaimRef(uid=uid, namespace=UNKNOWN, name=UNKNOWN)


class _Local(threading.local):
    """What this thread has planned of the claim at hand; None where it plans none."""

    planned: list[Grant] | None = None


class Resolver:
    """Resolves, checks and plans for one author; ``pool`` is the node's own, ``program`` the driver's command. Safe between threads.

    Device names are unique across the pools of a node, so what a device is looked up by is its name; its pool is only compared.
    """

    def __init__(
        self, author: inventory_cache.Author, journal: ports.Journal, offered: inventory_cache.InventoryCache, *, pool: str, program: str
    ) -> None:
        self.program = program
        self._author = author
        self._journal = journal
        self._offered = offered
        self._pool = pool
        self._local = _Local()

    def resolve(self, claim: claims.Claim, *, begun: bool = False) -> tuple[Grant, ...]:
        """Return the grants of a claim in the order of its results. A device of no pool of the node is looked up by the driver (``cluster_device``).

        A claim that was ``begun`` with this allocation keeps a device that is in another pool of the node since.
        Raises ClaimError for a claim without a result of this driver, a foreign pool, an unknown device, a share without an id or an id without a
        share, more of a capacity than the device has, or the same grant twice; ConfigError for parameters that do not decode.
        """
        results = claim.results_of(self._author.name)
        if not results:
            others = ", ".join(sorted({result.driver for result in claim.results})) or "none"
            raise errors.ClaimError(
                errors.ClaimFault.FOREIGN,
                f"no device of driver {self._author.name} is allocated (drivers: {others})",
                field="status.allocation.devices.results",
            )
        grants = tuple(self._grant(claim, index, result, begun=begun) for index, result in enumerate(results))
        _check_distinct(grants)
        return grants

    def check_free(self, grants: Sequence[Grant]) -> None:
        """Raise DeviceBusyError, naming who holds what, unless all grants fit beside what other claims hold by the journal.

        Counters are checked in the node's own pools only.
        """
        shares = [grant.share_id for grant in grants if grant.share_id]
        for pool in sorted({grant.device.node_pool(grant.pool) for grant in grants}):
            is_own = pool == self._pool
            offered, drawn = (self._offered.flat, self._offered.drawing) if is_own else (inventory.Inventory(), {})
            wanted = [grant for grant in grants if grant.device.node_pool(grant.pool) == pool]
            holdings = self._journal.holdings(pool, neighbours(wanted, drawn), shares)
            own = [grant for grant in wanted if not grant.admin_access]
            others = [item for item in holdings if not item.admin_access and all(item.claim.uid != grant.claim.uid for grant in wanted)]
            for grant in own:
                for item in others:
                    _check_device(grant, item, self.program)
            _check_counters(own, others, offered, self.program)

    def plan(self, grants: Sequence[Grant]) -> Sequence[Grant]:
        """Return the grants with their intents; raises what the author raises."""
        self._local.planned = planned = []
        try:
            for grant in grants:
                intent = self._author.plan(grant)
                if not isinstance(intent, Mapping):
                    raise TypeError(f"plan() returned {type(intent).__name__}; return a mapping, which is grant.intent afterwards")
                planned.append(dataclasses.replace(grant, intent=intent))
        finally:
            self._local.planned = None
        return tuple(planned)

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        """Return the intents of a device's grants: those in the journal, then those that this thread has planned for the claim at hand."""
        planned = self._local.planned or ()
        begun = self._journal.intents_of(self._pool, device.name)
        return [*begun, *(grant.intent for grant in planned if grant.device.name == device.name)]

    def _grant(self, claim: claims.Claim, index: int, result: claims.AllocationResult, *, begun: bool) -> Grant:
        field = f"status.allocation.devices.results[{index}]"
        if names.is_pool_of_node(result.pool, self._pool):
            device = self._own_device(result, field, begun=begun)
        elif (shared := advanced.cluster_device(self._author, result.pool, result.device)) is not None:
            device = shared
        else:
            reason = f"{result.pool!r} is not this node's pool {self._pool!r}, which is the node's name"
            raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, reason, field=f"{field}.pool")
        _check_share(result, device, field)
        chosen = config.choose(claim, result, self._author, device)
        return drivers.Grant(
            claim=claim.ref,
            request=result.request,
            pool=result.pool,
            device=device,
            config=chosen.config,
            config_source=chosen.source,
            parameters=chosen.parameters,
            share_id=result.share_id,
            consumed_capacity=result.consumed_capacity,
            admin_access=result.admin_access,
        )

    def _own_device(self, result: claims.AllocationResult, field: str, *, begun: bool) -> devices.Device:
        """Return the device of a result of one of the node's own pools; raises ClaimError where it is gone, or in another of them."""
        device = self._offered.granted(result)
        if device is not None and device.pool_on(self._pool) != result.pool and not begun:
            self._offered.refresh()
            device = self._offered.granted(result)
        if device is None:
            raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, f"this node has no device {result.device!r}", field=f"{field}.device")
        if (pool := device.pool_on(self._pool)) == result.pool:
            return device
        suffix = names.suffix_of(result.pool, self._pool)
        if begun and (suffix is None or names.is_label(suffix)):
            return dataclasses.replace(device, pool=suffix)
        reason = f"device {result.device!r} is in pool {pool!r}, not in {result.pool!r}; delete the pod to allocate the claim anew"
        raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, reason, field=f"{field}.pool")


def _check_share(result: claims.AllocationResult, device: devices.Device, field: str) -> None:
    """Check that a share has an id, no other device has one, and nothing takes more than the device has; raises ClaimError."""
    if not result.admin_access:
        if device.allow_multiple_allocations and result.share_id is None:
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, "a share of a shared device needs an id", field=f"{field}.shareID")
        if not device.allow_multiple_allocations and result.share_id is not None:
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, "the device is not shared", field=f"{field}.shareID")
    for name, amount in result.consumed_capacity.items():
        capacity = device.capacity.get(name)
        if capacity is not None and amount > capacity.value:
            reason = f"{device.name} has {capacity.value}, the claim says {amount}"
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, reason, field=f"{field}.consumedCapacity[{name}]")


def _check_distinct(grants: Sequence[Grant]) -> None:
    # Pools are left out: a claim's CDI files are told apart by the device's name.
    seen: set[tuple[str, str]] = set()
    for grant in grants:
        key = (grant.device.name, grant.share_id or (grant.request if grant.admin_access else ""))
        if key in seen:
            raise errors.ClaimError(
                errors.ClaimFault.MALFORMED, f"{grant.device.name} is granted twice", field="status.allocation.devices.results"
            )
        seen.add(key)


def neighbours(grants: Sequence[Grant], drawn: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the devices whose use may conflict: those granted, and those that consume the same counter sets (``drawn``: set to devices)."""
    touched = {part.counter_set for grant in grants for part in grant.device.consumes}
    own = frozenset(grant.device.name for grant in grants)
    return own.union(*(drawn.get(name, ()) for name in touched))


def _check_device(grant: Grant, item: lifecycle.Holding, program: str) -> None:
    same = item.device.name == grant.device.name
    if same and (item.share_id is None or grant.share_id is None or item.share_id == grant.share_id):
        raise errors.DeviceBusyError(f"{grant.device.name} is still held by {_whose(item, program)}")


def _check_counters(own: Sequence[Grant], others: Sequence[lifecycle.Holding], offered: inventory.Inventory, program: str) -> None:
    if not any(grant.device.consumes for grant in own):
        return
    sets = {item.name: item.counters for item in offered.counter_sets}
    drawing = {item.device.name: item.device for item in others}
    before, after = _drawn(drawing.values()), _drawn({**drawing, **{grant.device.name: grant.device for grant in own}}.values())
    for (name, counter), amount in after.items():
        limit = sets.get(name, {}).get(counter)
        if limit is not None and amount > limit.nanos and amount > before[name, counter]:
            holders = (
                ", ".join(sorted({_whose(item, program) for item in others if _draws(item.device, name, counter)})) or "the claim itself"
            )
            raise errors.DeviceBusyError(f"counter {counter} of {name} is used up by {holders}")


def _drawn(drawing: Iterable[devices.Device]) -> Mapping[tuple[str, str], int]:
    """Nanos drawn from each counter; a shared device draws once."""
    total: Counter[tuple[str, str]] = Counter()
    for item in drawing:
        for part in item.consumes:
            for counter, amount in part.counters.items():
                total[part.counter_set, counter] += amount.nanos
    return total


def _draws(item: devices.Device, name: str, counter: str) -> bool:
    return any(part.counter_set == name and part.counters.get(counter) for part in item.consumes)


def _whose(item: lifecycle.Holding, program: str) -> str:
    return f"claim {item.claim}, UID {item.claim.uid}, which is {item.state.value} (if it is gone: {program} unprepare {item.claim.uid})"


def to_entry(grant: Grant) -> lifecycle.GrantEntry:
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


def begun(ref: claims.ClaimRef, grants: Sequence[Grant], boot_id: str) -> lifecycle.Entry:
    """Return the entry that the journal gets of a claim before its devices are prepared."""
    return lifecycle.Entry(claim=ref, state=lifecycle.State.PREPARING, grants=tuple(map(to_entry, grants)), boot_id=boot_id)


def with_begun_intents(grants: Sequence[Grant], entry: lifecycle.Entry) -> Sequence[Grant]:
    """Return the grants with the intents that the journal has of them."""
    begun = {kept.key: kept.intent for kept in entry.grants}
    return [dataclasses.replace(grant, intent=begun.get(to_entry(grant).key, grant.intent)) for grant in grants]


def in_order(grants: Sequence[Grant], begun: Sequence[lifecycle.GrantEntry]) -> dict[tuple[str, str, str, str], Grant]:
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


def from_entry(ref: claims.ClaimRef, entry: lifecycle.GrantEntry, author: inventory_cache.Author) -> Grant:
    """The grant as it was; parameters that no longer decode (an upgrade in between) give way to defaults, because undoing must go on."""
    return drivers.Grant(
        claim=ref,
        request=entry.request,
        pool=entry.pool,
        device=entry.device,
        config=_stored_config(entry, author),
        config_source=entry.config_source,
        parameters=entry.parameters,
        share_id=entry.share_id,
        consumed_capacity=entry.consumed_capacity,
        admin_access=entry.admin_access,
        intent=entry.intent,
        record=entry.record,
    )


def _stored_config(entry: lifecycle.GrantEntry, author: inventory_cache.Author) -> object:
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
    before = {(grant.request, grant.pool, grant.device.name, grant.share_id or ""): grant for grant in entry.grants}
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


def lock_names(grants: Sequence[lifecycle.GrantEntry] | Sequence[Grant]) -> frozenset[str]:
    """The locks that guard everything these grants touch."""
    return frozenset(name for grant in grants for name in grant.device.lock_names)
