"""The HTB classes and classifier entries that a NIC's shares need, the changes that lead to them, and class numbers.

Both directions of a NIC have one and the same tree of HTB classes::

    root                the NIC's speed
    |-- host            the host's own traffic and all group addresses: the reserve
    |-- stray           frames of a known address without a known owner: little
    |-- default         everything else: little (fail closed)
    |-- a share         its rate, ceil = rate or more; a leaf until a sandbox uses it
    |   |-- a member    one sandbox: almost no rate of its own, so that it borrows the share's
    |   `-- a member
    `-- ...

Members of a share borrow from it in equal parts whatever number of flows each has, so two pods of one claim share fairly on kernels with no fair
queue at all. Shares borrow from the root in proportion to their rates: quanta are proportional, and members divide the quantum of their share.

Class numbers are fixed for the inner traffic, chosen by ``ShareNumbers`` for the rest, and never collide with the major number, so
that a leaf queue's handle can be its class's number. Rates are bits per second, multiples of 8 (the kernel counts bytes) and at least 8000; bursts
are in the kernel's ticks of 64 ns.

A new share gets a class number that no installed share has, no intent names, and no earlier plan of this process got. Installed shares and intents
are read once, and again by the reconciler, which passes them on (``learn``). In between, plans and removals keep the numbers current, so that a
number costs the same with one share and with thousands. Another process may have assigned a number meanwhile, so a number is looked up in the kernel
before it is used; another process installs what it plans under the same device's lock.

All shares of one claim are planned before the journal has the first, so the journal alone would give them one number. A number assigned here is
dropped when the journal has it, or its share is planned again or ends.
"""

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from drakit.core import errors, records
from drakit.devices.nic import port

MAJOR = 0x00DA
ROOT, HOST, STRAY, DEFAULT = 1, 2, 3, 4
SHARES = range(0x0100, 0x8000)
MEMBERS = range(0x8000, 0xFFFF)
SMALL = 10**6
ANY = "00:00:00:00:00:00"
ANY_NAMESPACE = 0
KERNEL_MADE = 2**64 - 1

