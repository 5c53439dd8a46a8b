"""bpf(2) without a compiler or a library: hash maps, programs for traffic control, and the maps that a loaded program uses.

Layouts: ``union bpf_attr``, ``struct bpf_prog_info`` and ``struct bpf_map_info`` of linux/bpf.h. The caller closes every returned
descriptor. Errors are OSError; for a program that the kernel refuses, the error has the last line of the verifier's log.
"""

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

_SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _LOOKUP, _UPDATE, _DELETE, _NEXT, _LOAD = range(6)
_PROGRAM_BY_ID, _MAP_BY_ID, _DESCRIBE, _BATCH = 13, 14, 15, 24
_DETACH, _QUERY, _LINK_BY_ID, _NEXT_LINK, _DETACH_LINK = 9, 16, 30, 31, 34
TCX_INGRESS, TCX_EGRESS = 46, 47
_TCX_MAX, _TCX_COUNT_AT = 64, 24
_XDP_LINK, _LINK_BYTES = 6, 64
_BATCH_ENTRIES = 4096
_BATCH_COUNT_AT = 32
_HASH = 1
_NO_PREALLOC = 1
_SCHED_CLS = 3
_MAPS_MAX = 8
_LOG_BYTES = 1 << 16
_LICENSE = b"Dual MIT/GPL\0"
"""The license of the programs (see ``classifiers``), by which the kernel decides which helpers they may call."""
_NAME_BYTES = 15
_PROGRAM_BYTES, _NR_MAPS_AT, _MAPS_AT = 80, 52, 56
_MAP_BYTES, _MAP_NAME_AT = 40, 24

NOT_EXISTING = 1


def create_map(name: str, *, key: int, value: int, entries: int) -> int:
    """Create a hash map and return its descriptor. Sizes are in bytes. The map's memory grows with its entries."""
    body = struct.pack("=IIIIIII16s", _HASH, key, value, entries, _NO_PREALLOC, 0, 0, name.encode()[:_NAME_BYTES])
    return _bpf(_MAP_CREATE, body)


def look_up(descriptor: int, key: bytes, size: int) -> bytes | None:
    """Return the value of a key, None if the map has no such key."""
    value = ctypes.create_string_buffer(size)
    return None if _element(_LOOKUP, descriptor, key, value) == errno.ENOENT else value.raw


def update(descriptor: int, key: bytes, value: bytes, flags: int = 0) -> bool:
    """Set a key's value and return True, or return False when the key exists and ``flags`` is NOT_EXISTING."""
    return _element(_UPDATE, descriptor, key, ctypes.create_string_buffer(value, len(value)), flags) != errno.EEXIST


def delete(descriptor: int, key: bytes) -> None:
    """Delete a key, if it exists."""
    _element(_DELETE, descriptor, key, None)


