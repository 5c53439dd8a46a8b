"""The HTB classes and classifier entries that a NIC's shares need, the changes that lead to them, and class numbers.

Both directions of a NIC have the same tree of HTB classes::

    root                the NIC's speed
    |-- host            the host's own traffic and all group addresses: the reserve
    |-- stray           frames of a known address without a known owner: little
    |-- default         everything else: little (fail closed)
    |-- a share         its rate, ceil = rate or more; a leaf until a sandbox uses it
    |   |-- a member    one sandbox: almost no rate of its own, so that it borrows the share's
    |   `-- a member
    `-- ...

Members of a share borrow from it in equal parts, whatever number of flows each has. So two pods of one claim share fairly on kernels without a fair
queue. Shares borrow from the root in proportion to their rates: quanta are proportional, and members divide the quantum of their share.

The class numbers of the root, host, stray and default classes are fixed; ``ShareNumbers`` chooses those of shares. No number equals the major number,
so a leaf queue's handle can be its class's number. Rates are bits per second, multiples of 8 (the kernel counts bytes) and at least 8000; bursts are
in the kernel's ticks of 64 ns.

A new share gets a class number that no installed share has, no intent names, and no earlier plan of this process has. The driver reads installed
shares and intents once, and the reconciler passes them on again (``load``). In between, plans and removals keep the numbers current, so choosing a
number is O(1) in the number of shares. Another process may have assigned a number meanwhile, so the kernel is asked before a number is used. Another
process installs its planned shares under the same device's lock.

All shares of one claim are planned before the journal has the first, so the journal alone would give them the same number. A number assigned here is
dropped when the journal has it, or when its share is planned again or ends.
"""

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import drakit
from drakit_nic import port

MAJOR = 0x00DA
ROOT, HOST, STRAY, DEFAULT = 1, 2, 3, 4
SHARES = range(0x0100, 0x8000)
MEMBERS = range(0x8000, 0xFFFF)
MIN_RATE_BITS = 10**6
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
_MEMBER_DIVISOR = 256
_RATE_MIN = 8000
_FIRST, _SECOND, _LAST = 0, 1, 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class HtbClass:
    """One HTB class. ``limit`` is its queue's length in bytes. A class with children has no queue, quantum or priority: all three are 0."""

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
    """A member of a share, with the class ``minor`` below the class ``share``."""

    minor: int
    share: int
    cookie: int
    mac: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change: a class to put or to delete. ``why`` describes the difference for the operator."""

    spec: HtbClass
    why: str
    is_drop: bool = False


HtbClasses = Mapping[int, HtbClass]
Owners = Mapping[tuple[int, str], int]


def classes_for(uplink: port.Uplink, shares: Iterable[port.Share], members: Iterable[ShareMember]) -> HtbClasses:
    """Return the wanted classes of each direction, by number."""
    total = _whole_bytes(uplink.speed)
    specs = [
        _inner(ROOT, 0, total, total),
        _leaf(HOST, ROOT, max(_whole_bytes(uplink.reserve), MIN_RATE_BITS), prio=_FIRST),
        _leaf(STRAY, ROOT, MIN_RATE_BITS, prio=_LAST),
        _leaf(DEFAULT, ROOT, MIN_RATE_BITS, prio=_LAST),
    ]
    by_share: dict[int, list[ShareMember]] = {}
    for member in members:
        by_share.setdefault(member.share, []).append(member)
    for share in shares:
        specs += share_classes(uplink, share, by_share.get(share.minor, ()))
    return {spec.minor: spec for spec in specs}


def share_classes(uplink: port.Uplink, share: port.Share, members: Collection[ShareMember]) -> tuple[HtbClass, ...]:
    """Return the classes of one share: its own, and one of each member."""
    rate = _whole_bytes(share.bandwidth)
    ceil = max(rate, min(_whole_bytes(share.ceil), _whole_bytes(uplink.speed)))
    quantum = _quantum(rate)
    if not members:
        return (_leaf(share.minor, ROOT, rate, ceil=ceil, quantum=quantum),)
    member_rate, member_quantum = _whole_bytes(rate // _MEMBER_DIVISOR), max(quantum // len(members), _QUANTUM_MIN)
    leaves = (_leaf(member.minor, share.minor, member_rate, ceil=ceil, quantum=member_quantum) for member in members)
    return _inner(share.minor, ROOT, rate, ceil), *leaves


def differences(wanted: HtbClasses, present: HtbClasses) -> tuple[Change, ...]:
    """Return the changes in order: children are deleted before their parents and put after them."""
    drops, puts = [], []
    for minor, spec in present.items():
        if minor not in wanted:
            drops.append(Change(is_drop=True, spec=spec, why=f"class {text(minor)} has no share"))
        elif spec.parent != wanted[minor].parent:
            drops.append(Change(is_drop=True, spec=spec, why=f"class {text(minor)} has the wrong parent"))
    moved = {change.spec.minor for change in drops}
    for minor, spec in wanted.items():
        if minor not in present or minor in moved or spec.parent in moved:
            puts.append(Change(spec=spec, why=f"class {text(minor)} is missing"))
        elif spec != present[minor]:
            puts.append(Change(spec=spec, why=_describe_change(spec, present[minor])))
    drops.sort(key=lambda change: -_depth(change.spec, present))
    puts.sort(key=lambda change: _depth(change.spec, wanted))
    return (*drops, *puts)


def owners(
    classifier: port.Classifier, *, host: int, mac: str, members: Sequence[ShareMember], child: port.ChildKind = port.ChildKind.MACVLAN
) -> Owners:
    """Return the egress classifier's map: (cookie, source address) to class. ``host`` is the cookie of the NIC's own namespace, ``mac`` its address.

    Frames that a pod's kernel creates without a socket have the NIC's address with ipvlan, so they cannot be told from the host's.

    With namespaces, no source address alone selects a share's class, because a nested namespace could forge it. Where a namespace has two shares, the
    first one gets the frames of any other address.
    """
    if classifier is port.Classifier.MAC:
        return {(ANY_NAMESPACE, mac): HOST, **{(ANY_NAMESPACE, member.mac): member.minor for member in members}}
    entries = {(host, ANY): HOST, (KERNEL_MADE, mac): HOST if child is port.ChildKind.MACVLAN else STRAY}
    for member in sorted(members, key=lambda member: member.minor, reverse=True):
        entries |= owners_of(member)
        entries[member.cookie, ANY] = member.minor
    return entries


def owners_of(member: ShareMember) -> Owners:
    """Return the egress classifier's entries of one member."""
    return {(member.cookie, member.mac): member.minor, (ANY_NAMESPACE, member.mac): STRAY}


