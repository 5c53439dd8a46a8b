"""The folder of an MPS daemon's control sockets, which containers of the claim have as well, writable.

Root in such a container can put anything there: symbolic links, device nodes, sockets of its own. So nothing of it is trusted by its name. A daemon
starts in an empty folder, daemon and control program see the folder without symbolic links and device nodes (see ``gate``), and the control program
is started only while the daemon itself listens on the control socket, as the kernel says.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import stat
import struct

CONTROL_SOCKET = "control"
# The control socket of a driver 580 is SEQPACKET.
_KINDS = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM)
_CREDENTIALS = struct.Struct("3i")
_CONNECT_SECONDS = 1.0


def clear(folder: pathlib.Path) -> None:
    """Remove whatever is in the folder, following no symbolic link. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(descriptor):  # noqa: PTH208 - below a descriptor, not a path
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def listener(folder: pathlib.Path) -> int | None:
    """Return the pid of the process that listens on the folder's control socket, as the kernel recorded it.

    None where nobody listens, or where something other than a socket has that name. Nothing is sent.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / CONTROL_SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                return _peer(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    return None


def _peer(path: str) -> int | None:
    for kind in _KINDS:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as line:
            line.settimeout(_CONNECT_SECONDS)
            line.connect(path)
            pid: int = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
            return pid
    return None
