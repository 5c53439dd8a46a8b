"""The folder of one grant's MPS daemon: its ``pipe`` (what clients connect to), its ``shm`` (what it has as /dev/shm, and its clients too) and its
``log``.

The folder's name is made of the grant, so that it can be found again knowing nothing else. It and the folder above have mode 0700; what lies in them
is open to users inside containers, who reach it by mounts alone.
"""

import hashlib
import logging
import pathlib
import shutil

from drakit.core import edits
from drakit.devices.gpu.sharing.mps import shm

PIPE, SHM, LOG = "pipe", "shm", "log"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
PIPE_IN_CONTAINER = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for the daemon; a mount of the claim's own folder
_SHM_IN_CONTAINER = "/dev/shm"  # noqa: S108 - where CUDA shares memory with the daemon; a mount of the claim's own folder
_MOUNT = ("rw", "nosuid", "nodev", "bind")
_PRIVATE, _OPEN, _STICKY = 0o700, 0o755, 0o1777

_log = logging.getLogger(__name__)


def of(home: pathlib.Path, grant: str) -> pathlib.Path:
    """Return the path of a grant's folder."""
    return home / hashlib.sha256(grant.encode()).hexdigest()[:16]


def make(folder: pathlib.Path) -> None:
    """Create the folder with all that belongs into it; what is there stays. Raises OSError."""
    folder.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    for name, mode in ((PIPE, _OPEN), (SHM, _STICKY), (LOG, _PRIVATE)):
        place = folder / name
        place.mkdir(exist_ok=True)
        place.chmod(mode)


def give_memory(folder: pathlib.Path) -> None:
    """Mount a tmpfs on the folder's ``shm`` where the host can see it. Raises OSError."""
    if not shm.give(folder / SHM):
        _log.warning("MPS shared memory is on disk: mounts are not shared with the host", extra={"path": str(folder / SHM)})


def remove(folder: pathlib.Path) -> None:
    """Remove the folder. Raises OSError."""
    shm.take(folder / SHM)
    shutil.rmtree(folder)


def access(folder: pathlib.Path) -> edits.Edits:
    """Return what a container gets to use the daemon of this folder."""
    places = {PIPE: PIPE_IN_CONTAINER, SHM: _SHM_IN_CONTAINER}
    mounts = (edits.Mount(host_path=str(folder / name), container_path=place, options=_MOUNT) for name, place in places.items())
    return edits.Edits(env={PIPE_VARIABLE: PIPE_IN_CONTAINER}, mounts=tuple(mounts))
