"""The folder of one grant's MPS daemon: its ``pipe`` (where clients connect), its ``shm`` (the /dev/shm of daemon and clients) and its ``log``.

The folder's name is derived from the grant, so a restarted driver finds it. The folder and the one above have mode 0700. Users inside containers
reach the pipe and the shared memory through mounts alone.

``shm`` is a tmpfs of its own. On a disk, what containers write would fill the node's disk, outlive the boot and be written back; in the host's
/dev/shm it would take space from all other processes. A tmpfs is bounded, its pages count as memory of the container that writes them, and it is
removed with the grant. The container runtime lives on the host, so the mount has to be visible there: the mount below it must be shared with the host
(``shared`` in mountinfo, proc(5); ``mountPropagation: Bidirectional`` in a pod). Where it is not, ``shm`` stays a plain folder. Mounting takes
CAP_SYS_ADMIN.

``pipe`` is writable for containers of the claim, and root in one of them can put anything there: symbolic links, device nodes, sockets of its own.
So no file in it is trusted. A daemon starts in an empty folder; daemon and control program see it without symbolic links and device nodes
(see ``launcher``); the control program starts only while the daemon itself listens on the control socket, according to the kernel.
"""

import contextlib
import ctypes
import errno
import hashlib
import os
import pathlib
import shutil
import socket
import stat
import struct

import drakit
from drakit import mountinfo

PIPE, SHM, LOG = "pipe", "shm", "log"
CONTROL_SOCKET = "control"
_SOCKET_PATH_MAX = 107
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
PIPE_IN_CONTAINER = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for the daemon; a mount of the claim's own folder
_SHM_IN_CONTAINER = "/dev/shm"  # noqa: S108 - where CUDA shares memory with the daemon; a mount of the claim's own folder
_MOUNT = ("rw", "nosuid", "nodev", "bind")
_PRIVATE, _OPEN, _STICKY = 0o700, 0o755, 0o1777
_NOSUID, _NODEV, _NOEXEC, _DETACH = 2, 4, 8, 2
# Half of the machine's memory, which is what a tmpfs has by itself and what NVIDIA's driver gives: containers get no other /dev/shm.
_SHM_OPTIONS = b"mode=1777,size=50%"
# The control socket of a driver 580 is SEQPACKET.
_KINDS = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM)
_CREDENTIALS = struct.Struct("3i")
_CONNECT_SECONDS = 1.0

_log = drakit.get_logger(__name__)


def name_of(grant: str) -> str:
    """Return the name of a grant's folder."""
    return hashlib.sha256(grant.encode()).hexdigest()[:16]


def variable(folder: pathlib.Path) -> str:
    """Return the ``NAME=value`` that all processes of the folder's daemon have in their environment."""
    return f"{PIPE_VARIABLE}={folder / PIPE}"


def create(folder: pathlib.Path) -> None:
    """Create the folder and its sub-folders. Existing ones stay. Raises OSError, also where the path is too long for the daemon's socket."""
    path = folder / PIPE / CONTROL_SOCKET
    if (length := len(os.fsencode(path))) > _SOCKET_PATH_MAX:
        reason = f"the socket path {path} has {length} bytes and the kernel takes {_SOCKET_PATH_MAX}; choose a shorter node.plugins_dir"
        raise OSError(errno.ENAMETOOLONG, reason)
    folder.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    for name, mode in ((PIPE, _OPEN), (SHM, _STICKY), (LOG, _PRIVATE)):
        place = folder / name
        place.mkdir(exist_ok=True)
        place.chmod(mode)


def mount_shared_memory(folder: pathlib.Path) -> None:
    """Mount a tmpfs on the folder's ``shm`` where the host can see it, unless it has one, which running containers may use. Raises OSError."""
    place = folder / SHM
    if is_shm_mounted(place):
        return
    try:
        is_visible = is_shared_mount(mountinfo.read(), os.path.realpath(place))
    except OSError:
        is_visible = False
    if not is_visible:
        _log.warning("MPS shared memory is on disk: mounts are not shared with the host", path=str(place))
        return
    libc = ctypes.CDLL(None, use_errno=True)
    flags = ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC)
    _check(libc.mount(b"drakit-mps", os.fsencode(place), b"tmpfs", flags, _SHM_OPTIONS), "mount", place)


def remove(folder: pathlib.Path) -> None:
    """Remove the folder. Raises OSError."""
    unmount_shm(folder / SHM)
    shutil.rmtree(folder)


def access(folder: pathlib.Path) -> drakit.Edits:
    """Return the edits that connect a container to the daemon of this folder."""
    places = {PIPE: PIPE_IN_CONTAINER, SHM: _SHM_IN_CONTAINER}
    mounts = (drakit.Mount(host_path=str(folder / name), container_path=place, options=_MOUNT) for name, place in places.items())
    return drakit.Edits(env={PIPE_VARIABLE: PIPE_IN_CONTAINER}, mounts=tuple(mounts))


def is_shm_mounted(folder: pathlib.Path) -> bool:
    """Return whether the folder has a mount of its own. A missing folder has none."""
    return os.path.ismount(folder)


def is_shared_mount(mounts: str, place: str) -> bool:
    """Return whether a path is on a shared mount, by the text of mountinfo."""
    longest, shared = -1, False
    for mount in mountinfo.parse(mounts):
        if len(mount.point) >= longest and _is_within(place, mount.point):
            longest, shared = len(mount.point), mount.is_shared
    return shared


def unmount_shm(folder: pathlib.Path) -> None:
    """Unmount all mounts on the folder. A process that still uses one keeps it until the process ends. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    while is_shm_mounted(folder):
        _check(libc.umount2(os.fsencode(folder), _DETACH), "umount", folder)


def _is_within(place: str, point: str) -> bool:
    return point in {"/", place} or place.startswith(f"{point}/")


def _check(result: int, call: str, folder: pathlib.Path) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}", str(folder))


def clear_pipe(folder: pathlib.Path) -> None:
    """Remove the content of the folder. Symbolic links are not followed. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(descriptor):  # noqa: PTH208 - below a descriptor, not a path
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def control_listener(folder: pathlib.Path) -> int | None:
    """Return the pid of the process that listens on the folder's control socket, as the kernel recorded it.

    None if no process listens, or if a file of that name is not a socket. Nothing is sent.
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
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            connection.connect(path)
            pid: int = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
            return pid
    return None
