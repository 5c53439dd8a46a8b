"""A process that becomes a daemon only once its parent has written down its pid: run as a program of its own, with nothing imported but Python.

``python -I gate.py SHM PROGRAM ARGUMENT...`` waits for one byte on its standard input. At the end of input, which a parent's death brings about,
it ends, so no daemon runs that nobody knows of. Else it takes SHM as its own /dev/shm, in a mount namespace of its own, and becomes PROGRAM, with
the same pid and start time. SHM ``-`` leaves /dev/shm as it is.
"""

import ctypes
import os
import sys

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_FAILED = 125


def main(shm: str, command: list[str]) -> int:
    """Wait, then become the command; an exit status where that fails or is not wanted."""
    if not os.read(0, 1):
        return 0
    try:
        os.chdir("/")
        if shm != "-":
            _own_shm(shm)
        os.execv(command[0], command)  # noqa: S606 - becoming a program without a shell is the point
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    return _FAILED


def _own_shm(folder: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    _check(libc.mount(os.fsencode(folder), b"/dev/shm", None, _MS_BIND, None), "mount")


def _check(result: int, call: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
