"""bpf(2) without a compiler or a library, and the classifiers of shares as its instructions.

Hash maps, programs for traffic control, and finding again what a filter uses. Layouts: ``union bpf_attr``, ``struct bpf_prog_info`` and ``struct
bpf_map_info`` of linux/bpf.h. Every descriptor returned is the caller's to close. Errors are OSError; a program the kernel refuses carries the
verifier's words.

``egress`` runs as a filter of the NIC's HTB and answers with a class. A frame that a socket of a known network namespace sent goes to the class of
that namespace and source address, else of that namespace: whatever the sender writes into the frame, it cannot choose a class of another namespace.
A frame without a socket that this host's own kernel made (nothing was received for it) goes by its source address to the class registered for
kernel-made frames. Every other frame goes by its source address to the class registered for frames without a known owner, or else to none (the
HTB's default class). Where the kernel cannot tell a namespace, only the last lookup is left.

``ingress`` runs on the ifb and goes by destination address, all group addresses to the host's class. ``everything`` matches every frame, for the
redirection to the ifb. ``guard`` clears a class that a sender has written into the socket's priority, which HTB would obey before any filter.

``REVISION`` is part of the filters' names, so that a newer driver replaces an older one's programs: raise it with every change of a program.

Instructions: struct bpf_insn; context: struct __sk_buff (linux/bpf.h). Both classifiers hold the ledger, so that it lives as long as they.
"""

import ctypes
import dataclasses
import errno
import os
import platform
import struct
from collections.abc import Iterator

_SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _LOOKUP, _UPDATE, _DELETE, _NEXT, _LOAD = range(6)
_PROGRAM_BY_ID, _MAP_BY_ID, _DESCRIBE, _BATCH = 13, 14, 15, 24
_BATCH_ENTRIES = 4096
_BATCH_COUNT_AT = 32
_HASH = 1
_NO_PREALLOC = 1
_SCHED_CLS = 3
_MAPS_MAX = 8
_LOG_BYTES = 1 << 16
_LICENSE = b"Apache-2.0\0"
_NAME_BYTES = 15
_PROGRAM_BYTES, _NR_MAPS_AT, _MAPS_AT = 80, 52, 56
_MAP_BYTES, _MAP_NAME_AT = 40, 24

NOT_EXISTING = 1


def create_map(name: str, *, key: int, value: int, entries: int) -> int:
    """Return a hash map whose memory grows with what is in it; sizes are in bytes."""
    body = struct.pack("=IIIIIII16s", _HASH, key, value, entries, _NO_PREALLOC, 0, 0, name.encode()[:_NAME_BYTES])
    return _bpf(_MAP_CREATE, body)


def look_up(descriptor: int, key: bytes, size: int) -> bytes | None:
    """Return the value of a key, or None."""
    value = ctypes.create_string_buffer(size)
    return None if _element(_LOOKUP, descriptor, key, value) == errno.ENOENT else value.raw


def update(descriptor: int, key: bytes, value: bytes, flags: int = 0) -> bool:
    """Set a key's value; False when it exists and ``flags`` is NOT_EXISTING."""
    return _element(_UPDATE, descriptor, key, ctypes.create_string_buffer(value, len(value)), flags) != errno.EEXIST


def delete(descriptor: int, key: bytes) -> None:
    """Delete a key; one that is not there is success."""
    _element(_DELETE, descriptor, key, None)


