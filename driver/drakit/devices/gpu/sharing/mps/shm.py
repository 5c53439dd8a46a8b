"""Shared memory of one grant's MPS daemon and its clients: a tmpfs of its own on a folder, which a container gets as its /dev/shm.

On a disk, what containers write there would fill the node's disk, outlive the boot and be written back; in the host's own /dev/shm it would take room
from everybody else. A tmpfs of its own is bounded, its pages count as memory of the container that writes them, and it goes with the grant.

The runtime that gives it to containers lives on the host, so it has to be seen there: the mount below it must be shared with the host's (``shared``
in mountinfo, proc(5); ``mountPropagation: Bidirectional`` in a pod). Where it is not, the folder stays a plain one, which daemon and clients share as
well. Mounting takes CAP_SYS_ADMIN, as does the daemon's own /dev/shm.
"""

import ctypes
import os
import pathlib

from drakit.devices import mountinfo

_NOSUID, _NODEV, _NOEXEC, _DETACH = 2, 4, 8, 2
# Half of the machine's memory, which is what a tmpfs has by itself and what NVIDIA's driver gives: containers get no other /dev/shm.
_OPTIONS = b"mode=1777,size=50%"


def is_given(folder: pathlib.Path) -> bool:
    """Whether the folder has a mount of its own. One that is not there has none."""
    return os.path.ismount(folder)


def is_seen_by_host(folder: pathlib.Path) -> bool:
    """Whether what is mounted on the folder is seen beyond this mount namespace; not where mounts cannot be read."""
    try:
        mounts = mountinfo.read()
    except OSError:
        return False
    return is_shared(mounts, os.path.realpath(folder))


def is_shared(mounts: str, place: str) -> bool:
    """Whether a path lies on a shared mount, by the text of mountinfo."""
    longest, shared = -1, False
    for mount in mountinfo.parse(mounts):
        if len(mount.point) >= longest and _is_within(place, mount.point):
            longest, shared = len(mount.point), mount.is_shared
    return shared


def give(folder: pathlib.Path) -> bool:
    """Mount a tmpfs on the folder, unless it has one, which running containers may use; whether it has one then. Raises OSError."""
    if is_given(folder):
        return True
    if not is_seen_by_host(folder):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    flags = ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC)
    _check(libc.mount(b"drakit-mps", os.fsencode(folder), b"tmpfs", flags, _OPTIONS), "mount", folder)
    return True


def take(folder: pathlib.Path) -> None:
    """Unmount whatever is mounted on the folder; what still uses it keeps it until it ends. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    while is_given(folder):
        _check(libc.umount2(os.fsencode(folder), _DETACH), "umount", folder)


def _is_within(place: str, point: str) -> bool:
    return point in {"/", place} or place.startswith(f"{point}/")


def _check(result: int, call: str, folder: pathlib.Path) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}", str(folder))