def text(minor: int) -> str:
    """Return a class number as ``tc`` prints it."""
    return f"{MAJOR:x}:{minor:x}"


def _leaf(minor: int, parent: int, rate: int, *, ceil: int = 0, quantum: int = _QUANTUM_MIN, prio: int = _SECOND) -> HtbClass:
    ceil = max(rate, ceil)
    return HtbClass(
        minor=minor,
        parent=parent,
        rate=rate,
        ceil=ceil,
        burst=_burst(rate),
        cburst=_burst(ceil),
        quantum=quantum,
        prio=prio,
        limit=_queue_length(ceil),
    )


def _inner(minor: int, parent: int, rate: int, ceil: int) -> HtbClass:
    return HtbClass(minor=minor, parent=parent, rate=rate, ceil=ceil, burst=_burst(rate), cburst=_burst(ceil), quantum=0, prio=0, limit=0)


def _burst(rate: int) -> int:
    """Return the burst in ticks: four milliseconds at the rate, or the time of two full frames.

    A class never recovers what it could not send in a gap longer than its burst. So this is the longest time for which the processor may be busy
    elsewhere before a share falls below its rate. A share that was idle may send that much at once, which is less than a queue holds.
    """
    return max(_BURST_NS, _BURST_BYTES * 8 * _NANO // rate) // _TICK_NS


def _queue_length(rate: int) -> int:
    """Return a queue's length in bytes: twenty-three milliseconds at the rate, but at least two frames of the largest size before segmentation.

    Acknowledgements wait in the queue with the data of the other direction, so a shorter queue costs a flow rate in both (15 ms: 3 to 6% at
    100M). The kernel limits the memory of a fair queue to 2 GiB, so above 187G the queue is shorter.
    """
    return min(max(_QUEUE_BYTES, rate * _QUEUE_NS // (8 * _NANO)), _QUEUE_MAX)


def _quantum(rate: int) -> int:
    """Return the bytes that a class sends in its turn when it borrows: ten milliseconds at the rate, but at least one unsegmented frame.

    HTB sends at least one frame a turn, so a smaller quantum would favour the class with the larger frames. Long turns take no guaranteed rate from
    others, because before every frame HTB serves the classes within their own rates first.
    """
    return min(max(_QUANTUM_MIN, rate * _ROUND_NS // (8 * _NANO)), _QUANTUM_MAX)


def _whole_bytes(rate: int) -> int:
    """Return a rate rounded down to whole bytes a second, and at least the rate at which the time of a frame fits the kernel's burst."""
    return max(rate // 8 * 8, _RATE_MIN)


def _depth(spec: HtbClass, among: HtbClasses) -> int:
    depth = 0
    while spec.parent in among:
        spec, depth = among[spec.parent], depth + 1
    return depth


def _describe_change(wanted: HtbClass, present: HtbClass) -> str:
    fields = [field.name for field in dataclasses.fields(HtbClass)]
    changed = [
        f"{name} {getattr(present, name)}, not {getattr(wanted, name)}"
        for name in fields
        if getattr(wanted, name) != getattr(present, name)
    ]
    return f"class {text(wanted.minor)} has {'; '.join(changed)}"


Snapshot = tuple[Iterable[port.Share], Iterable[drakit.Record]]


class NumberPool:
    """The taken numbers of a range. The lowest free one is found without a search of all."""

    def __init__(self, numbers: range, taken: Iterable[int] = ()) -> None:
        self._range, self._taken, self._next = numbers, set(taken), numbers.start

    def lowest(self) -> int | None:
        """Return the lowest number that is not taken, None if all are."""
        while self._next in self._taken:
            self._next += 1
        return self._next if self._next in self._range else None

    def take(self, number: int) -> None:
        """Mark a number as taken."""
        self._taken.add(number)

    def release(self, number: int) -> None:
        """Mark a number as free."""
        self._taken.discard(number)
        self._next = min(self._next, max(number, self._range.start))


class ShareNumbers:
    """The class numbers of shares that this process has read or assigned. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._assigned: dict[str, int] = {}
        self._recorded: dict[str, int] | None = None
        self._numbers = NumberPool(SHARES)

    def load(self, installed: Iterable[port.Share], intents: Iterable[drakit.Record]) -> None:
        """Replace all numbers by those of the installed shares and of the intents, and keep the assigned ones."""
        with self._lock:
            self._load(installed, intents)

    def choose(self, share_id: str, *, snapshot: Callable[[], Snapshot], at: Callable[[int], port.Share | None]) -> int:
        """Return the number of a share to plan: the one it is installed with, else a free one.

        ``snapshot`` reads installed shares and intents. It is called the first time, and where no number seems to be free. ``at`` returns the share
        that the kernel has with a number. Raises DeviceBusyError where no number is free, and the errors of the two.
        """
        with self._lock:
            if self._recorded is None:
                self._load(*snapshot())
            existing = (self._recorded or {}).get(share_id)
            if existing is not None and (holder := at(existing)) is not None and holder.id == share_id:
                return existing
            self._release(share_id)
            free = self._free(share_id, at)
            if free is None:
                self._load(*snapshot())
                free = self._free(share_id, at)
            if free is None:
                raise drakit.DeviceBusyError("this node has no class number left for one more share")
            self._assigned[share_id] = free
            self._numbers.take(free)
            return free

    def release(self, share_id: str) -> None:
        """Free the number of a share that was removed."""
        with self._lock:
            self._release(share_id)

    def _load(self, installed: Iterable[port.Share], intents: Iterable[drakit.Record]) -> None:
        intended = {str(intent.get("id")): minor for intent in intents for minor in [intent.get("minor")] if isinstance(minor, int)}
        self._recorded = {**intended, **{share.id: share.minor for share in installed}}
        self._assigned = {share_id: minor for share_id, minor in self._assigned.items() if share_id not in intended}
        self._numbers = NumberPool(SHARES, (*intended.values(), *self._recorded.values(), *self._assigned.values()))

    def _release(self, share_id: str) -> None:
        numbers = self._recorded if self._recorded is not None else {}
        for minor in (numbers.pop(share_id, None), self._assigned.pop(share_id, None)):
            if minor is not None:
                self._numbers.release(minor)

    def _free(self, share_id: str, at: Callable[[int], port.Share | None]) -> int | None:
        while (minor := self._numbers.lowest()) is not None:
            holder = at(minor)
            if holder is None or holder.id == share_id:
                return minor
            self._numbers.take(minor)
        return None