def keys(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield all keys. One that is deleted while they are read can make the kernel start over: read them into a set."""
    following = ctypes.create_string_buffer(size)
    key: bytes | None = None
    while _element(_NEXT, descriptor, key, following) != errno.ENOENT:
        key = following.raw
        yield key


def entries(descriptor: int, key: int, value: int) -> dict[bytes, bytes]:
    """Return all keys with their values, whose sizes are in bytes; many at a time where the kernel can (Linux 5.6)."""
    try:
        return dict(_batches(descriptor, key, value))
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise
    found = {name: look_up(descriptor, name, value) for name in set(keys(descriptor, key))}
    return {name: content for name, content in found.items() if content is not None}


def _batches(descriptor: int, key: int, value: int) -> Iterator[tuple[bytes, bytes]]:
    names, contents = (ctypes.create_string_buffer(_BATCH_ENTRIES * size) for size in (key, value))
    place = ctypes.create_string_buffer(max(key, 4))
    at, last = 0, False
    while not last:
        addresses = (at, *map(ctypes.addressof, (place, names, contents)))
        request = bytearray(struct.pack("=QQQQIIQQ", *addresses, _BATCH_ENTRIES, descriptor, 0, 0))
        try:
            _bpf_in(_BATCH, request)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            last = True
        count = struct.unpack_from("=I", request, _BATCH_COUNT_AT)[0]
        for number in range(count):
            yield names.raw[number * key : (number + 1) * key], contents.raw[number * value : (number + 1) * value]
        at = ctypes.addressof(place)


def load(name: str, program: bytes) -> int:
    """Load a program for traffic control; a refused one is an OSError with the last line of the verifier's log."""
    code = ctypes.create_string_buffer(program, len(program))
    license_text = ctypes.create_string_buffer(_LICENSE)
    log = ctypes.create_string_buffer(_LOG_BYTES)
    body = struct.pack(
        "=IIQQIIQII16s",
        _SCHED_CLS,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(license_text),
        1,
        _LOG_BYTES,
        ctypes.addressof(log),
        0,
        0,
        name.encode()[:_NAME_BYTES],
    )
    try:
        return _bpf(_LOAD, body)
    except OSError as error:
        lines = [line for line in log.value.decode(errors="replace").splitlines() if line and not line.startswith("processed")]
        raise OSError(error.errno, f"{error.strerror}{': ' if lines else ''}{lines[-1] if lines else ''}") from error


def maps_of(program_id: int) -> dict[str, int]:
    """Descriptors of the maps a loaded program uses, by name; empty when there is no such program (any more)."""
    try:
        descriptor = _bpf(_PROGRAM_BY_ID, struct.pack("=III", program_id, 0, 0))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return {}
        raise
    try:
        numbers = _map_ids(descriptor)
    finally:
        os.close(descriptor)
    return {_name_of(found): found for found in (_bpf(_MAP_BY_ID, struct.pack("=III", number, 0, 0)) for number in numbers)}


def map_id(descriptor: int) -> int:
    """Return the kernel's number of a map, by which two descriptors are found to be of one map."""
    number: int = struct.unpack_from("=I", _describe(descriptor, bytes(_MAP_BYTES)), 4)[0]
    return number


def _map_ids(program: int) -> tuple[int, ...]:
    room = (ctypes.c_uint32 * _MAPS_MAX)()
    request = bytearray(_PROGRAM_BYTES)
    struct.pack_into("=IQ", request, _NR_MAPS_AT, _MAPS_MAX, ctypes.addressof(room))
    count = struct.unpack_from("=I", _describe(program, bytes(request)), _NR_MAPS_AT)[0]
    return tuple(room[:count])


def _name_of(descriptor: int) -> str:
    return _describe(descriptor, bytes(_MAP_BYTES))[_MAP_NAME_AT:].split(b"\0", 1)[0].decode(errors="replace")


def _describe(descriptor: int, request: bytes) -> bytes:
    room = ctypes.create_string_buffer(request, len(request))
    _bpf(_DESCRIBE, struct.pack("=IIQ", descriptor, len(request), ctypes.addressof(room)))
    return room.raw


def _element(command: int, descriptor: int, key: bytes | None, value: "ctypes.Array[ctypes.c_char] | None", flags: int = 0) -> int:
    """Return one call on a map's element; 0, or the error number where it is an answer (ENOENT, EEXIST)."""
    place = ctypes.create_string_buffer(key, len(key)) if key is not None else None
    addresses = (ctypes.addressof(room) if room is not None else 0 for room in (place, value))
    try:
        _bpf(command, struct.pack("=IIQQQ", descriptor, 0, *addresses, flags))
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.EEXIST}:
            raise
        return error.errno or 0
    return 0


def _bpf(command: int, body: bytes) -> int:
    return _bpf_in(command, bytearray(body))


