"""Create the device nodes of GPUs in /dev where they are missing.

NVIDIA's kernel modules create none. nvidia-modprobe does when a program asks for one, but not for MIG. ``ensure_device_nodes`` creates a
node that is missing, and replaces one with the numbers of an earlier boot. Any other file at that path is an error. Where this process may not create
nodes, the container runtime creates them in the container, because the container's edits carry the numbers. Each node gets its link
dev/char/MAJOR:MINOR, as udev creates for other drivers: without it, some versions of runc leave the device out of the container's systemd unit, and
``systemctl daemon-reload`` takes it from the running container.
"""

import contextlib
import errno
import os
import pathlib
import stat
import threading
from collections.abc import Iterable

import drakit

_log = drakit.get_logger(__name__)
_MODE = 0o666
_FOLDER_MODE = 0o755
_LINKS = "dev/char"
_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def ensure_device_nodes(nodes: Iterable[drakit.DeviceNode], root: pathlib.Path) -> None:
    """Create missing device nodes below ``root`` and their links in dev/char; raises HardwareError for another file in a node's place."""
    for node in nodes:
        path, number = root / node.path.lstrip("/"), os.makedev(node.major or 0, node.minor or 0)
        try:
            earlier = _ensure_node(path, number, node.file_mode or _MODE)
            if earlier is not None:
                _remove_link(path, root, earlier)
            _ensure_link(path, root, number)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise drakit.HardwareError("mknod", f"{path}: {error.strerror}") from error
            _log.debug("device node creation forbidden", path=str(path), error=error.strerror)


def has_link(node: drakit.DeviceNode, root: pathlib.Path) -> bool:
    """Return whether dev/char below ``root`` leads to the node."""
    number = os.makedev(node.major or 0, node.minor or 0)
    return _leads_to(_link_of(root, number), root, number)


def _ensure_node(path: pathlib.Path, number: int, mode: int) -> int | None:
    """Create a missing node; return the number of the node that it replaces, None if there was none."""
    earlier: int | None = None
    try:
        status = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == number:
            return None
        if not stat.S_ISCHR(status.st_mode):
            raise drakit.HardwareError("mknod", f"{path} is in the way: it is not a character device")
        earlier = status.st_rdev
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    _create_node(path, number, mode)
    return earlier


def _link_of(root: pathlib.Path, number: int) -> pathlib.Path:
    return root / _LINKS / f"{os.major(number)}:{os.minor(number)}"


def _target(path: pathlib.Path, root: pathlib.Path) -> str:
    return f"../{path.relative_to(root / 'dev')}"


def _is_device(path: str, number: int) -> bool:
    """Return whether a path leads to a node with this number."""
    try:
        status = os.stat(path)  # noqa: PTH116 - every prepare looks at all links, and a Path costs more than the call
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == number


def _leads_to(link: pathlib.Path, root: pathlib.Path, number: int) -> bool:
    """Return whether a link leads to a node with this number. An absolute link, such as NVIDIA's, begins at ``root``."""
    try:
        target = link.readlink()
    except OSError:
        return False
    return _is_device(str(root / str(target).lstrip("/") if target.is_absolute() else link.parent / target), number)


def _ensure_link(path: pathlib.Path, root: pathlib.Path, number: int) -> None:
    """Link a node in dev/char, as udev does for devices of other drivers. A link that leads to such a node is kept, and so is any other file."""
    if _is_device(f"{root}/{_LINKS}/{os.major(number)}:{os.minor(number)}", number):
        return
    link = _link_of(root, number)
    if _leads_to(link, root, number):
        return
    if not link.is_symlink() and link.exists():
        _log.warning("device link not created: another file is in the way", path=str(link))
        return
    link.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    beside = _beside(link)
    beside.symlink_to(_target(path, root))
    try:
        beside.replace(link)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _remove_link(path: pathlib.Path, root: pathlib.Path, number: int) -> None:
    """Remove the link of a node's earlier number, where the link is ours."""
    link = _link_of(root, number)
    with contextlib.suppress(FileNotFoundError):
        if link.is_symlink() and str(link.readlink()) == _target(path, root):
            link.unlink()


def _create_node(path: pathlib.Path, number: int, mode: int) -> None:
    """Create the node under a temporary name and rename it, so that it always has its mode."""
    beside = _beside(path)
    os.mknod(beside, mode | stat.S_IFCHR, number)
    try:
        beside.chmod(mode)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _beside(path: pathlib.Path) -> pathlib.Path:
    """Return a temporary name beside a file, which no other thread uses."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    beside.unlink(missing_ok=True)
    return beside
