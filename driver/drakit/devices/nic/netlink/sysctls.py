"""Writes sysctls of an interface in another network namespace.

/proc/sys/net shows the namespace of whoever looks, so a thread of its own goes there and ends. Container runtimes mount /proc/sys read-only for all
but privileged containers; then the thread leaves the mount namespace too and makes its own view writable, which takes CAP_SYS_ADMIN and changes
nothing for others. Raises OSError.
"""

import concurrent.futures
import ctypes
import errno
import os
import pathlib
from collections.abc import Mapping

from drakit.devices.nic.netlink import rtnetlink

_NET = pathlib.Path("/proc/sys/net")
_ROOT = b"/proc/sys"
_CLONE_NEWNS = 0x00020000
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18


def write(descriptor: int, interface: str, wanted: Mapping[str, int]) -> None:
    """Write values by name (``ipv4.arp_ignore``) for an interface of the namespace that is open as ``descriptor``."""
    if wanted:
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(_write_inside, descriptor, interface, wanted).result()


def _write_inside(descriptor: int, interface: str, wanted: Mapping[str, int]) -> None:
    """Must be called in a thread that ends afterwards: it stays in the namespace."""
    rtnetlink.enter(descriptor)
    try:
        _write_all(interface, wanted)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        _make_writable()
        _write_all(interface, wanted)


def _write_all(interface: str, wanted: Mapping[str, int]) -> None:
    for name, value in wanted.items():
        (_NET / _path(name, interface)).write_text(f"{value}\n", "ascii")


def _path(name: str, interface: str) -> str:
    """Return the file of a sysctl below /proc/sys/net: ``ipv4/conf/net1/arp_ignore``."""
    family, _, leaf = name.partition(".")
    return f"{family}/conf/{interface}/{leaf}"


def _make_writable() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(_CLONE_NEWNS), "unshare")
    _checked(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount")
    _checked(libc.mount(None, _ROOT, None, ctypes.c_ulong(_MS_REMOUNT | _MS_BIND), None), "remount /proc/sys")


def _checked(result: int, call: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
