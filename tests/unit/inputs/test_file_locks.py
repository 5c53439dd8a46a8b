"""Nobody waits for ever for a file's lock."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit.inputs import file_locks
from drakit.journal import files


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_the_wait_for_a_held_lock_ends_with_a_reason(tmp_path: pathlib.Path) -> None:
    with opened(tmp_path / "a") as held, opened(tmp_path / "a") as asking:
        file_locks.take(held, shared=True)
        file_locks.take(asking, shared=True)
        with pytest.raises(TimeoutError, match=r"another process has held its lock for 0\.02 s; end that process"):
            file_locks.take(asking, seconds=0.02)
        fcntl.flock(held, fcntl.LOCK_UN)
        file_locks.take(asking)


def test_the_reason_is_one_that_an_operator_sees(tmp_path: pathlib.Path) -> None:
    with opened(tmp_path / "a") as held, opened(tmp_path / "a") as asking:
        file_locks.take(held)
        with pytest.raises(errors.JournalError, match=r"a: another process has held its lock"), files.as_journal_errors(tmp_path / "a"):
            file_locks.take(asking, seconds=0)
