"""Announcement of the addresses of attached interfaces, so that neighbours that know an address by another MAC reach the new pod at once.

The first announcement is part of the attach. Two more follow from a thread, after one and two more seconds, because frames may be lost (RFC 5227 has
two announcements, RFC 4861 at most three). Each reads what the interface has then: the configured addresses that are still there, and the IPv6
link-local address once duplicate address detection has finished. An interface without a link is announced when it gets one, if that is soon.

The later announcements of a share leave by the NIC on the host. Those of a whole interface leave by a socket in the pod, which keeps the network
namespace for that time, so ``cancel`` must be called before the interface is moved again. To close a packet socket takes the kernel many
milliseconds, so the thread does it, and no lock is held.
"""

import dataclasses
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable
from typing import Protocol

import drakit
from drakit_nic.netlink import announcement_frames

PAUSES = (1.0, 2.0)
"""Seconds between one announcement and the next."""
LINK_SECONDS, LINK_PAUSE = 30.0, 0.5
"""The longest wait for a link, and the pause between two looks."""
_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Announceable:
    """The present state of an interface in a sandbox. ``hosts`` are its usable addresses without prefixes."""

    mac: str
    has_link: bool
    hosts: frozenset[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """An attached interface: its name and index in the sandbox, the number of that namespace, and the addresses to announce.

    ``versions`` are the IP versions to announce. ``nic`` is the interface of the host by which a share's frames leave, empty for a whole interface.
    """

    key: Hashable
    nsid: int
    ifindex: int
    name: str
    mac: str
    hosts: frozenset[str]
    versions: frozenset[int]
    nic: str = ""
    is_router: bool = False


class Sender(Protocol):
    """A socket that sends whole frames by an interface. Its methods raise OSError."""

    def sendto(self, frame: bytes, address: tuple[str, int], /) -> object:
        """Send a frame by the interface that the address names."""

    def close(self) -> None:
        """Close the socket, which takes the kernel many milliseconds."""


class Kernel(Protocol):
    """The requests to the kernel that announcing needs. They raise OSError."""

    def sender(self, descriptor: int | None = None) -> Sender:
        """Return a socket that sends frames by interfaces of the host, or of the open namespace."""

    def announceable(self, subject: Subject) -> Announceable | None:
        """Return the present state of a subject's interface, None if it is gone or no Ethernet interface."""


@dataclasses.dataclass(order=True)
class _Pending:
    """The next announcement of a subject. ``sent`` is the number of earlier ones; ``inside`` is the socket in its pod."""

    due: float
    number: int
    subject: Subject = dataclasses.field(compare=False)
    inside: Sender | None = dataclasses.field(compare=False)
    give_up: float = dataclasses.field(compare=False)
    sent: int = dataclasses.field(default=0, compare=False)
    is_cancelled: bool = dataclasses.field(default=False, compare=False)


class Announcer:
    """Announces subjects. Safe between threads. Its thread runs while there is something to announce, and ``close`` ends it."""

    def __init__(self, kernel: Kernel, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._kernel, self._monotonic = kernel, monotonic
        self._sending = threading.Lock()
        """Held by the one thread that repeats announcements."""
        self._changed = threading.Condition()
        self._pending: list[_Pending] = []
        self._current: _Pending | None = None
        self._unused: list[Sender] = []
        self._numbers = itertools.count()
        self._outside: Sender | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def announce(self, subject: Subject, descriptor: int) -> None:
        """Announce a subject in the open namespace now and schedule the repetitions. A failure is logged, because the pod works without."""
        if not subject.versions:
            return
        try:
            inside = self._kernel.sender(descriptor)
        except Exception as error:  # noqa: BLE001 - The pod works without.
            _log_failure(subject, error)
            return
        now = self._monotonic()
        pending = _Pending(now, next(self._numbers), subject, inside, now + LINK_SECONDS)
        goes_on = self._send(pending, inside, subject.name)
        if subject.nic:
            pending.inside = None
        with self._changed:
            if goes_on and not self._is_closed:
                heapq.heappush(self._pending, pending)
            else:
                pending.inside = None
            if pending.inside is None:
                self._unused.append(inside)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="nic-announcer", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if self._is_closed:
            self._close_unused()

    def cancel(self, key: Hashable) -> None:
        """Drop what is to be announced of a subject, and close its socket."""
        with self._changed:
            for pending in [pending for pending in self._pending if pending.subject.key == key]:
                self._pending.remove(pending)
                self._release(pending)
            heapq.heapify(self._pending)
            if self._current is not None and self._current.subject.key == key:
                self._current.is_cancelled = True
        self._close_unused()

    def send_due(self) -> float | None:
        """Make the announcements that are due. Return the seconds until the next one, None if there is none.

        When it returns, those that another thread has begun are made too.
        """
        with self._sending:
            self._repeat_due()
        self._close_unused()
        with self._changed:
            return max(self._pending[0].due - self._monotonic(), 0.0) if self._pending else None

    def _repeat_due(self) -> None:
        while True:
            with self._changed:
                if not self._pending or self._pending[0].due > self._monotonic():
                    return
                pending = self._current = heapq.heappop(self._pending)
            goes_on = self._repeat(pending)
            with self._changed:
                self._current = None
                if goes_on and not pending.is_cancelled and not self._is_closed:
                    heapq.heappush(self._pending, pending)
                else:
                    self._release(pending)

    def close(self) -> None:
        """Drop everything and end the thread."""
        with self._changed:
            self._is_closed = True
            for pending in self._pending:
                self._release(pending)
            self._pending.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._close_unused()
        if self._outside is not None:
            self._outside.close()
            self._outside = None

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException:
            with self._changed:
                self._thread = None  # The next announcement starts another.
            raise

    def _loop(self) -> None:
        while True:
            seconds = self.send_due()
            with self._changed:
                if self._is_closed or (seconds is None and not self._pending and not self._unused):
                    self._thread = None
                    return
                if not self._unused and seconds is not None:
                    self._changed.wait(seconds)

    def _repeat(self, pending: _Pending) -> bool:
        try:
            if pending.inside is not None:
                return self._send(pending, pending.inside, pending.subject.name)
            if self._outside is None:
                self._outside = self._kernel.sender()
            return self._send(pending, self._outside, pending.subject.nic)
        except Exception as error:  # noqa: BLE001 - Another subject's announcements go on.
            _log_failure(pending.subject, error)
            return False

    def _send(self, pending: _Pending, sock: Sender, interface: str) -> bool:
        """Make one announcement, or wait for the link. Return whether there is another one to make, with its time set."""
        subject = pending.subject
        try:
            present = self._kernel.announceable(subject)
            if present is None or present.mac != subject.mac:
                return False
            if not present.has_link:
                pending.due += LINK_PAUSE
                return pending.due < pending.give_up
            for host in sorted(present.hosts):
                frame = announcement_frames.announcement(subject.mac, host, is_router=subject.is_router)
                sock.sendto(frame, (interface, 0))
        except Exception as error:  # noqa: BLE001 - The pod works without.
            _log_failure(subject, error)
            return False
        if pending.sent == len(PAUSES):
            return False
        pending.due += PAUSES[pending.sent]
        pending.sent += 1
        return True

    def _release(self, pending: _Pending) -> None:
        """Leave the socket of a dropped announcement to be closed. The caller has the lock."""
        if pending.inside is not None:
            self._unused.append(pending.inside)
            pending.inside = None

    def _close_unused(self) -> None:
        with self._changed:
            unused, self._unused = self._unused, []
        for sock in unused:
            sock.close()


def _log_failure(subject: Subject, error: Exception) -> None:
    _log.warning("address announcement failed", interface=subject.name, error=getattr(error, "strerror", None) or str(error))
