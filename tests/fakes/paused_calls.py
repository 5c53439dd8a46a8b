"""Two calls at once on the real kernel, each held before a request of its own choosing: every interleaving of two drivers, one at a time.

A call runs in a thread of its own, and before each request that thread sends to rtnetlink its number is compared; nothing is patched. What is seen
between two requests of one call is therefore whatever the other call has done until then, and a run with the same numbers is the same run.
"""

import inspect
import sys
import threading
import types
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from drakit_nic.netlink import rtnetlink
from fakes import waits

Answer = TypeVar("Answer")

_SENDING = frozenset(inspect.unwrap(call).__code__ for call in (rtnetlink.Socket.ask, rtnetlink.Socket.change, rtnetlink.Socket.dump))


class PausedCall(Generic[Answer]):
    """One call, for a ``with`` block; ``run_to`` lets it go on until it is about to send that request or ends, ``finish`` until it ends.

    The end of the block lets it go on until it ends, so that a test that fails in the middle of a call leaves no locks behind.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._until: int | None = 0
        self._go, self._held = threading.Semaphore(0), threading.Semaphore(0)
        self._answers: list[Answer] = []
        self._failures: list[BaseException] = []
        self.sent = 0
        """How many requests it has come to."""
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run_to_end()

    def run_to(self, request: int) -> None:
        """Go on until this many requests were sent; a call that ends before stands at its end."""
        self._until = request
        self._step()

    def finish(self) -> Answer:
        """Go on until the call ends; its answer, or what it raised."""
        self._run_to_end()
        if self._failures:
            raise self._failures[0]
        return self._answers[0]

    def _run_to_end(self) -> None:
        self._until = None
        self._step()
        self._thread.join(waits.SECONDS)

    def _step(self) -> None:
        if self._thread.is_alive():
            self._go.release()
            if not self._held.acquire(timeout=waits.SECONDS):
                raise TimeoutError("the call neither came to its request nor ended")

    def _live(self) -> None:
        self._go.acquire()
        sys.setprofile(self._on_profile_event)
        try:
            self._answers.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again where the call is finished
            self._failures.append(error)
        finally:
            sys.setprofile(None)
            self._held.release()

    def _on_profile_event(self, frame: types.FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code not in _SENDING:
            return
        if self._until is not None and self.sent >= self._until:
            self._held.release()
            self._go.acquire()
        self.sent += 1
