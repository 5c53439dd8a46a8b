"""Traffic without a receiver, which a share's class must limit to its rate; the class counts what it sends.

The datagrams go to an address reserved for documentation (RFC 5737), for which a static neighbour entry has the sender's own MAC address. A switch
learns this address on the port from which the frame came, and does not forward the frame to it. So the frames do not flood the network.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from drakit_nic import config
from drakit_nic.netlink import link_requests, namespaces, rtnetlink
from drakit_tools.demo.nic import claims, pods, scene

SECONDS = 2.0
NOBODY = f"{claims.NETWORK}.254"
_PORT = 9
_HEADERS = 28
_SETTLE_SECONDS, _LOOK_SECONDS = 0.5, 0.05
_UDP_SEGMENT = 103
_SEGMENTS = 40
_FAST = 2 * 10**8
_STALL_SECONDS = 1.0
_KEPT_BUSY, _AT_LEISURE = 0.9, 0.2
_STAT = pathlib.Path("/proc/stat")
_IDLE, _WAITING = 3, 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """The rate that a class sent in bits per second, the part of samples in which frames waited in it, and the part of the time the machine was idle.

    If no frame waited, the senders were too slow to test the class. If the machine was not idle, the kernel may have served the class too late.
    """

    rate: float
    waiting: float
    idle: float

    @property
    def is_fair(self) -> bool:
        """Return whether a low rate is caused by the class, and not by a busy machine."""
        return self.waiting >= _KEPT_BUSY and self.idle >= _AT_LEISURE


@contextlib.contextmanager
def flowing(senders: Mapping[str, pods.Pod], rates: Mapping[str, int]) -> Iterator[None]:
    """Send from every pod as fast as possible inside the block. Pods with a high rate pass many datagrams to the kernel at once."""
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(max_workers=len(senders)))
        opened = [_opened(pod, fast=rates[name] >= _FAST) for name, pod in senders.items()]
        stack.callback(stop.set)
        for sock, size in opened:
            threads.submit(_send, stack.enter_context(sock), size, stop)
        yield


def measure(view: scene.Scene, minors: Mapping[str, int], seconds: float = SECONDS) -> dict[str, Measured]:
    """Measure what the classes send, after their saved bursts are used up."""
    time.sleep(_SETTLE_SECONDS)
    before, began, first = _ticks(), time.monotonic(), view.view()
    looks: list[scene.View] = []
    while time.monotonic() - began < seconds:
        time.sleep(_LOOK_SECONDS)
        looks.append(view.view())
    elapsed, last = time.monotonic() - began, view.view()
    idle = _idle(before, _ticks())
    return {
        name: Measured(
            rate=8 * (last.sent(minor).bytes - first.sent(minor).bytes) / elapsed,
            waiting=_part([_waits(look, minor) for look in looks]),
            idle=idle,
        )
        for name, minor in minors.items()
    }


def _waits(look: scene.View, minor: int) -> bool:
    """Return whether frames waited in a class, or in a class below it."""
    classes = look.sides[scene.EGRESS]
    return any(shaped.counters.backlog for shaped in classes.values() if minor in {shaped.spec.minor, shaped.spec.parent})


def _part(samples: Sequence[bool]) -> float:
    return sum(samples) / len(samples) if samples else 0.0


def _ticks() -> tuple[int, int]:
    """Return the machine's clock ticks since boot, all and idle (proc_stat(5))."""
    counts = [int(word) for word in _STAT.read_text("ascii").splitlines()[0].split()[1:9]]
    return sum(counts), counts[_IDLE] + counts[_WAITING]


def _idle(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[1] - before[1]) / max(after[0] - before[0], 1)


def _opened(pod: pods.Pod, *, fast: bool) -> tuple[socket.socket, int]:
    """Return a connected socket in the pod, and the number of bytes to send at once."""
    with rtnetlink.Socket.open(pod.namespace) as route:
        link = link_requests.find(route, claims.INTERFACE)
        if link is None:
            raise OSError(f"pod {pod.name} has no interface {claims.INTERFACE}")
        link_requests.add_neighbour(route, link.ifindex, config.Neighbour(address=NOBODY, mac=link.mac))
    sock = namespaces.run_in(pod.namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
    size = link.mtu - _HEADERS
    sock.settimeout(_STALL_SECONDS)
    sock.connect((NOBODY, _PORT))
    if fast:
        with contextlib.suppress(OSError):  # Before Linux 4.18, datagrams are sent one by one, which is slower.
            sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, size)
            size *= _SEGMENTS
    return sock, size


def _send(sock: socket.socket, size: int, stop: threading.Event) -> None:
    """Send until ``stop`` is set. The kernel blocks the sender while its class is full; without a link it drops frames uncounted."""
    content = bytes(size)
    while not stop.is_set():
        with contextlib.suppress(OSError):
            sock.send(content)