def _bpf_in(command: int, body: bytearray) -> int:
    """Return one call; what the kernel writes into the request is found in ``body``."""
    if _SYSCALL is None:
        raise OSError(errno.ENOSYS, f"bpf: its number on {platform.machine()} is not known")
    result = int(_LIBC.syscall(_SYSCALL, command, (ctypes.c_char * len(body)).from_buffer(body), len(body)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf: {os.strerror(code)}")
    return result


_SYSCALL = _SYSCALLS.get(platform.machine())
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


REVISION = 1
ANY_NAMESPACE = 0
KERNEL_MADE = 2**64 - 1

_MAC_AT_DESTINATION, _MAC_AT_SOURCE, _MAC_BYTES = 0, 6, 6
_PRIORITY, _INGRESS_IFINDEX, _SOCKET = 32, 36, 168
_LOOK_UP, _LOAD_BYTES, _NETNS_COOKIE = 1, 26, 122
_KEY, _ADDRESS, _FRAME = -16, -8, 10
_R0, _R1, _R2, _R3, _R4, _R6, _R7 = 0, 1, 2, 3, 4, 6, 7


@dataclasses.dataclass
class _Code:
    """Instructions being written; jumps name a label that is placed later."""

    lines: list[tuple[int, int, int, int, int, str]] = dataclasses.field(default_factory=list)
    labels: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, code: int, *, to: int = 0, of: int = 0, offset: int = 0, value: int = 0, label: str = "") -> None:
        self.lines.append((code, to, of, offset, value, label))

    def here(self, label: str) -> None:
        self.labels[label] = len(self.lines)

    def move(self, to: int, of: int) -> None:
        self.add(0xBF, to=to, of=of)

    def set(self, to: int, value: int) -> None:
        self.add(0xB7, to=to, value=value)

    def load(self, to: int, of: int, offset: int, *, size: int) -> None:
        self.add({8: 0x79, 4: 0x61, 1: 0x71}[size], to=to, of=of, offset=offset)

    def store(self, offset: int, of: int) -> None:
        self.add(0x7B, to=_FRAME, of=of, offset=offset)

    def store_value(self, offset: int, value: int) -> None:
        self.add(0x7A, to=_FRAME, offset=offset, value=value)

    def use_map(self, to: int, descriptor: int) -> None:
        self.add(0x18, to=to, of=1, value=descriptor)
        self.add(0)

    def call(self, number: int) -> None:
        self.add(0x85, value=number)

    def go(self, label: str) -> None:
        self.add(0x05, label=label)

    def go_if(self, register: int, value: int, label: str) -> None:
        self.add(0x15, to=register, value=value, label=label)

    def go_unless(self, register: int, value: int, label: str) -> None:
        self.add(0x55, to=register, value=value, label=label)

    def leave(self, value: int | None = None) -> None:
        if value is not None:
            self.set(_R0, value)
        self.add(0x95)

    def look_up(self, descriptor: int, key: int) -> None:
        """Look up the key on the stack; go to ``found`` with its value's address."""
        self.use_map(_R1, descriptor)
        self.move(_R2, _FRAME)
        self.add(0x07, to=_R2, value=key)
        self.call(_LOOK_UP)
        self.go_unless(_R0, 0, "found")

    def read_address(self, offset: int) -> None:
        """Keep the context in r6 and put six bytes of the frame on the stack; go to ``none`` for a shorter one."""
        self.store_value(_ADDRESS, 0)
        self.move(_R1, _R6)
        self.set(_R2, offset)
        self.move(_R3, _FRAME)
        self.add(0x07, to=_R3, value=_ADDRESS)
        self.set(_R4, _MAC_BYTES)
        self.call(_LOAD_BYTES)
        self.go_unless(_R0, 0, "none")

    def answer(self) -> None:
        """The two ends: no class, or the class that was found."""
        self.here("none")
        self.leave(0)
        self.here("found")
        self.load(_R0, _R0, 0, size=4)
        self.leave()

    def assembled(self) -> bytes:
        return b"".join(
            struct.pack("=BBhi", code, of << 4 | to, self.labels[label] - at - 1 if label else offset, _signed(value))
            for at, (code, to, of, offset, value, label) in enumerate(self.lines)
        )


def egress(*, owners: int, ledger: int, by_namespace: bool) -> bytes:
    """Return the classifier of the NIC's egress; ``owners`` and ``ledger`` are descriptors of maps."""
    code = _Code()
    code.move(_R6, _R1)
    code.use_map(_R1, ledger)
    code.read_address(_MAC_AT_SOURCE)
    if by_namespace:
        _by_namespace(code, owners)
    code.here("nobody")
    code.store_value(_KEY, ANY_NAMESPACE)
    code.look_up(owners, _KEY)
    code.answer()
    return code.assembled()


def _by_namespace(code: _Code, owners: int) -> None:
    code.load(_R7, _FRAME, _ADDRESS, size=8)
    code.load(_R1, _R6, _SOCKET, size=8)
    code.go_if(_R1, 0, "no socket")
    code.move(_R1, _R6)
    code.call(_NETNS_COOKIE)
    code.store(_KEY, _R0)
    code.look_up(owners, _KEY)
    code.store_value(_ADDRESS, 0)
    code.look_up(owners, _KEY)
    code.store(_ADDRESS, _R7)
    code.go("nobody")
    code.here("no socket")
    code.load(_R1, _R6, _INGRESS_IFINDEX, size=4)
    code.go_unless(_R1, 0, "nobody")
    code.store_value(_KEY, KERNEL_MADE)
    code.look_up(owners, _KEY)


def ingress(*, routes: int, ledger: int, group_class: int) -> bytes:
    """Return the classifier of the ifb; ``routes`` and ``ledger`` are descriptors of maps, ``group_class`` is for multicast and broadcast."""
    code = _Code()
    code.move(_R6, _R1)
    code.use_map(_R1, ledger)
    code.read_address(_MAC_AT_DESTINATION)
    code.load(_R1, _FRAME, _ADDRESS, size=1)
    code.add(0x57, to=_R1, value=1)
    code.go_unless(_R1, 0, "group")
    code.look_up(routes, _ADDRESS)
    code.answer()
    code.here("group")
    code.leave(group_class)
    return code.assembled()


def everything() -> bytes:
    """Matches every frame, with the class and actions the filter was given (-1)."""
    code = _Code()
    code.leave(-1)
    return code.assembled()


def guard() -> bytes:
    """Clears a priority that names a class, passes the frame on (TC_ACT_UNSPEC, -1). Priorities of the plain range stay."""
    code = _Code()
    code.load(_R2, _R1, _PRIORITY, size=4)
    code.add(0x77, to=_R2, value=16)
    code.go_if(_R2, 0, "passed")
    code.set(_R2, 0)
    code.add(0x63, to=_R1, of=_R2, offset=_PRIORITY)
    code.here("passed")
    code.leave(-1)
    return code.assembled()


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
