"""The settings of one interface below /proc/sys/net (``net.ipv4.conf``, ``net.ipv6.conf``), read and written in any network namespace.

/proc/sys/net shows the namespace of the calling thread, so a separate thread enters that namespace, writes and ends. Container runtimes mount
/proc/sys read-only for unprivileged containers. Then the thread also leaves the mount namespace and makes its own view writable, which needs
CAP_SYS_ADMIN and changes nothing for other processes. Names are like ``ipv4.arp_ignore``. Functions raise OSError.
"""

import contextlib
import ctypes
import errno
import functools
import os
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping

from drakit_nic import sysctls
from drakit_nic.netlink import namespaces

_NET = "/proc/sys/net"
_VALUE_BYTES = 256
_NOT_WRITABLE = frozenset({"mc_forwarding"})
_FAMILIES = ("ipv4", "ipv6")
_ROOT = b"/proc/sys"
_CLONE_NEWNS = 0x00020000
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18


def write(descriptor: int, interface: str, wanted: Mapping[str, int], *, may_lack: Collection[str] = ()) -> None:
    """Write settings of an interface in the namespace that is open as ``descriptor``, so that they take effect.

    Where ``all`` of the namespace would raise the effective value, its value is moved to all other interfaces first, so they keep theirs. A setting
    that this kernel does not have is skipped if its name is in ``may_lack``.
    """
    if wanted:
        _run_writable(descriptor, functools.partial(_write_effective, interface, wanted, may_lack))


def read_own(namespace: str | int | None, interface: str) -> Mapping[str, str]:
    """Return the writable settings of an interface that differ from the namespace's ``default``. ``namespace`` as to ``namespaces.run_in``."""

    def work() -> Mapping[str, str]:
        defaults = dict(_values("default"))
        return {name: value for name, value in _values(interface) if value != defaults.get(name)}

    return namespaces.run_in(namespace, work)


def differing(namespace: str | int | None, interface: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """Return the wanted value of each setting that is neither as in ``own`` nor, for the others, the namespace's ``default``."""
    return namespaces.run_in(namespace, functools.partial(_differing, interface, own))


def restore(descriptor: int, interface: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """Write the settings that ``differing`` returns, and return the error of each that fails, by its name."""
    failed: dict[str, str] = {}

    def work() -> None:
        failed.clear()
        for name, value in _differing(interface, own).items():
            try:
                _put(_path(name, interface), value)
            except OSError as error:
                if error.errno == errno.EROFS:
                    raise
                failed[name] = error.strerror or str(error)

    _run_writable(descriptor, work)
    return failed


def _differing(interface: str, own: Mapping[str, str]) -> dict[str, str]:
    wanted = {**dict(_values("default")), **own}
    return {name: wanted[name] for name, value in _values(interface) if value != wanted.get(name, value)}


def _run_writable(descriptor: int, work: Callable[[], None]) -> None:
    """Run ``work`` in the namespace of the descriptor, with /proc/sys writable."""

    def inside() -> None:
        try:
            work()
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            _make_writable()
            work()

    namespaces.run_in(descriptor, inside)


def _values(interface: str) -> Iterator[tuple[str, str]]:
    for family in _FAMILIES:
        folder = pathlib.Path(_NET, family, "conf", interface)
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            # A stable_secret that is not set cannot be read.
            with contextlib.suppress(OSError):
                if file.name not in _NOT_WRITABLE:
                    yield f"{family}.{file.name}", _get(str(file))


def _write_effective(interface: str, wanted: Mapping[str, int], may_lack: Collection[str]) -> None:
    for name, value in wanted.items():
        try:
            _put(_path(name, interface), str(value))
            if name in sysctls.TABLE and sysctls.TABLE[name].raised_by_all:
                _lower_all(name, interface, value)
        except OSError as error:
            if name not in may_lack or error.errno != errno.ENOENT:
                raise OSError(error.errno, f"{name} {value}: {error.strerror or error}") from error


def _lower_all(name: str, interface: str, value: int) -> None:
    """Set ``all`` to ``value`` where it is larger, after every other interface, and ``default`` for later ones, got at least its present value."""
    shared = _path(name, "all")
    former = int(_get(shared))
    if former <= value:
        return
    # The kernel copies a new ``default`` to each interface whose own value was never written, so a value that is right already is written too.
    _write(_path(name, interface), str(value))
    for folder in pathlib.Path(shared).parents[1].iterdir():
        if folder.name not in {"all", interface}:
            file = _path(name, folder.name)
            with contextlib.suppress(FileNotFoundError):  # The interface was deleted meanwhile.
                _put(file, str(max(int(_get(file)), former)))
    _put(shared, str(value))


def _put(file: str, value: str) -> None:
    """Write a value unless the file has it, because some writes have side effects or wait for the kernel's lock."""
    if _get(file) != value:
        _write(file, value)


def _write(file: str, value: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{value}\n".encode("ascii"))
    finally:
        os.close(descriptor)


def _get(file: str) -> str:
    """Return the value in a file. An attach reads dozens of them, so this uses plain system calls."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _VALUE_BYTES).decode("ascii").strip()
    finally:
        os.close(descriptor)


def _path(name: str, interface: str) -> str:
    """Return the file of a setting: ``ipv4/conf/net1/arp_ignore`` below /proc/sys/net."""
    family, _, leaf = name.partition(".")
    return f"{_NET}/{family}/conf/{interface}/{leaf}"


def _make_writable() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _raise_on_failure(libc.unshare(_CLONE_NEWNS), "unshare")
    _raise_on_failure(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount")
    _raise_on_failure(libc.mount(None, _ROOT, None, ctypes.c_ulong(_MS_REMOUNT | _MS_BIND), None), "remount /proc/sys")


def _raise_on_failure(result: int, call: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
