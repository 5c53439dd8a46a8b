"""Announcement of the addresses of attached interfaces, so that neighbours that know an address by another MAC reach the new pod at once.

The first announcement is part of the attach. Two more follow from a thread, after one and two more seconds, because frames may be lost (RFC 5227 has
two announcements, RFC 4861 at most three). Each reads what the interface has then: the configured addresses that are still there, and the IPv6
link-local address once duplicate address detection has finished. An interface without a link is announced when it gets one, if that is soon.

The later announcements of a share leave by the NIC on the host. Those of a whole interface leave by a socket in the pod, which keeps the network
namespace for that time, so ``cancel`` must be called before the interface is moved again.
"""

import contextlib
import dataclasses
import heapq
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Hashable
from typing import Protocol

from drakit.devices.nic.netlink import announcement_frames

PAUSES = (1.0, 2.0)
"""Seconds between one announcement and the next."""
LINK_SECONDS, LINK_PAUSE = 30.0, 0.5
"""The longest wait for a link, and the pause between two looks."""
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Announceable:
    """The present state of an interface in a sandbox. ``hosts`` are its usable addresses without prefixes."""

    mac: str
    has_link: bool
    hosts: frozenset[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """An attached interface: its name and index in the sandbox, the number of that namespace, and the addresses to announce.

    ``nic`` is the interface of the host by which a share's frames leave, empty for a whole interface.
    """

    key: Hashable
    nsid: int
    ifindex: int
    name: str
    mac: str
    hosts: frozenset[str]
    nic: str = ""
    is_router: bool = False


class Kernel(Protocol):
    """The requests to the kernel that announcing needs. They raise OSError."""

    def sender(self, interface: str, descriptor: int | None = None) -> socket.socket:
        """Return a socket that sends frames by an interface of the host, or of the open namespace."""

    def announceable(self, subject: Subject) -> Announceable | None:
        """Return the present state of a subject's interface, None where it is gone or no Ethernet interface."""


@dataclasses.dataclass(order=True)
class _Pending:
    """The next announcement of a subject. ``sent`` is the number of earlier ones; ``inside`` is a whole interface's socket."""

    due: float
    number: int
    subject: Subject = dataclasses.field(compare=False)
    inside: socket.socket | None = dataclasses.field(compare=False)
    give_up: float = dataclasses.field(compare=False)
    sent: int = dataclasses.field(default=0, compare=False)


class Announcer:
    """Announces subjects. Safe between threads. Its thread runs while there is something to announce, and ``close`` ends it."""

    def __init__(self, kernel: Kernel, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._kernel, self._monotonic = kernel, monotonic
        self._changed = threading.Condition()
        self._pending: list[_Pending] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def announce(self, subject: Subject, descriptor: int) -> None:
        """Announce a subject in the open namespace now and schedule the repetitions. A failure is logged, because the pod works without."""
        try:
            inside = self._kernel.sender(subject.name, descriptor)
        except OSError as error:
            _log_failure(subject, error)
            return
        with contextlib.ExitStack() as stack:
            stack.callback(inside.close)
            now = self._monotonic()
            pending = _Pending(now, next(self._numbers), subject, inside, now + LINK_SECONDS)
            if self._send(pending):
                if subject.nic:
                    pending.inside = None
                else:
                    stack.pop_all()
                self._schedule(pending)

    def cancel(self, key: Hashable) -> None:
        """Drop what is to be announced of a subject, and close its socket."""
        with self._changed:
            for pending in [pending for pending in self._pending if pending.subject.key == key]:
                self._pending.remove(pending)
                _close(pending)
            heapq.heapify(self._pending)

    def send_due(self) -> float | None:
        """Make the announcements that are due. Return the seconds until the next one, None where there is none."""
        with self._changed:
            while self._pending and self._pending[0].due <= self._monotonic():
                pending = heapq.heappop(self._pending)
                if self._send(pending):
                    heapq.heappush(self._pending, pending)
                else:
                    _close(pending)
            return self._pending[0].due - self._monotonic() if self._pending else None

    def close(self) -> None:
        """Drop everything and end the thread."""
        with self._changed:
            self._is_closed = True
            for pending in self._pending:
                _close(pending)
            self._pending.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _schedule(self, pending: _Pending) -> None:
        with self._changed:
            if self._is_closed:
                _close(pending)
                return
            heapq.heappush(self._pending, pending)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nic-announcer", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed and (seconds := self.send_due()) is not None:
                self._changed.wait(seconds)
            self._thread = None

    def _send(self, pending: _Pending) -> bool:
        """Make one announcement, or wait for the link. Return whether there is another one to make, with its time set."""
        subject = pending.subject
        try:
            present = self._kernel.announceable(subject)
            if present is None or present.mac != subject.mac:
                return False
            if not present.has_link:
                pending.due += LINK_PAUSE
                return pending.due < pending.give_up
            with contextlib.ExitStack() as stack:
                sock = pending.inside or stack.enter_context(self._kernel.sender(subject.nic))
                for host in sorted(present.hosts):
                    sock.send(announcement_frames.announcement(subject.mac, host, is_router=subject.is_router))
        except OSError as error:
            _log_failure(subject, error)
            return False
        if pending.sent == len(PAUSES):
            return False
        pending.due += PAUSES[pending.sent]
        pending.sent += 1
        return True


def _close(pending: _Pending) -> None:
    if pending.inside is not None:
        pending.inside.close()


def _log_failure(subject: Subject, error: OSError) -> None:
    _log.warning(
        "address announcement failed", extra={"interface": subject.name, "nic": subject.nic, "error": error.strerror or str(error)}
    )
