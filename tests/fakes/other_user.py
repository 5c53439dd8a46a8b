"""A process of an unprivileged user of the node, beside the driver that runs as root."""

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

LOCKING = """
import fcntl, os, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locking(path: pathlib.Path) -> Iterator[None]:
    """A process of another user, which can read the path and no more, holds an flock on it."""
    for parent in (path, *path.parents):
        if parent.owner() == path.owner() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o005)
    with subprocess.Popen(
        [sys.executable, "-c", LOCKING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        assert process.stdin is not None
        process.stdin.close()
