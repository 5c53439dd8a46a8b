"""Which NVML session it is: none ends while a thread uses an event set of it, because NVML frees the set with the session."""

import contextlib
import threading
from collections.abc import Iterator

from drakit.devices.gpu import port

# The longest wait for an event is a second; a call that takes longer than this hangs.
_PATIENCE = 10.0


class Lifetime:
    """Counts the sessions of one adapter. A thread that replaces the session waits for the threads that use it."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._changed = threading.Condition()
        self._patience = patience
        self._users = 0
        self._is_ending = False
        self._number = 0

    @property
    def number(self) -> int:
        """The number of the present session."""
        return self._number

    @contextlib.contextmanager
    def using(self, number: int) -> Iterator[None]:
        """Keep the session of that number from ending; raises CallError (UNINITIALIZED) when it has ended."""
        with self._changed:
            if self._is_ending or number != self._number:
                raise port.CallError(port.CALLS["events"], port.Code.UNINITIALIZED, "the NVML session was replaced; open events again")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def replacing(self, number: int) -> Iterator[bool]:
        """End the session of that number in this context; False when another thread has replaced it meanwhile.

        Raises CallError (TIMEOUT) while a thread hangs in a call on it.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_ending, self._patience):
                raise self._hangs()
            if number != self._number:
                yield False
                return
            self._is_ending = True
            if not self._changed.wait_for(lambda: not self._users, self._patience):
                self._is_ending = False
                raise self._hangs()
        try:
            yield True
        finally:
            with self._changed:
                self._number += 1
                self._is_ending = False
                self._changed.notify_all()

    @staticmethod
    def _hangs() -> port.CallError:
        return port.CallError(port.CALLS["renew"], port.Code.TIMEOUT, "a thread hangs in a call to NVML, so its session cannot be replaced")
