"""Messages of traffic control: qdiscs, HTB classes, leaf queues and eBPF filters, encoded and read through one rtnetlink socket.

Layouts: struct tcmsg, tc_htb_glob, tc_htb_opt, tc_fifo_qopt, tc_mirred (linux/pkt_sched.h, linux/tc_act/tc_mirred.h). ``put`` creates a
class or qdisc or changes it in place; ``delete`` ignores one that is gone. Errors are OSError. The kernel answers a request for one object only with
the echo flag, and sends the answer to every listener too, like an event.
"""

import dataclasses
import errno
import struct
from collections.abc import Mapping

from drakit_nic import port
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import htb

AT_ROOT, AT_INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
HOOK_INGRESS, HOOK_EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
OURS = htb.MAJOR << 16
PRIORITY = 0xDA00

_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_NEWCLASS, _DELCLASS, _GETCLASS = 40, 41, 42
_NEWFILTER, _DELFILTER, _GETFILTER = 44, 45, 46
_TCMSG = struct.Struct("=BxxxiIII")
_KIND, _OPTIONS, _STATS = 1, 2, 7
_ALL_FRAMES = 0x0300 if struct.pack("=H", 1)[0] else 0x0003
_FILTER = PRIORITY << 16 | _ALL_FRAMES

_HTB_PARMS, _HTB_INIT, _HTB_DIRECT, _HTB_RATE64, _HTB_CEIL64 = 1, 2, 5, 6, 7
_HTB_GLOBAL = struct.Struct("=IIIII")
_HTB_VERSION, _RATE_TO_QUANTUM = 3, 10
_RATESPEC = "BBHhHI"
_HTB_CLASS = struct.Struct(f"={_RATESPEC}{_RATESPEC}IIIII")
_ETHERNET = 1
_WORD_MAX = 2**32 - 1
_DEFAULT_QUANTUM = 65536

_FIFO, _FAIR = "bfifo", "fq_codel"
_FAIR_TARGET, _FAIR_MEMORY = 1, 9
_FAIR_TARGET_US = 20_000
MEMORY_FOR_BYTE = 4
"""Bytes of memory that a fair queue may use for each byte of its limit."""
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_BUCKET_BYTES, _BUCKET_QUEUE_PART, _BUCKET_PART = 2 * 65536, 100, 1000
_BASIC, _QUEUE = 1, 3
_BPF_ACT, _BPF_FD, _BPF_NAME, _BPF_FLAGS, _BPF_ID = 1, 6, 7, 8, 11
_DIRECT_ACTION = 1
_MIRRED = struct.Struct("=IIiiiiI")
_MIRRED_PARMS, _REDIRECT, _STOLEN = 2, 1, 4
_GONE = frozenset({errno.ENOENT, errno.EINVAL, errno.ENODEV})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qdisc:
    """An existing qdisc: its kind, and its handle, 0 for the kernel's default."""

    kind: str
    handle: int

    def __str__(self) -> str:
        return f"{self.kind} {self.handle >> 16:x}:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Class:
    """An existing HTB class with its counters. The limit in ``spec`` is -1 where another program replaced the queue."""

    spec: htb.HtbClass
    counters: port.Counters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filter:
    """An existing filter of the driver: its program's id, its name, and the interface it redirects to, 0 for none."""

    program: int
    name: str = ""
    redirect: int = 0


def qdisc(sock: rtnetlink.Socket, ifindex: int, parent: int) -> Qdisc | None:
    """Return the qdisc at the root or the ingress of an interface, None if the qdisc or the interface does not exist."""
    return next(map(_qdisc, _get(sock, _GETQDISC, _TCMSG.pack(0, ifindex, 0, parent, 0))), None)


def roots(sock: rtnetlink.Socket) -> Mapping[int, Qdisc]:
    """Return the root qdiscs of all interfaces, by index."""
    answers = sock.dump(_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0))
    return {_TCMSG.unpack_from(answer)[1]: _qdisc(answer) for answer in answers if _TCMSG.unpack_from(answer)[3] == AT_ROOT}


def hooked(sock: rtnetlink.Socket) -> frozenset[int]:
    """Return the interfaces with an ingress or clsact qdisc."""
    answers = map(_TCMSG.unpack_from, sock.dump(_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)))
    return frozenset(ifindex for _, ifindex, _, parent, _ in answers if parent == AT_INGRESS)


