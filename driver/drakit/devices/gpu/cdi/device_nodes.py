"""The device nodes of the host: looked after, because containers and NVIDIA's programs need them and nothing else may have made them yet.

NVIDIA's kernel modules make no nodes; nvidia-modprobe does when a program asks for it, and not for MIG's. A node that is missing is made with its
numbers, and one whose numbers are those of an earlier boot is replaced. Anything else at its path is an error. Where this process may not make
nodes, the container's runtime makes them in the container, because the container's edits carry the numbers as well.
"""

import contextlib
import errno
import logging
import os
import pathlib
import stat
import threading
from collections.abc import Iterable

from drakit.core import edits, errors

_log = logging.getLogger(__name__)
_MODE = 0o666
_FOLDER_MODE = 0o755
_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def ensure(nodes: Iterable[edits.DeviceNode], root: pathlib.Path) -> None:
    """Let character devices be there below ``root``, by their paths; raises HardwareError for what is in the way."""
    for node in nodes:
        path = root / node.path.lstrip("/")
        try:
            _ensure(path, os.makedev(node.major or 0, node.minor or 0), node.file_mode or _MODE)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise errors.HardwareError("mknod", f"{path}: {error.strerror}") from error
            _log.debug("creating a device node is forbidden", extra={"path": str(path), "error": error.strerror})


def _ensure(path: pathlib.Path, number: int, mode: int) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == number:
            return
        if not stat.S_ISCHR(found.st_mode):
            raise errors.HardwareError("mknod", f"{path} is in the way: it is no character device")
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    _make(path, number, mode)


def _make(path: pathlib.Path, number: int, mode: int) -> None:
    """Make the node beside and rename it, so that nobody finds it without its mode."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    os.mknod(beside, mode | stat.S_IFCHR, number)
    try:
        beside.chmod(mode)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