def keys(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield all keys. A key deleted meanwhile can make the kernel start over, so the caller must expect a key more than once."""
    following = ctypes.create_string_buffer(size)
    key: bytes | None = None
    while _element(_NEXT, descriptor, key, following) != errno.ENOENT:
        key = following.raw
        yield key


def entries(descriptor: int, key: int, value: int) -> dict[bytes, bytes]:
    """Return all keys with their values. Sizes are in bytes. Linux 5.6 and later returns many entries at a time."""
    try:
        return dict(_batches(descriptor, key, value))
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise
    contents = {name: look_up(descriptor, name, value) for name in set(keys(descriptor, key))}
    return {name: content for name, content in contents.items() if content is not None}


def _batches(descriptor: int, key: int, value: int) -> Iterator[tuple[bytes, bytes]]:
    names, contents = (ctypes.create_string_buffer(_BATCH_ENTRIES * size) for size in (key, value))
    position = ctypes.create_string_buffer(max(key, 4))
    at, last = 0, False
    while not last:
        addresses = (at, *map(ctypes.addressof, (position, names, contents)))
        request = bytearray(struct.pack("=QQQQIIQQ", *addresses, _BATCH_ENTRIES, descriptor, 0, 0))
        try:
            _bpf_in_place(_BATCH, request)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            last = True
        count = struct.unpack_from("=I", request, _BATCH_COUNT_AT)[0]
        for number in range(count):
            yield names.raw[number * key : (number + 1) * key], contents.raw[number * value : (number + 1) * value]
        at = ctypes.addressof(position)


def load(name: str, program: bytes) -> int:
    """Load a program for traffic control and return its descriptor. Raises OSError, with the last line of the verifier's log."""
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
    """Return descriptors of the maps that a loaded program uses, by name, empty where the program does not exist."""
    try:
        with program(program_id) as descriptor:
            map_ids = _map_ids(descriptor)
    except FileNotFoundError:
        return {}
    opened: dict[str, int] = {}
    with contextlib.ExitStack() as on_error:
        for map_number in map_ids:
            with contextlib.ExitStack() as unless_kept:
                map_descriptor = _bpf(_MAP_BY_ID, struct.pack("=III", map_number, 0, 0))
                unless_kept.callback(os.close, map_descriptor)
                # A program of others may use two maps of one name.
                if opened.setdefault(_name_of(map_descriptor), map_descriptor) == map_descriptor:
                    on_error.push(unless_kept.pop_all())
        on_error.pop_all()
    return opened


def map_id(descriptor: int) -> int:
    """Return the kernel's id of a map, which is equal for two descriptors of one map."""
    number: int = struct.unpack_from("=I", _describe(descriptor, bytes(_MAP_BYTES)), 4)[0]
    return number


def program(program_id: int) -> contextlib.AbstractContextManager[int]:
    """Yield a descriptor of a loaded program."""
    return _opened(_PROGRAM_BY_ID, program_id)


@contextlib.contextmanager
def _opened(command: int, number: int) -> Iterator[int]:
    """Yield a descriptor of the program or link with this number of the kernel."""
    descriptor = _bpf(command, struct.pack("=III", number, 0, 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def tcx_programs(ifindex: int, attach_type: int) -> tuple[int, ...]:
    """Return the ids of the tcx programs of an interface of the calling thread's namespace, in order. Linux before 6.6 refuses it."""
    return tuple(present for present, _ in _tcx(ifindex, attach_type))


def detach_tcx(ifindex: int, attach_type: int, program_id: int) -> None:
    """Detach a tcx program from an interface of the calling thread's namespace, also where a link holds it."""
    for present, link in _tcx(ifindex, attach_type):
        if present == program_id:
            if link:
                _detach_link(link)
                continue
            with program(program_id) as descriptor:
                _bpf(_DETACH, struct.pack("=IIIIIIQ", ifindex, descriptor, attach_type, 0, 0, 0, 0))


def detach_xdp_links(ifindex: int, program_id: int) -> None:
    """Detach the links that hold a program of XDP on an interface. Its index may be that of an interface of another namespace too."""
    request = bytearray(struct.pack("=III", 0, 0, 0))
    while True:
        try:
            _bpf_in_place(_NEXT_LINK, request)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        link = struct.unpack_from("=I", request, 4)[0]
        struct.pack_into("=I", request, 0, link)
        with contextlib.suppress(FileNotFoundError):  # The link ended meanwhile.
            if _is_xdp_link(link, ifindex, program_id):
                _detach_link(link)


def _is_xdp_link(link: int, ifindex: int, program_id: int) -> bool:
    with _opened(_LINK_BY_ID, link) as descriptor:
        kind, _, present, _, index = struct.unpack_from("=IIIII", _describe(descriptor, bytes(_LINK_BYTES)))
    return bool((kind, present, index) == (_XDP_LINK, program_id, ifindex))


def _detach_link(link: int) -> None:
    with _opened(_LINK_BY_ID, link) as descriptor:
        _bpf(_DETACH_LINK, struct.pack("=I", descriptor))


def _tcx(ifindex: int, attach_type: int) -> tuple[tuple[int, int], ...]:
    """Return the id of each tcx program, with the id of the link that holds it, 0 for none."""
    program_ids, links = ((ctypes.c_uint32 * _TCX_MAX)() for _ in range(2))
    addresses = (ctypes.addressof(program_ids), _TCX_MAX, 0, 0, ctypes.addressof(links), 0, 0)
    request = bytearray(struct.pack("=IIIIQIIQQQQ", ifindex, attach_type, 0, 0, *addresses))
    _bpf_in_place(_QUERY, request)
    count = struct.unpack_from("=I", request, _TCX_COUNT_AT)[0]
    return tuple(zip(program_ids[:count], links[:count], strict=True))


def _map_ids(program: int) -> tuple[int, ...]:
    map_ids = (ctypes.c_uint32 * _MAPS_MAX)()
    request = bytearray(_PROGRAM_BYTES)
    struct.pack_into("=IQ", request, _NR_MAPS_AT, _MAPS_MAX, ctypes.addressof(map_ids))
    count = struct.unpack_from("=I", _describe(program, bytes(request)), _NR_MAPS_AT)[0]
    return tuple(map_ids[:count])


def _name_of(descriptor: int) -> str:
    return _describe(descriptor, bytes(_MAP_BYTES))[_MAP_NAME_AT:].split(b"\0", 1)[0].decode(errors="replace")


def _describe(descriptor: int, request: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(request, len(request))
    _bpf(_DESCRIBE, struct.pack("=IIQ", descriptor, len(request), ctypes.addressof(buffer)))
    return buffer.raw


def _element(command: int, descriptor: int, key: bytes | None, value: "ctypes.Array[ctypes.c_char] | None", flags: int = 0) -> int:
    """Call bpf(2) on a map's element. Return 0, or ENOENT or EEXIST."""
    key_buffer = ctypes.create_string_buffer(key, len(key)) if key is not None else None
    addresses = (ctypes.addressof(buffer) if buffer is not None else 0 for buffer in (key_buffer, value))
    try:
        _bpf(command, struct.pack("=IIQQQ", descriptor, 0, *addresses, flags))
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.EEXIST}:
            raise
        return error.errno or 0
    return 0


def _bpf(command: int, body: bytes) -> int:
    return _bpf_in_place(command, bytearray(body))


def _bpf_in_place(command: int, body: bytearray) -> int:
    """Call bpf(2) and return its result. The kernel writes its answer into ``body``."""
    if _SYSCALL is None:
        raise OSError(errno.ENOSYS, f"bpf: the system call number on {platform.machine()} is unknown")
    result = int(_LIBC.syscall(_SYSCALL, command, (ctypes.c_char * len(body)).from_buffer(body), len(body)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf: {os.strerror(code)}")
    return result


_SYSCALL = _SYSCALLS.get(platform.machine())
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
