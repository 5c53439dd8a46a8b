"""Where the official client puts the certificates and keys that a kubeconfig holds, because TLS libraries read them from files only.

A folder of this process's own, mode 0700, which goes when the process ends. What a process leaves that was killed is removed by the next one that
needs such a folder: a living owner holds an flock on its folder.
"""

import atexit
import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import tempfile

PREFIX = "drakit-keys-"


@functools.cache
def folder() -> pathlib.Path | None:
    """The folder of this process, made at the first call; None where no temporary file can be made, which only some kubeconfigs need.

    One for all clients: the official client writes equal content once.
    """
    with contextlib.suppress(OSError):
        parent = pathlib.Path(tempfile.gettempdir())
        sweep(parent)
        while True:
            made = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            if _hold(made):
                atexit.register(shutil.rmtree, made, ignore_errors=True)
                return made
    return None


def sweep(parent: pathlib.Path) -> None:
    """Remove the folders of processes that are no more; those of other users are left alone."""
    for found in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if found.lstat().st_uid == os.getuid() and not found.is_symlink():
                _remove_unheld(found)


def _hold(made: pathlib.Path) -> bool:
    """Lock a folder until this process ends; False where a sweeper was faster and has removed it."""
    try:
        descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except FileNotFoundError:
        return False
    if made.exists():
        return True
    os.close(descriptor)
    return False


def _remove_unheld(found: pathlib.Path) -> None:
    descriptor = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(found)
    finally:
        os.close(descriptor)
