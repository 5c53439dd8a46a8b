"""Listen on an address that another process may still have: at once if it is free, else as soon as it becomes free.

In a rolling update two pods in the host's network have one address. The older pod serves it, and the younger one takes it over when the older
one ends.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from drakit.core import backoff, errors
from drakit.telemetry import logs

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
_JOIN_SECONDS = 5.0

_log = logs.get_logger(__name__)


class Listener(Protocol):
    """A server that listens on an address."""

    def start(self) -> bool:
        """Listen, or return False if another process has the address."""

    def stop(self) -> None:
        """Stop listening. Safe to call without ``start``."""


class Waiting:
    """Has a listener listen from ``start`` to ``stop``, or from when its address becomes free. ``is_driver`` says whether its holder is one of us."""

    def __init__(self, listener: Listener, address: str, is_driver: Callable[[], bool]) -> None:
        self._listener, self._address, self._is_driver = listener, address, is_driver
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)
        self.is_listening = False

    def start(self) -> None:
        """Listen now, or once the address is free. Raises SettingsError for an address that cannot be used."""
        self.is_listening = self._listener.start()
        if not self.is_listening:
            self._thread.start()

    def stop(self) -> None:
        """Stop listening, or waiting for the address."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        self._listener.stop()
        self.is_listening = False

    def _run(self) -> None:
        pauses, holder = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE), ""
        while not self._stopping.wait(pauses.next() if holder else 0):
            try:
                self.is_listening = self._listener.start()
            except errors.SettingsError as error:
                _log.warning("listen failed", address=self._address, error=str(error))
            if self.is_listening:
                return
            now = "driver" if self._is_driver() else "other"
            if now != holder and now == "driver":
                _log.info("address held by another instance of the driver", address=self._address)
            elif now != holder:
                _log.warning("address held by another process", address=self._address)
            holder = now
