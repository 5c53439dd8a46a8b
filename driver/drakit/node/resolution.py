"""Resolve an allocated claim to grants of one driver on one node, check that their devices are free, and plan their intents.

The node works with a claim's journal entry from the start: its grants get their intents from ``plan``, and their records and edits from ``prepare``.
``grant_of`` makes the author's view of one of them.

Resolving validates the claim. Others write claims, so it looks up every name and trusts none.

The last check before hardware is touched is whether the devices are free. The scheduler has allocated them, but it may race, a force-deleted pod may
not be unprepared yet, and a claim may be forged. The check covers double use of a device or a share, and the counters of a set that overlapping
devices consume. The scheduler counts the capacity that shares consume: a sum here would make every prepare cost as much as there are shares. Admin
access neither blocks nor is blocked.

Planning runs under the locks of the devices and ends in ``journal.begin``, so the journal and this thread's own plan have every intent of a device.
"""

import dataclasses
import threading
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from drakit.core import advanced, config, edits, errors, inventory, lifecycle, names, ports, record_versions, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import held_devices, inventory_cache

UNKNOWN = "unknown"
"""The namespace, name and request of a claim that is known only by the names of its CDI files."""

Grant = drivers.Grant[object]
Grants = Sequence[lifecycle.GrantEntry]
_NONE: Mapping[str, devices.Device] = types.MappingProxyType({})


def unknown_ref(uid: names.ClaimUid) -> claims.ClaimRef:
    """Return the reference of a claim with a known UID but an unknown namespace and name."""
    return claims.ClaimRef(uid=uid, namespace=UNKNOWN, name=UNKNOWN)


class _ThreadLocal(threading.local):
    """The grants of the current claim that this thread has planned so far."""

    planned: Grants = ()