_TICK_NS = 64
_BURST_NS = 4 * 10**6
_BURST_BYTES = 3000
_NANO = 10**9
_QUEUE_NS = 23 * 10**6
_QUEUE_BYTES = 2 * 65536
_QUEUE_MAX = 2**29
_ROUND_NS = 10**7
_QUANTUM_MIN = 65536
_QUANTUM_MAX = 2**31 - 1
_MEMBER_PART = 256
_RATE_MIN = 8000
_FIRST, _SECOND, _LAST = 0, 1, 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class HtbClass:
    """One HTB class. ``limit`` is its queue's length in bytes; a class with others below it has none, nor a quantum or priority: all three are 0."""

    minor: int
    parent: int
    rate: int
    ceil: int
    burst: int
    cburst: int
    quantum: int
    prio: int
    limit: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareMember:
    """A member's place: the class ``minor`` below the class ``share``."""

    minor: int
    share: int
    cookie: int
    mac: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change: a class to put or to drop; ``why`` describes the difference for the operator."""

    spec: HtbClass
    why: str
    is_drop: bool = False


HtbClasses = Mapping[int, HtbClass]
Owners = Mapping[tuple[int, str], int]


def classes_for(uplink: port.Uplink, shares: Iterable[port.Share], members: Iterable[ShareMember]) -> HtbClasses:
    """Return the classes wanted in each direction, by number."""
    total = _whole(uplink.speed)
    specs = [
        _inner(ROOT, 0, total, total),
        _leaf(HOST, ROOT, max(_whole(uplink.reserve), SMALL), prio=_FIRST),
        _leaf(STRAY, ROOT, SMALL, prio=_LAST),
        _leaf(DEFAULT, ROOT, SMALL, prio=_LAST),
    ]
    beside: dict[int, list[ShareMember]] = {}
    for member in members:
        beside.setdefault(member.share, []).append(member)
    for share in shares:
        specs += share_classes(uplink, share, beside.get(share.minor, ()))
    return {spec.minor: spec for spec in specs}


def share_classes(uplink: port.Uplink, share: port.Share, members: Collection[ShareMember]) -> tuple[HtbClass, ...]:
    """Return the classes of one share: its own, and one for each of its members."""
    rate = _whole(share.bandwidth)
    ceil = max(rate, min(_whole(share.ceil), _whole(uplink.speed)))
    quantum = _quantum(rate)
    if not members:
        return (_leaf(share.minor, ROOT, rate, ceil=ceil, quantum=quantum),)
    part, turn = _whole(rate // _MEMBER_PART), max(quantum // len(members), _QUANTUM_MIN)
    below = (_leaf(member.minor, share.minor, part, ceil=ceil, quantum=turn) for member in members)
    return _inner(share.minor, ROOT, rate, ceil), *below


def differences(wanted: HtbClasses, present: HtbClasses) -> tuple[Change, ...]:
    """Return the changes in order: children are dropped before their parents and put after them."""
    drops, puts = [], []
    for minor, spec in present.items():
        if minor not in wanted:
            drops.append(Change(is_drop=True, spec=spec, why=f"class {text(minor)} has no share"))
        elif spec.parent != wanted[minor].parent:
            drops.append(Change(is_drop=True, spec=spec, why=f"class {text(minor)} is in the wrong place"))
    moved = {change.spec.minor for change in drops}
    for minor, spec in wanted.items():
        if minor not in present or minor in moved or spec.parent in moved:
            puts.append(Change(spec=spec, why=f"class {text(minor)} is missing"))
        elif spec != present[minor]:
            puts.append(Change(spec=spec, why=_altered(spec, present[minor])))
    drops.sort(key=lambda change: -_depth(change.spec, present))
    puts.sort(key=lambda change: _depth(change.spec, wanted))
    return (*drops, *puts)


def owners(classifier: port.Classifier, *, host: int, mac: str, members: Sequence[ShareMember]) -> Owners:
    """Return the egress classifier's map: (cookie, source address) to class. ``host`` is the cookie of the NIC's own namespace, ``mac`` its address.

    With namespaces, no source address alone selects a share's class, because a nested namespace could forge it. Of two shares of one namespace, the
    first one gets frames of any other address.
    """
    if classifier is port.Classifier.MAC:
        return {(ANY_NAMESPACE, mac): HOST, **{(ANY_NAMESPACE, member.mac): member.minor for member in members}}
    lookups = {(host, ANY): HOST, (KERNEL_MADE, mac): HOST}
    for member in sorted(members, key=lambda member: member.minor, reverse=True):
        lookups |= owners_of(member)
        lookups[member.cookie, ANY] = member.minor
    return lookups


def owners_of(member: ShareMember) -> Owners:
    """Return the classifier entries of one member, by namespace."""
    return {(member.cookie, member.mac): member.minor, (ANY_NAMESPACE, member.mac): STRAY}


def text(minor: int) -> str:
    """Return a class as ``tc`` writes it."""
    return f"{MAJOR:x}:{minor:x}"


def _leaf(minor: int, parent: int, rate: int, *, ceil: int = 0, quantum: int = _QUANTUM_MIN, prio: int = _SECOND) -> HtbClass:
    most = max(rate, ceil)
    return HtbClass(
        minor=minor,
        parent=parent,
        rate=rate,
        ceil=most,
        burst=_burst(rate),
        cburst=_burst(most),
        quantum=quantum,
        prio=prio,
        limit=_queue(most),
    )


def _inner(minor: int, parent: int, rate: int, ceil: int) -> HtbClass:
    return HtbClass(minor=minor, parent=parent, rate=rate, ceil=ceil, burst=_burst(rate), cburst=_burst(ceil), quantum=0, prio=0, limit=0)


def _burst(rate: int) -> int:
    """Four milliseconds' worth at the rate, or the time two full frames take.

    What a class could not send in a gap longer than its burst is lost to it for ever, so this is the longest time for which the processor may be
    elsewhere without a share falling below its rate. It lets a share that was silent send that much at once, which is less than a queue holds.
    """
    return max(_BURST_NS, _BURST_BYTES * 8 * _NANO // rate) // _TICK_NS


def _queue(rate: int) -> int:
    """Twenty-three milliseconds' worth, but room for two frames of the largest size before segmentation.

    Acknowledgements wait in it with the data of the other way, so a flow loses its rate both ways at once where it is shorter (15: 3 to 6% at 100M).
    The kernel limits the memory of a fair queue to 2 GiB and sets a higher value to that, so above 187G the queue is shorter.
    """
    return min(max(_QUEUE_BYTES, rate * _QUEUE_NS // (8 * _NANO)), _QUEUE_MAX)


def _quantum(rate: int) -> int:
    """Return the quantum, which a class sends in its turn when it borrows: ten milliseconds' worth, but at least one unsegmented frame.

    HTB sends one frame a turn however large it is, so with less the class of the larger frames would win. Long turns cost others nothing that is
    guaranteed: before every frame, HTB serves those within their own rates first.
    """
    return min(max(_QUANTUM_MIN, rate * _ROUND_NS // (8 * _NANO)), _QUANTUM_MAX)


def _whole(rate: int) -> int:
    """Return a rate in whole bytes a second, and not so small that the time a frame takes does not fit the kernel's burst."""
    return max(rate // 8 * 8, _RATE_MIN)


def _depth(spec: HtbClass, among: HtbClasses) -> int:
    depth = 0
    while spec.parent in among:
        spec, depth = among[spec.parent], depth + 1
    return depth


def _altered(wanted: HtbClass, present: HtbClass) -> str:
    fields = [field.name for field in dataclasses.fields(HtbClass)]
    changed = [
        f"{name} {getattr(present, name)}, not {getattr(wanted, name)}"
        for name in fields
        if getattr(wanted, name) != getattr(present, name)
    ]
    return f"class {text(wanted.minor)} has {'; '.join(changed)}"


Snapshot = tuple[Iterable[port.Share], Iterable[records.Record]]


class NumberPool:
    """The numbers of a range that are known to be taken; the lowest other one is found without going through them."""

    def __init__(self, whole: range, taken: Iterable[int] = ()) -> None:
        self._whole, self._taken, self._from = whole, set(taken), whole.start

    def lowest(self) -> int | None:
        """Return the lowest number that is not taken, None where all are."""
        while self._from in self._taken:
            self._from += 1
        return self._from if self._from in self._whole else None

    def take(self, number: int) -> None:
        """Mark a number as taken."""
        self._taken.add(number)

    def release(self, number: int) -> None:
        """Mark a number as free."""
        self._taken.discard(number)
        self._from = min(self._from, max(number, self._whole.start))


class ShareNumbers:
    """The numbers of shares as far as this process knows them. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: dict[str, int] = {}
        self._known: dict[str, int] | None = None
        self._numbers = NumberPool(SHARES)

    def learn(self, installed: Iterable[port.Share], intents: Iterable[records.Record]) -> None:
        """Replace all numbers by those of the installed shares and of the intents."""
        with self._lock:
            self._learn(installed, intents)

    def choose(self, share_id: str, *, snapshot: Callable[[], Snapshot], at: Callable[[int], port.Share | None]) -> int:
        """Return a number for a share that is to be planned: the one it is installed with, else a free one.

        ``snapshot`` reads what is installed and promised; it is called at first, and where no number seems to be left. ``at`` is the share that the
        kernel has with a number. Raises DeviceBusyError where no number is left, and what the two raise.
        """
        with self._lock:
            if self._known is None:
                self._learn(*snapshot())
            kept = (self._known or {}).get(share_id)
            if kept is not None and _is(at(kept), share_id):
                return kept
            self._forget(share_id)
            free = self._free(share_id, at)
            if free is None:
                self._learn(*snapshot())
                free = self._free(share_id, at)
            if free is None:
                raise errors.DeviceBusyError("this node has no class number left for one more share")
            self._given[share_id] = free
            self._numbers.take(free)
            return free

    def forget(self, share_id: str) -> None:
        """Free the number of a share that has ended."""
        with self._lock:
            self._forget(share_id)

    def _learn(self, installed: Iterable[port.Share], intents: Iterable[records.Record]) -> None:
        promised = {str(intent.get("id")): minor for intent in intents for minor in [intent.get("minor")] if isinstance(minor, int)}
        self._known = {**promised, **{share.id: share.minor for share in installed}}
        self._given = {share_id: minor for share_id, minor in self._given.items() if share_id not in promised}
        self._numbers = NumberPool(SHARES, (*promised.values(), *self._known.values(), *self._given.values()))

    def _forget(self, share_id: str) -> None:
        numbers = self._known if self._known is not None else {}
        for minor in (numbers.pop(share_id, None), self._given.pop(share_id, None)):
            if minor is not None:
                self._numbers.release(minor)

    def _free(self, share_id: str, at: Callable[[int], port.Share | None]) -> int | None:
        while (minor := self._numbers.lowest()) is not None:
            holder = at(minor)
            if holder is None or holder.id == share_id:
                return minor
            self._numbers.take(minor)
        return None


def _is(share: port.Share | None, share_id: str) -> bool:
    return share is not None and share.id == share_id
