"""The program that starts MPS programs in a mount namespace of their own. It runs as a script and imports only the standard library.

``python -IS launcher.py PIPE SHM PROGRAM ARGUMENT...`` execs PROGRAM, with the same pid. SHM is ``-`` for a program that only connects to the daemon.

Containers can write to the folders PIPE and SHM. In the mount namespace, neither has symbolic links (from Linux 5.10 on) or usable device nodes, so
a program that runs as root cannot be redirected by files of a container. SHM is also the program's /dev/shm.

A daemon starts its servers under the user id of its clients. They need PIPE, and the folder ``log`` beside it, below folders that are closed to all
users but root. So in the mount namespace of a daemon (with SHM), the outermost closed folder is replaced by an empty one that contains only these
two. The host's folders stay closed. Where PROGRAM is below the closed folder, the folder is not replaced, and only root can use the daemon.
"""

import ctypes
import os
import stat
import sys

NO_FOLDER = "-"
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_NOSYMFOLLOW = 1 << 1, 1 << 2, 1 << 3, 1 << 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1 << 5, 1 << 12, 1 << 14, 1 << 19
_GUARDED = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_NOSYMFOLLOW
_FAILED = 125


def main(pipe: str, shm: str, command: list[str]) -> int:
    """Exec the command; return an exit status where that fails."""
    try:
        os.chdir("/")
        is_daemon = shm != NO_FOLDER
        _mount([(pipe, pipe), *([(shm, "/dev/shm")] if is_daemon else [])])  # noqa: S108 - in its own namespace
        if is_daemon:
            _expose_folders(pipe, command[0])
        os.execv(command[0], command)  # noqa: S606 - becoming a program without a shell is the point
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    return _FAILED


def _mount(mounts: list[tuple[str, str]]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    # Unmounts on the host arrive here, or the shared memory of other claims would never be freed while this daemon runs.
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "mount")
    for folder, place in mounts:
        _check(libc.mount(os.fsencode(folder), os.fsencode(place), None, _MS_BIND, None), "mount")
        # An older kernel ignores a flag that it does not know.
        _check(libc.mount(b"none", os.fsencode(place), None, _GUARDED, None), "mount")


def _expose_folders(pipe: str, program: str) -> None:
    """Let all users of this mount namespace reach the pipe and log folders, and nothing else in the closed folder above them."""
    closed = next((folder for folder in _parents(pipe) if not _is_open(folder)), None)
    if closed is None or program.startswith(f"{closed}/"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    shown = [(folder, os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) for folder in (pipe, f"{_parents(pipe)[-1]}/log")]
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _check(libc.mount(b"drakit-mps", os.fsencode(closed), b"tmpfs", flags, b"mode=0755,size=64k"), "mount")
    for folder, descriptor in shown:
        os.makedirs(folder, mode=0o755)  # noqa: PTH103 - pathlib takes longer to import than the rest of this program
        _check(libc.mount(os.fsencode(f"/proc/self/fd/{descriptor}"), os.fsencode(folder), None, _MS_BIND, None), "mount")


def _parents(path: str) -> list[str]:
    """Return the folders above an absolute path, outermost first, without the root."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]


def _is_open(folder: str) -> bool:
    return bool(os.stat(folder).st_mode & stat.S_IXOTH)  # noqa: PTH116 - as above


def _check(result: int, call: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
