"""BPF programs that do nothing, attached to interfaces as a pod's root may attach them, with system calls of its own."""

import ctypes
import errno
import os
import struct

from fakes import netns, nic_network

XDP, SCHED_CLS = 6, 3
AT_XDP, AT_TCX_INGRESS = 37, 46
_PROG_LOAD, _PROG_ATTACH, _LINK_CREATE = 5, 8, 28
_BPF = 321
_PASS = struct.pack("=BBhi", 0xB7, 0, 0, 2) + struct.pack("=BBhi", 0x95, 0, 0, 0)


def load(kind: int) -> int:
    """The descriptor of a program that lets everything pass."""
    code, license_text = ctypes.create_string_buffer(_PASS, len(_PASS)), ctypes.create_string_buffer(b"GPL")
    return _bpf(
        _PROG_LOAD, struct.pack("=IIQQIIQ", kind, 2, ctypes.addressof(code), ctypes.addressof(license_text), 0, 0, 0).ljust(72, b"\0")
    )


def link(space: netns.Namespace, program: int, ifindex: int, at: int) -> int:
    """Attach a program by a link; its descriptor."""
    return nic_network.inside(space, lambda: _bpf(_LINK_CREATE, struct.pack("=IIII", program, ifindex, at, 0).ljust(64, b"\0")))


def attach(space: netns.Namespace, program: int, ifindex: int, at: int) -> None:
    """Attach a program without a link."""
    nic_network.inside(space, lambda: _bpf(_PROG_ATTACH, struct.pack("=IIII", ifindex, program, at, 0).ljust(32, b"\0")))


def _bpf(command: int, body: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(_BPF, command, ctypes.create_string_buffer(body, len(body)), len(body))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf: {errno.errorcode[ctypes.get_errno()]} {os.strerror(ctypes.get_errno())}")
    return result
