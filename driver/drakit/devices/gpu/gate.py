"""A process that becomes a program of MPS in a mount namespace of its own: run as a program of its own, with nothing imported but Python.

``python -I gate.py WHEN PIPE SHM PROGRAM ARGUMENT...``, where WHEN is ``open`` or ``shut``. A shut gate first waits for one byte on its standard
input. At the end of input, which a parent's death brings about, it ends, so no daemon runs that nobody knows of. Then it becomes PROGRAM, with the
same pid and start time.

Containers can write to the folders PIPE and SHM. In the mount namespace neither has symbolic links (from Linux 5.10 on) nor device nodes that can be
opened, so a program that runs as root cannot be led elsewhere by what a container puts there. SHM is also what the program has as /dev/shm. ``-`` in
place of a folder leaves it out; without both there is no mount namespace.
"""

import ctypes
import os
import sys

_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_NOSYMFOLLOW = 1 << 1, 1 << 2, 1 << 3, 1 << 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
_GUARDED = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_NOSYMFOLLOW
_NONE = "-"
_FAILED = 125


def main(when: str, pipe: str, shm: str, command: list[str]) -> int:
    """Wait, then become the command; return an exit status where that fails or is not wanted."""
    if when == "shut" and not os.read(0, 1):
        return 0
    try:
        os.chdir("/")
        mounts = [(folder, place) for folder, place in ((pipe, pipe), (shm, "/dev/shm")) if folder != _NONE]  # noqa: S108 - in its own namespace
        if mounts:
            _mount(mounts)
        os.execv(command[0], command)  # noqa: S606 - becoming a program without a shell is the point
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    return _FAILED


def _mount(mounts: list[tuple[str, str]]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    for folder, place in mounts:
        _check(libc.mount(os.fsencode(folder), os.fsencode(place), None, _MS_BIND, None), "mount")
        # An older kernel ignores a flag that it does not know.
        _check(libc.mount(b"none", os.fsencode(place), None, _GUARDED, None), "mount")


def _check(result: int, call: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
