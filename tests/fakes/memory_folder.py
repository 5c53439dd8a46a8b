"""A folder in memory, for tests of deaths and errors of a process: these need no disk, only a power cut does."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def memory_folder() -> Iterator[pathlib.Path]:
    """Make a folder in memory where there is such a place and programs may run there, and an ordinary one elsewhere."""
    memory = pathlib.Path("/dev/shm")
    is_usable = os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    with tempfile.TemporaryDirectory(prefix="dk", dir=memory if is_usable else "/tmp") as folder:
        yield pathlib.Path(folder)