class Resolver:
    """The resolver, checker and planner of one author's claims; thread-safe.

    ``pool`` is the node's own, ``program`` the driver's command. Device names are unique across the pools of a node, so a device is looked up by name
    and its pool is only compared.
    """

    def __init__(
        self, author: inventory_cache.Author, journal: ports.Journal, offered: inventory_cache.InventoryCache, *, pool: str, program: str
    ) -> None:
        self.program = program
        self._author = author
        self._journal = journal
        self._offered = offered
        self._pool = pool
        self._local = _ThreadLocal()
        self._gone_lock = threading.Lock()
        self._begun: set[str] = set()
        self._gone: set[str] = set()
        self._gone_since = -1

    def resolve(
        self, claim: claims.Claim, *, begun: bool = False, published: Mapping[str, devices.Device] = _NONE
    ) -> tuple[lifecycle.GrantEntry, ...]:
        """Return the grants of a claim in the order of its results. The driver looks up devices of cluster pools (``cluster_device``).

        A claim that was ``begun`` with this allocation keeps a device that has moved to another pool of the node since. Devices of the node's own
        pools that are not offered are looked up in ``published``, by name.
        Raises ClaimError for a claim without a result of this driver, a foreign pool, an unknown device, a share without an id or an id without a
        share, more of a capacity than the device has, or a duplicate grant; ConfigError for parameters that do not decode.
        """
        results = claim.results_of(self._author.name)
        if not results:
            others = ", ".join(sorted({result.driver for result in claim.results})) or "none"
            raise errors.ClaimError(
                errors.ClaimFault.FOREIGN,
                f"no device of driver {self._author.name} is allocated (drivers: {others})",
                field="status.allocation.devices.results",
            )
        grants = tuple(self._grant(claim, index, result, begun=begun, published=published) for index, result in enumerate(results))
        _check_distinct(grants)
        return grants

    def check_free(self, uid: names.ClaimUid, grants: Grants) -> None:
        """Raise DeviceBusyError, naming the holder, unless a claim's grants fit beside the devices that other claims hold by the journal.

        Counters, and hardware in common with a displaced device, are checked in the node's own pools only.
        """
        shares = [grant.share_id for grant in grants if grant.share_id]
        current = self._offered.current
        by_pool: dict[str, list[lifecycle.GrantEntry]] = {}
        for grant in grants:
            by_pool.setdefault(grant.device.node_pool(grant.pool), []).append(grant)
        for pool, wanted in sorted(by_pool.items()):
            is_own = pool == self._pool
            offered, consumers = (current.flat, current.consumers) if is_own else (inventory.Inventory(), {})
            under = {grant.device.name: self._offered.displaced_under(grant.device) if is_own else frozenset[str]() for grant in wanted}
            holdings = self._journal.holdings(pool, conflicting(wanted, consumers).union(*under.values()), shares)
            own = [grant for grant in wanted if not grant.admin_access]
            others = [held for held in holdings if not held.admin_access and held.claim.uid != uid]
            for grant in own:
                for held in others:
                    _check_device(grant, held, under[grant.device.name], self.program)
            if any(grant.device.consumes for grant in own):
                _check_counters(own, others, offered, self.program)
                _check_groups(own, others, offered, self.program)

    def plan(self, ref: claims.ClaimRef, grants: Grants, recall: Callable[[Grant], records.Record] | None = None) -> Grants:
        """Return a claim's grants with their intents. Raises the errors of the author's ``plan``.

        ``recall`` returns the intent of a grant whose device is busy because its hardware exists already.
        """
        planned = self._local.planned = list[lifecycle.GrantEntry]()
        try:
            for stored in grants:
                grant = grant_of(ref, stored, self._author)
                with config.author_errors():
                    try:
                        intent = self._author.plan(grant)
                    except errors.DeviceBusyError:
                        if recall is None:
                            raise
                        intent = recall(grant)
                if not isinstance(intent, records.MAPPINGS):
                    raise TypeError(f"plan() returned {type(intent).__name__}; return a mapping, which is grant.intent afterwards")
                frozen = record_versions.stamped(self._author, drivers.frozen("grant.intent", intent))
                planned.append(dataclasses.replace(stored, intent=frozen))
        finally:
            self._local.planned = ()
        return planned

    def beginning(self, grants: Grants) -> None:
        """Note the devices of a claim that is about to be journaled, for ``planned``: a discovery may lose one meanwhile."""
        own = {grant.device.name for grant in grants if grant.device.node_pool(grant.pool) == self._pool}
        with self._gone_lock:
            self._begun |= own
            self._gone |= own - self._offered.current.devices.keys()

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        """Return the intents under a device's locks: those in the journal, then those that this thread has planned for its current claim."""
        begun = self._journal.intents_of(self._pool, self._devices_under(device))
        planned = [grant.intent for grant in self._local.planned if _share_a_lock(grant.device, device)]
        return [record_versions.present(self._author, intent, "intent") for intent in (*begun, *planned)]

    def _devices_under(self, device: devices.Device) -> Collection[str]:
        """Return the names of the devices under a device's locks, with those that claims hold and discovery no longer has."""
        sets = frozenset(part.counter_set for part in device.consumes)
        offered = {device.name}.union(
            *(self._offered.current.consumers.get(name, ()) for name in sets), self._offered.displaced_under(device)
        )
        gone = self._gone_names()
        held = self._journal.holdings(self._pool, gone) if gone else ()
        return offered.union(holding.device.name for holding in held if _share_a_lock(holding.device, device))

    def _gone_names(self) -> Collection[str]:
        """Return the devices that claims may hold and the last discovery does not have. The journal is read once for each changed discovery.

        What this process begins after that is noted (``beginning``). An instance that this one replaces has at most a last call under way; what that
        begins is found unless the device was gone at this one's last discovery already.
        """
        with self._gone_lock:
            current = self._offered.current
            if current.number != self._gone_since:
                self._begun.update(self._journal.device_names(self._pool))
                self._gone = {name for name in self._begun if name not in current.devices}
                self._gone_since = current.number
            return frozenset(self._gone)

    def _grant(
        self, claim: claims.Claim, index: int, result: claims.AllocationResult, *, begun: bool, published: Mapping[str, devices.Device]
    ) -> lifecycle.GrantEntry:
        field = f"status.allocation.devices.results[{index}]"
        if names.is_pool_of_node(result.pool, self._pool):
            device = self._own_device(result, field, begun=begun, published=published)
        elif (shared := advanced.cluster_device(self._author, result.pool, result.device)) is not None:
            device = shared
        else:
            reason = f"{result.pool!r} is not this node's pool {self._pool!r}, which is the node's name"
            raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, reason, field=f"{field}.pool")
        _check_share(result, device, field)
        chosen = config.choose(claim, result, self._author, device)
        return lifecycle.GrantEntry(
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

    def _own_device(
        self, result: claims.AllocationResult, field: str, *, begun: bool, published: Mapping[str, devices.Device]
    ) -> devices.Device:
        """Return the device of a result of one of the node's own pools. Raises ClaimError if it is gone or in another pool."""
        by_share = result.share_id is not None or result.admin_access
        device = self._offered.device(result.device, by_share=by_share)
        if device is not None and device.pool_on(self._pool) != result.pool and not begun:
            self._offered.refresh()
            device = self._offered.device(result.device, by_share=by_share)
        device = device or published.get(result.device)
        if device is None:
            withheld = held_devices.withheld_by(self._author).get(result.device)
            why = f"this node does not offer {result.device!r}: {withheld}" if withheld else f"this node has no device {result.device!r}"
            raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, why, field=f"{field}.device")
        if (pool := device.pool_on(self._pool)) == result.pool:
            return device
        suffix = names.suffix_of(result.pool, self._pool)
        if begun and (suffix is None or names.is_label(suffix)):
            return dataclasses.replace(device, pool=suffix)
        reason = f"device {result.device!r} is in pool {pool!r}, not in {result.pool!r}; delete the pod to allocate the claim again"
        raise errors.ClaimError(errors.ClaimFault.UNKNOWN_DEVICE, reason, field=f"{field}.pool")