def add_root(sock: rtnetlink.Socket, ifindex: int) -> None:
    """Create the driver's HTB at the root. Raises OSError, with EEXIST where another qdisc is there.

    The direct queue has length 0, so that HTB drops frames that a sender directs past the classes.
    """
    glob = _HTB_GLOBAL.pack(_HTB_VERSION, _RATE_TO_QUANTUM, htb.DEFAULT, 0, 0)
    options = rtnetlink.pack(_HTB_INIT, glob) + rtnetlink.number(_HTB_DIRECT, 0)
    body = _TCMSG.pack(0, ifindex, OURS, AT_ROOT, 0) + rtnetlink.text(_KIND, "htb") + rtnetlink.pack(_OPTIONS, options)
    sock.ask(_NEWQDISC, body, rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def delete_root(sock: rtnetlink.Socket, ifindex: int) -> None:
    """Delete the driver's HTB at the root. The kernel restores its default."""
    _delete(sock, _DELQDISC, _TCMSG.pack(0, ifindex, OURS, AT_ROOT, 0))


def add_hooks(sock: rtnetlink.Socket, ifindex: int) -> None:
    """Create a clsact qdisc. Raises OSError, with EEXIST where an ingress or clsact qdisc exists."""
    body = _TCMSG.pack(0, ifindex, AT_INGRESS & 0xFFFF0000, AT_INGRESS, 0) + rtnetlink.text(_KIND, "clsact")
    sock.ask(_NEWQDISC, body, rtnetlink.CREATE | rtnetlink.EXCLUSIVE)


def delete_hooks(sock: rtnetlink.Socket, ifindex: int) -> None:
    """Delete the clsact qdisc."""
    body = _TCMSG.pack(0, ifindex, AT_INGRESS & 0xFFFF0000, AT_INGRESS, 0) + rtnetlink.text(_KIND, "clsact")
    _delete(sock, _DELQDISC, body)


def has_filters(sock: rtnetlink.Socket, ifindex: int, parent: int) -> bool:
    """Return whether any program has a filter at a hook."""
    return bool(sock.dump(_GETFILTER, _TCMSG.pack(0, ifindex, 0, parent, 0)))


def has_foreign_filters(sock: rtnetlink.Socket, ifindex: int) -> bool:
    """Return whether another program has a filter at a hook of an interface. The driver's own have its priority."""
    answers = (answer for hook in (HOOK_INGRESS, HOOK_EGRESS) for answer in sock.dump(_GETFILTER, _TCMSG.pack(0, ifindex, 0, hook, 0)))
    return any(_TCMSG.unpack_from(answer)[4] >> 16 != PRIORITY for answer in answers)


def put_class(sock: rtnetlink.Socket, ifindex: int, spec: htb.HtbClass, *, fair: bool = False) -> None:
    """Create or change a class and its queue, a ``fair`` one or a FIFO."""
    rate, ceil = spec.rate // 8, spec.ceil // 8
    specs = [part for amount in (rate, ceil) for part in (0, _ETHERNET, 0, 0, 0, min(amount, _WORD_MAX))]
    parms = _HTB_CLASS.pack(*specs, spec.burst, spec.cburst, spec.quantum or _DEFAULT_QUANTUM, 0, spec.prio)
    options = rtnetlink.pack(_HTB_PARMS, parms)
    for kind, amount in ((_HTB_RATE64, rate), (_HTB_CEIL64, ceil)):
        if amount > _WORD_MAX:
            options += rtnetlink.pack(kind, struct.pack("=Q", amount))
    parent = OURS | spec.parent if spec.parent else AT_ROOT
    body = _TCMSG.pack(0, ifindex, OURS | spec.minor, parent, 0) + rtnetlink.text(_KIND, "htb") + rtnetlink.pack(_OPTIONS, options)
    sock.ask(_NEWCLASS, body, rtnetlink.CREATE)
    if spec.limit:
        _put_queue(sock, ifindex, spec, fair=fair)


def _put_queue(sock: rtnetlink.Socket, ifindex: int, spec: htb.HtbClass, *, fair: bool) -> None:
    head = _TCMSG.pack(0, ifindex, spec.minor << 16, OURS | spec.minor, 0)
    options = _fair_options(spec.limit) if fair else rtnetlink.number(_OPTIONS, spec.limit)
    body = head + rtnetlink.text(_KIND, _FAIR if fair else _FIFO) + options
    try:
        sock.ask(_NEWQDISC, body, rtnetlink.CREATE | rtnetlink.REPLACE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # The kernel cannot change the kind of a queue, which an older driver or another kernel may have chosen.
        _delete(sock, _DELQDISC, head)
        sock.ask(_NEWQDISC, body, rtnetlink.CREATE | rtnetlink.REPLACE)


def _fair_options(limit: int) -> bytes:
    """Return the options of a fair queue that drops at the waiting time or the memory of a FIFO of this length.

    With the kernel's own target of 5 ms a single flow loses 3 to 5% of its rate. The kernel counts the memory that frames take, not their bytes.
    """
    memory = rtnetlink.number(_FAIR_MEMORY, limit * MEMORY_FOR_BYTE)
    return rtnetlink.pack(_OPTIONS, rtnetlink.number(_FAIR_TARGET, _FAIR_TARGET_US) + memory)


def try_fair_queue(sock: rtnetlink.Socket, ifindex: int) -> bool:
    """Create a fair queue at the root of a temporary interface and return True. Raises OSError where the kernel has no fair queue."""
    sock.ask(_NEWQDISC, _TCMSG.pack(0, ifindex, OURS, AT_ROOT, 0) + rtnetlink.text(_KIND, _FAIR) + _fair_options(1 << 16), rtnetlink.CREATE)
    return True


def put_token_bucket(sock: rtnetlink.Socket, ifindex: int, rate: int) -> None:
    """Create or change a token bucket at the root of an interface, which limits its egress to a rate in bits per second."""
    bytes_per_second = rate // 8
    spec = struct.pack(f"={_RATESPEC}", 0, _ETHERNET, 0, 0, 0, min(bytes_per_second, _WORD_MAX))
    queue = max(_BUCKET_BYTES, bytes_per_second // _BUCKET_QUEUE_PART)
    options = rtnetlink.pack(_TBF_PARMS, spec + bytes(len(spec)) + struct.pack("=III", queue, 0, 0))
    options += rtnetlink.pack(_TBF_RATE64, struct.pack("=Q", bytes_per_second))
    options += rtnetlink.number(_TBF_BURST, max(_BUCKET_BYTES, bytes_per_second // _BUCKET_PART))
    body = _TCMSG.pack(0, ifindex, OURS, AT_ROOT, 0) + rtnetlink.text(_KIND, "tbf") + rtnetlink.pack(_OPTIONS, options)
    sock.ask(_NEWQDISC, body, rtnetlink.CREATE | rtnetlink.REPLACE)


def delete_class(sock: rtnetlink.Socket, ifindex: int, minor: int) -> None:
    """Delete a class without children, with its queue."""
    _delete(sock, _DELCLASS, _TCMSG.pack(0, ifindex, OURS | minor, 0, 0))


def classes(sock: rtnetlink.Socket, ifindex: int, limits: Mapping[int, int] | None = None) -> Mapping[int, Class]:
    """Return the classes of the driver's HTB at an interface, by number. ``limits`` are the limits that ``queues`` returned for it, if known."""
    answers = sock.dump(_GETCLASS, _TCMSG.pack(0, ifindex, 0, 0, 0))
    ours = (_class(answer, limits) for answer in answers if _TCMSG.unpack_from(answer)[2] & 0xFFFF0000 == OURS)
    return {entry.spec.minor: entry for entry in ours}


def class_at(sock: rtnetlink.Socket, ifindex: int, minor: int) -> Class | None:
    """Return one class of the driver's HTB, None if it does not exist."""
    answers = _get(sock, _GETCLASS, _TCMSG.pack(0, ifindex, OURS | minor, 0, 0))
    return next((_class(answer, None) for answer in answers), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Queue:
    """An existing queue of a class: its length in bytes, -1 where it is not of the driver's kind, and the number of frames it dropped."""

    limit: int
    drops: int


def queues(sock: rtnetlink.Socket, *, fair: bool = False) -> Mapping[int, Mapping[int, Queue]]:
    """Return the queues of the driver's classes, by interface and class. The call reads every qdisc of the namespace."""
    by_interface: dict[int, dict[int, Queue]] = {}
    for answer in sock.dump(_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, handle, parent, _ = _TCMSG.unpack_from(answer)
        attrs = rtnetlink.attributes(answer[_TCMSG.size :])
        if handle >> 16 == parent & 0xFFFF and parent & 0xFFFF0000 == OURS:
            drops = _counters(attrs.get(_STATS, b""), 0, 0).drops
            by_interface.setdefault(ifindex, {})[parent & 0xFFFF] = Queue(limit=_limit(attrs, fair=fair), drops=drops)
    return by_interface


def _limit(attrs: rtnetlink.Attributes, *, fair: bool) -> int:
    kind = rtnetlink.as_text(attrs[_KIND])
    if kind != (_FAIR if fair else _FIFO):
        return -1
    if not fair:
        return rtnetlink.as_number(attrs[_OPTIONS])
    memory = rtnetlink.attributes(attrs[_OPTIONS]).get(_FAIR_MEMORY, b"")
    return rtnetlink.as_number(memory) // MEMORY_FOR_BYTE if memory else -1


def put_filter(
    sock: rtnetlink.Socket, ifindex: int, parent: int, *, program: int, name: str, redirect: int = 0, action: bool = False
) -> None:
    """Create or replace the driver's filter at a qdisc or hook. ``program`` is the descriptor of a loaded program.

    ``redirect`` is the interface to whose egress matching frames go. ``action`` is set where the program itself returns an action.
    """
    options = rtnetlink.number(_BPF_FD, program) + rtnetlink.text(_BPF_NAME, name)
    if action:
        options += rtnetlink.number(_BPF_FLAGS, _DIRECT_ACTION)
    if redirect:
        parms = rtnetlink.pack(_MIRRED_PARMS, _MIRRED.pack(0, 0, _STOLEN, 0, 0, _REDIRECT, redirect))
        mirred = rtnetlink.text(_KIND, "mirred") + rtnetlink.pack(_OPTIONS, parms)
        options += rtnetlink.pack(_BPF_ACT, rtnetlink.pack(1, mirred))
    body = _TCMSG.pack(0, ifindex, 1, parent, _FILTER) + rtnetlink.text(_KIND, "bpf") + rtnetlink.pack(_OPTIONS, options)
    sock.ask(_NEWFILTER, body, rtnetlink.CREATE)


def filter_at(sock: rtnetlink.Socket, ifindex: int, parent: int) -> Filter | None:
    """Return the driver's filter at a qdisc or hook, None if there is none."""
    for answer in _get(sock, _GETFILTER, _TCMSG.pack(0, ifindex, 1, parent, _FILTER) + rtnetlink.text(_KIND, "bpf")):
        options = rtnetlink.attributes(rtnetlink.attributes(answer[_TCMSG.size :]).get(_OPTIONS, b""))
        if _BPF_ID in options:
            return Filter(
                program=rtnetlink.as_number(options[_BPF_ID]),
                name=rtnetlink.as_text(options.get(_BPF_NAME, b"")),
                redirect=_redirect(options.get(_BPF_ACT, b"")),
            )
    return None


def delete_filter(sock: rtnetlink.Socket, ifindex: int, parent: int) -> None:
    """Delete the driver's filter at a qdisc or hook."""
    _delete(sock, _DELFILTER, _TCMSG.pack(0, ifindex, 0, parent, _FILTER))


def _qdisc(answer: bytes) -> Qdisc:
    kind = rtnetlink.attributes(answer[_TCMSG.size :])[_KIND]
    return Qdisc(kind=rtnetlink.as_text(kind), handle=_TCMSG.unpack_from(answer)[2])


def _redirect(actions: bytes) -> int:
    action = rtnetlink.attributes(rtnetlink.attributes(actions).get(1, b""))
    parms = rtnetlink.attributes(action.get(_OPTIONS, b"")).get(_MIRRED_PARMS, b"")
    return _MIRRED.unpack_from(parms)[6] if len(parms) >= _MIRRED.size else 0


def _class(answer: bytes, limits: Mapping[int, int] | None) -> Class:
    _, _, handle, parent, queue = _TCMSG.unpack_from(answer)
    attrs = rtnetlink.attributes(answer[_TCMSG.size :])
    options = rtnetlink.attributes(attrs[_OPTIONS])
    parms = _HTB_CLASS.unpack_from(options[_HTB_PARMS])
    burst, cburst, quantum, level, prio = parms[12:]
    rate, ceil = (_rate(options.get(kind), short) for kind, short in ((_HTB_RATE64, parms[5]), (_HTB_CEIL64, parms[11])))
    minor, is_inner = handle & 0xFFFF, level > 0
    spec = htb.HtbClass(
        minor=minor,
        parent=0 if parent == AT_ROOT else parent & 0xFFFF,
        rate=rate,
        ceil=ceil,
        burst=burst,
        cburst=cburst,
        quantum=0 if is_inner else quantum,
        prio=0 if is_inner else prio,
        limit=0 if is_inner else (limits or {}).get(minor, -1) if queue == minor << 16 else -1,
    )
    return Class(spec=spec, counters=_counters(attrs.get(_STATS, b""), rate, ceil))


def _rate(wide: bytes | None, short: int) -> int:
    return 8 * (struct.unpack("=Q", wide[:8])[0] if wide else short)


def _counters(stats: bytes, rate: int, ceil: int) -> port.Counters:
    attrs = rtnetlink.attributes(stats)
    sent_bytes, packets = struct.unpack_from("=QI", attrs[_BASIC]) if _BASIC in attrs else (0, 0)
    _, backlog, drops = struct.unpack_from("=III", attrs[_QUEUE]) if _QUEUE in attrs else (0, 0, 0)
    return port.Counters(rate=rate, ceil=ceil, bytes=sent_bytes, packets=packets, drops=drops, backlog=backlog)


def _get(sock: rtnetlink.Socket, kind: int, body: bytes) -> tuple[bytes, ...]:
    """Return the requested object, none where it or its interface does not exist."""
    try:
        return sock.ask(kind, body, rtnetlink.ECHO)
    except OSError as error:
        if error.errno in _GONE:
            return ()
        raise


def _delete(sock: rtnetlink.Socket, kind: int, body: bytes) -> None:
    try:
        sock.ask(kind, body)
    except OSError as error:
        if error.errno not in _GONE:
            raise
