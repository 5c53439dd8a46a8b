"""What the kubelet is told of the health of devices.

``HealthBoard`` is the one place where it is known. A device nothing was said of is healthy while it is discovered, and unknown once discovery has not
answered for a while, so that a hung driver does not go on promising health. What was said of a device holds until something else is said or the
process ends.

The kubelet believes a report for 30 s, and forgets all of a driver's when its stream ends. So every watcher gets the full list at once, again at
every change, and again every 10 s.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence

from drakit.core import context, errors, ports

RESEND_SECONDS = 10.0
VALID_SECONDS = 30
STALE_SECONDS = 300.0
MESSAGE_MAX_BYTES = 1024
WATCHERS_MAX = 8
UNSEEN = "the driver could not read its hardware for a while"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceHealth:
    """The health of one device. ``found`` is the Unix time of when it was found out; ``message`` has at most 1024 bytes."""

    device: str
    health: context.Health
    message: str
    found: int


class HealthBoard:
    """The health of one driver's devices on one node. Safe between threads.

    ``stale_seconds`` is how long a device may be believed healthy without ``discovered``.
    """

    def __init__(self, pool: str, clock: ports.Clock, *, stale_seconds: float = STALE_SECONDS) -> None:
        self.pool = pool
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._lock = threading.Lock()
        self._devices: tuple[str, ...] = ()
        self._seen = 0.0
        self._seen_at = 0
        self._said: dict[str, DeviceHealth] = {}
        self._watchers: set[threading.Event] = set()
        self._closed = False

    def discovered(self, devices: Collection[str]) -> None:
        """These are the devices there are now; to be called at every look at the hardware."""
        with self._lock:
            before, self._devices = self._devices, tuple(devices)
            returned = self._seen_at == 0 or self._is_stale()
            self._seen, self._seen_at = self._clock.monotonic(), self._unix()
            if before != self._devices or returned:
                self._wake()

    def report(self, device: str, health: context.Health, message: str = "") -> None:
        """From now on the device is so; what was said before is replaced."""
        told = DeviceHealth(device=device, health=health, message=cut(message), found=self._unix())
        with self._lock:
            before = self._said.get(device)
            self._said[device] = told
            if before is None or (before.health, before.message) != (health, told.message):
                self._wake()

    def snapshot(self) -> Sequence[DeviceHealth]:
        """Every device that is there or was spoken of, in order of name."""
        with self._lock:
            stale = self._is_stale()
            default = context.Health.UNKNOWN if stale else context.Health.HEALTHY
            message = UNSEEN if stale else ""
            held = {name: DeviceHealth(device=name, health=default, message=message, found=self._seen_at) for name in self._devices}
            return [health for _, health in sorted((held | self._said).items())]

    def counts(self) -> Mapping[context.Health, int]:
        """How many devices are of each health."""
        found = [one.health for one in self.snapshot()]
        return {health: found.count(health) for health in context.Health}

    @contextlib.contextmanager
    def watcher(self) -> Iterator[threading.Event]:
        """An event that is set at every change and at the end; raises RetryError when too many watch already."""
        wake = threading.Event()
        with self._lock:
            if len(self._watchers) >= WATCHERS_MAX:
                raise errors.RetryError(f"{WATCHERS_MAX} health streams are open already", after=RESEND_SECONDS)
            self._watchers.add(wake)
        try:
            yield wake
        finally:
            with self._lock:
                self._watchers.discard(wake)

    def follow(self, wake: threading.Event) -> Iterator[Sequence[DeviceHealth]]:
        """Snapshots for one watcher, until the board is closed: now, at every change, and often enough to stay believed."""
        while not self.closed:
            wake.clear()
            yield self.snapshot()
            self._clock.wait(wake, RESEND_SECONDS)

    @property
    def closed(self) -> bool:
        """Whether the end has come."""
        with self._lock:
            return self._closed

    def close(self) -> None:
        """End every stream; the kubelet then knows of no health any more. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._wake()

    def _is_stale(self) -> bool:
        return self._seen_at != 0 and self._clock.monotonic() - self._seen > self._stale_seconds

    def _unix(self) -> int:
        return int(self._clock.now().timestamp())

    def _wake(self) -> None:
        for wake in self._watchers:
            wake.set()


def cut(message: str) -> str:
    """A message as the kubelet would keep it: at most 1024 bytes of valid UTF-8, the end of a longer one replaced by three dots."""
    whole = message.encode("utf-8", "replace")
    if len(whole) <= MESSAGE_MAX_BYTES:
        return whole.decode()
    return whole[: MESSAGE_MAX_BYTES - 3].decode("utf-8", "ignore") + "..."