def _share_a_lock(first: devices.Device, second: devices.Device) -> bool:
    return not set(first.lock_names).isdisjoint(second.lock_names)


def _check_share(result: claims.AllocationResult, device: devices.Device, field: str) -> None:
    """Raise ClaimError for a share without an id, an id without a share, or more consumed capacity than the device has."""
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


def _check_distinct(grants: Grants) -> None:
    # The pool is not part of the key, because the names of a claim's CDI files contain the device's name only.
    seen: set[tuple[str, str]] = set()
    for grant in grants:
        key = (grant.device.name, grant.share_id or (grant.request if grant.admin_access else ""))
        if key in seen:
            raise errors.ClaimError(
                errors.ClaimFault.MALFORMED, f"{grant.device.name} is granted twice", field="status.allocation.devices.results"
            )
        seen.add(key)


def conflicting(grants: Grants, consumers: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the devices that may conflict with the grants: the granted ones, and the ``consumers`` of the same counter sets."""
    counter_sets = {consumption.counter_set for grant in grants for consumption in grant.device.consumes}
    granted = frozenset(grant.device.name for grant in grants)
    return granted.union(*(consumers.get(name, ()) for name in counter_sets))


def _check_device(grant: lifecycle.GrantEntry, held: lifecycle.Holding, displaced: Collection[str], program: str) -> None:
    if held.device.name in displaced:
        raise errors.DeviceBusyError(
            f"{grant.device.name} has hardware in common with {held.device.name}, which changed and is still held by {_holder(held, program)}"
        )
    same = held.device.name == grant.device.name
    if same and (held.share_id is None or grant.share_id is None or held.share_id == grant.share_id):
        raise errors.DeviceBusyError(f"{grant.device.name} is still held by {_holder(held, program)}")


def _check_counters(own: Grants, others: Sequence[lifecycle.Holding], offered: inventory.Inventory, program: str) -> None:
    limits = {counter_set.name: counter_set.counters for counter_set in offered.counter_sets}
    in_use = {held.device.name: held.device for held in others}
    before = counters_consumed(in_use.values())
    after = counters_consumed({**in_use, **{grant.device.name: grant.device for grant in own}}.values())
    for (name, counter), amount in after.items():
        limit = limits.get(name, {}).get(counter)
        if limit is not None and amount > limit.nanos and amount > before[name, counter]:
            holders = sorted({_holder(held, program) for held in others if counters_consumed([held.device])[name, counter]})
            raise errors.DeviceBusyError(f"counter {counter} of {name} is used up by {', '.join(holders) or 'the claim itself'}")


def _check_groups(own: Grants, others: Sequence[lifecycle.Holding], offered: inventory.Inventory, program: str) -> None:
    """Raise DeviceBusyError unless all devices in use of a counter set have a compatibility group in common, or none has any (KEP-5963)."""
    in_use = {held.device.name: held.device for held in others} | {grant.device.name: grant.device for grant in own}
    if all(_groups_in_common(in_use.values()).values()):
        return
    # A held device counts with its present groups, which are in its slice, and not with those of its allocation.
    current = offered.by_name()
    common = _groups_in_common(current.get(name, device) for name, device in in_use.items())
    for grant in own:
        name = next((part.counter_set for part in grant.device.consumes if not common.get(part.counter_set, True)), None)
        if name is not None:
            rivals = sorted({_holder(held, program) for held in others if name in held.device.lock_names})
            raise errors.DeviceBusyError(
                f"{grant.device.name} has no compatibility group of {name} in common with what is held by {', '.join(rivals) or 'the claim itself'}"
            )


def _groups_in_common(in_use: Iterable[devices.Device]) -> Mapping[str, frozenset[str]]:
    """Return the compatibility groups that all devices of a counter set have, by its name. The empty name is the group of those without any."""
    common: dict[str, frozenset[str]] = {}
    for device in in_use:
        for part in device.consumes:
            groups = frozenset(part.compatibility_groups or ("",))
            common[part.counter_set] = common.get(part.counter_set, groups) & groups
    return common


def counters_consumed(in_use: Iterable[devices.Device]) -> Counter[tuple[str, str]]:
    """Return the nanos that devices consume from each counter, by the names of counter set and counter. Shares of one device consume once."""
    total: Counter[tuple[str, str]] = Counter()
    for device in in_use:
        for consumption in device.consumes:
            for counter, amount in consumption.counters.items():
                total[consumption.counter_set, counter] += amount.nanos
    return total


def _holder(held: lifecycle.Holding, program: str) -> str:
    return f"claim {held.claim}, UID {held.claim.uid}, which is {held.state.value} (if it is gone: {program} unprepare {held.claim.uid})"


def cdi_name(driver: str, ref: claims.ClaimRef, entry: lifecycle.GrantEntry) -> edits.CdiName:
    """Return the name of a grant's CDI file. It contains the request for admin access only, which may hold one device twice."""
    request = entry.request.replace("/", ".") if entry.admin_access else ""
    return edits.CdiName(driver=driver, claim_uid=ref.uid, device=entry.device.name, share_id=entry.share_id, request=request)


def grant_of(
    ref: claims.ClaimRef, stored: lifecycle.GrantEntry, author: inventory_cache.Author, *, caller: drivers.Caller = drivers.NO_DEADLINE
) -> Grant:
    """Return the author's view of a grant of a claim: configuration decoded, intent and record in their present form, without its edits.

    Raises as ``record_versions.present`` does.
    """
    return drivers.Grant(
        claim=ref,
        request=stored.request,
        pool=stored.pool,
        device=stored.device,
        config=_stored_config(stored, author) if stored.config is None else stored.config,
        config_source=stored.config_source,
        parameters=stored.parameters,
        share_id=stored.share_id,
        consumed_capacity=stored.consumed_capacity,
        admin_access=stored.admin_access,
        intent=record_versions.present(author, stored.intent, "intent"),
        record=record_versions.present(author, stored.record, "record"),
        caller=caller,
    )


def with_configs(entry: lifecycle.Entry, author: inventory_cache.Author) -> lifecycle.Entry:
    """Return an entry that was read from the journal with the configurations of its grants, to prepare them for the first time.

    Raises ConfigError for parameters that no longer decode after an upgrade: they would be replaced by the default.
    """
    grants = tuple(
        dataclasses.replace(
            grant,
            config=config.default_for(author, grant.device)
            if grant.parameters is None
            else config.decode(grant.parameters, author.config_types),
        )
        for grant in entry.grants
    )
    return dataclasses.replace(entry, grants=grants)


def _stored_config(entry: lifecycle.GrantEntry, author: inventory_cache.Author) -> object:
    """Return the recorded configuration, or the default where it no longer decodes after an upgrade, or NoConfig where there is no default.

    A configuration that does not decode must not block an unprepare.
    """
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
    """Return whether an entry records the claim's present allocation; a claim can be deallocated and allocated again under one UID."""
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
        # An upgraded driver may reject parameters that it accepted at prepare; a running pod keeps its device even so.
        return True


def lock_names(grants: Grants) -> frozenset[str]:
    """Return the names of the device locks that these grants need."""
    return frozenset(name for grant in grants for name in grant.device.lock_names)
