"""Locks on open files between processes, with an end to every wait: a process that hangs with a lock must not hang the others."""

import errno
import fcntl
import time

SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


def take(descriptor: int, *, shared: bool = False, seconds: float = SECONDS) -> None:
    """Take the flock of an open file. Raises TimeoutError when another process still has it after ``seconds``, and OSError."""
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has held its lock for {seconds:g} s; end that process") from error
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        else:
            return
