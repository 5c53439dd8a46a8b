"""What the classes of a shared NIC counted themselves while traffic ran, window by window.

On a machine whose processors others use too, TCP delivers less than a class allows, because its sender does not get to send. So rates are taken where
they are held: in windows in which frames waited in the class at every look, it was the class that let pass what passed. The upper quartile of such
windows is what the class gives when nobody takes the processor away within the window; what the whole time carried bounds it from above in any case.
A window spans several looks, because frames of 64 KiB pass whole: of what 50 Mbit/s carry between two looks, one is a twentieth.
"""

import concurrent.futures
import contextlib
import dataclasses
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import ifb_links, tc_messages
from fakes import nic_network, waits

OUT, IN = "out", "in"
PAUSE, SPAN = 0.2, 3
"""Seconds between two looks, and how many of them a window spans."""

_MEGA = 10**6

Key = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Rate:
    """One class, in Mbit/s of link-layer bytes: ``whole`` over all the time; ``held`` in windows in which it had frames waiting, None without any.

    ``waiting`` is the most bytes that were ever seen to wait.
    """

    whole: float
    held: float | None
    waiting: int

    def is_at(self, wanted: float, part: float) -> bool:
        return self.held is not None and abs(self.held / wanted - 1) <= part


@dataclasses.dataclass(frozen=True)
class _Look:
    """Bytes passed and bytes waiting, by class, at a moment."""

    moment: float
    passed: Mapping[Key, int]
    waiting: Mapping[Key, int]


@contextlib.contextmanager
def running(network: nic_network.NicNetwork, flows: Sequence[nic_network.Flow], seconds: float) -> Iterator[list[nic_network.Transfer]]:
    """Flows run during the body, which begins when frames wait for them; what they measured is in the list afterwards. A broken flow raises."""
    seen: list[nic_network.Transfer] = []
    with concurrent.futures.ThreadPoolExecutor(1) as thread, _socket(network) as sock:
        measuring = thread.submit(network.measure, flows, seconds)
        deadline = time.monotonic() + waits.SECONDS
        while not any(_look(sock, network).waiting.values()) and not measuring.done():
            assert time.monotonic() < deadline, "no frame ever waited"
            time.sleep(0.02)
        yield seen
        seen += measuring.result()


def counted(network: nic_network.NicNetwork, seconds: float = 2.0) -> Mapping[Key, Rate]:
    """Every class, outwards and inwards, by its number; traffic runs already."""
    with _socket(network) as sock:
        looks = [_look(sock, network)]
        deadline = looks[0].moment + seconds
        while looks[-1].moment < deadline:
            time.sleep(PAUSE)
            looks.append(_look(sock, network))
    return {key: _rate(key, looks) for key in looks[0].passed if key in looks[-1].passed}


def _socket(network: nic_network.NicNetwork) -> rtnetlink.Socket:
    return rtnetlink.Socket.open(network.node.name)


def _look(sock: rtnetlink.Socket, network: nic_network.NicNetwork) -> _Look:
    ifb = ifb_links.find(sock, network.nic.ifindex)
    read = lambda: {OUT: tc_messages.classes(sock, network.nic.ifindex), IN: tc_messages.classes(sock, ifb.ifindex) if ifb else {}}  # noqa: E731
    moment, sides = nic_network.timed(read)
    passed = {(way, minor): item.counters.bytes for way, side in sides.items() for minor, item in side.items()}
    waiting = {
        (way, minor): item.counters.backlog + sum(other.counters.backlog for other in side.values() if other.spec.parent == minor)
        for way, side in sides.items()
        for minor, item in side.items()
    }
    return _Look(moment, passed, waiting)


def _rate(key: Key, looks: Sequence[_Look]) -> Rate:
    windows = [looks[start : start + SPAN + 1] for start in range(len(looks) - SPAN)]
    judged = [_between(window[0], window[-1], key) for window in windows if all(look.waiting.get(key) for look in window)]
    held = max(judged) if len(judged) == 1 else statistics.quantiles(judged, n=4)[2] if judged else None
    return Rate(_between(looks[0], looks[-1], key), held, max(look.waiting.get(key, 0) for look in looks))


def _between(early: _Look, late: _Look, key: Key) -> float:
    return (late.passed[key] - early.passed[key]) * 8 / _MEGA / (late.moment - early.moment)
