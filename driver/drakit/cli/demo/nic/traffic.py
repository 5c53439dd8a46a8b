"""Traffic that a share's class must hold to its rate, without a peer: datagrams to nobody, counted by the class that lets them out.

They go to an address reserved for documentation (RFC 5737), which a static neighbour entry gives the sender's own MAC address. A switch that gets
such a frame learns that the address is where the frame came from, and forwards no frame back there; so they end at the first port, and flood no
network.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from drakit.cli.demo.nic import claims, pods, scene
from drakit.devices.nic import config
from drakit.devices.nic.netlink import link_requests, rtnetlink

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
    """What a class let out, in bits per second; in which part of the looks something waited in it; and which part of its time the machine was idle.

    Where nothing waited, the senders were too slow to try the class; where the machine was not idle, the kernel may have come too late to serve it.
    """

    rate: float
    waiting: float
    idle: float

    @property
    def is_fair(self) -> bool:
        """Whether too little is the class's fault, and not the machine's."""
        return self.waiting >= _KEPT_BUSY and self.idle >= _AT_LEISURE


@contextlib.contextmanager
def flowing(senders: Mapping[str, pods.Pod], rates: Mapping[str, int]) -> Iterator[None]:
    """Every pod sends as fast as it can, until the block ends. ``rates`` say for whom it is worth to hand the kernel many datagrams at once."""
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(max_workers=len(senders)))
        opened = [_opened(pod, fast=rates[name] >= _FAST) for name, pod in senders.items()]
        stack.callback(stop.set)
        for sock, size in opened:
            threads.submit(_send, stack.enter_context(sock), size, stop)
        yield


def measure(view: scene.Scene, minors: Mapping[str, int], seconds: float = SECONDS) -> dict[str, Measured]:
    """Count what the classes let out, once the bursts they had saved are spent."""
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
    """Whether frames waited in a class, or in one of its pods'."""
    classes = look.sides[scene.EGRESS]
    return any(shaped.counters.backlog for shaped in classes.values() if minor in {shaped.spec.minor, shaped.spec.parent})


def _part(samples: Sequence[bool]) -> float:
    return sum(samples) / len(samples) if samples else 0.0


def _ticks() -> tuple[int, int]:
    """The machine's clock ticks since boot, all and idle (proc_stat(5))."""
    counts = [int(word) for word in _STAT.read_text("ascii").splitlines()[0].split()[1:9]]
    return sum(counts), counts[_IDLE] + counts[_WAITING]


def _idle(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[1] - before[1]) / max(after[0] - before[0], 1)


def _opened(pod: pods.Pod, *, fast: bool) -> tuple[socket.socket, int]:
    """A socket in the pod, aimed at nobody, and how much to give it at once."""
    with rtnetlink.Socket.open(pod.namespace) as route:
        link = link_requests.find(route, claims.INTERFACE)
        if link is None:
            raise OSError(f"pod {pod.name} has no interface {claims.INTERFACE}")
        link_requests.add_neighbour(route, link.ifindex, config.Neighbour(address=NOBODY, mac=link.mac))
    sock = rtnetlink.run_in(pod.namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
    size = link.mtu - _HEADERS
    sock.settimeout(_STALL_SECONDS)
    sock.connect((NOBODY, _PORT))
    if fast:
        with contextlib.suppress(OSError):  # Before Linux 4.18 there is none, and one by one is slower but right.
            sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, size)
            size *= _SEGMENTS
    return sock, size


def _send(sock: socket.socket, size: int, stop: threading.Event) -> None:
    """Send until told to stop. The kernel holds the sender up while its class has enough; without a link it drops, and that is counted nowhere."""
    content = bytes(size)
    while not stop.is_set():
        with contextlib.suppress(OSError):
            sock.send(content)
