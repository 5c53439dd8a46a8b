"""Bandwidth shares on the real kernel: accuracy, guarantee, cheating, siblings, the host's reserve, latency, and how long a share's set-up takes.

NICs are veth pairs and pods are namespaces; traffic is iperf3's, for 5 s, three times, of which the median counts. Every row of the table first runs
the same flows unshaped: where their total is below 1.5 times what is asked, the row says "machine too slow" and nothing else. Goodput is compared
with 0.956 of the rate, which is what TCP can carry in full Ethernet frames of 1500 bytes (rates count link-layer bytes, as HTB does). What the
machine was otherwise busy with stands beside the figures: time that its host steals, or that others use, is missing in them.

``classes`` is what a share's own classes let pass while frames waited in them, against the rate: it tells a class that is not exact from a sender
that did not get the processor.

``BENCH_QUICK=1`` runs each once for 2 s. Needs root, and iperf3.
"""

import contextlib
import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from bench import bench_nic_churn, bench_nic_turnover, machine, table
from drakit_nic import port
from fakes import frame_flood, netns, nic_network, nic_rates

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS, RUNS = (2, 1) if QUICK else (5, 3)
MEGA = 10**6
GOODPUT = 0.956
ENOUGH = 1.5
FLOOD = str(pathlib.Path(frame_flood.__file__))


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the accuracy table: so many shares of so many Mbit/s, outwards, inwards or both."""

    rate: int
    shares: int
    ways: str

    @property
    def title(self) -> str:
        return f"{self.rate:5d}M x{self.shares} {self.ways:4s}"

    @property
    def tolerance(self) -> float:
        return 0.02 if self.rate <= 1000 else 0.05

    def flows(self, pods: Sequence[nic_network.Pod]) -> list[nic_network.Flow]:
        reverses = {"out": [False], "in": [True], "both": [False, True]}[self.ways]
        return [nic_network.Flow(pod.space, reverse=reverse) for reverse in reverses for pod in pods]


ROWS = [
    *(Row(rate, shares, ways) for rate in (100, 500, 1000) for shares in (1, 2, 4) for ways in ("out", "in")),
    *(Row(rate, shares, "both") for rate in (100, 500) for shares in (1, 2, 4)),
    Row(5000, 1, "out"),
    Row(5000, 1, "in"),
]


def say(title: str, text: str) -> None:
    sys.stdout.write(f"nic: {title:34s} {text}\n")
    sys.stdout.flush()


def measured(network: nic_network.NicNetwork, flows: Sequence[nic_network.Flow]) -> list[float]:
    """Median goodput of each flow in Mbit/s."""
    runs = [[seen.goodput / MEGA for seen in network.measure(flows, SECONDS)] for _ in range(RUNS)]
    return [statistics.median(figures) for figures in zip(*runs, strict=True)]


def unshaped(network: nic_network.NicNetwork, flows: Sequence[nic_network.Flow]) -> float:
    """Goodput of all flows together in Mbit/s, while no share is installed."""
    return sum(seen.goodput for seen in network.measure(flows, 2)) / MEGA


def against(figures: Sequence[float], ideals: Sequence[float], tolerance: float) -> str:
    """The figures, how far the worst one is off, and whether that is within the tolerance."""
    worst = max((figure / ideal - 1 for figure, ideal in zip(figures, ideals, strict=True)), key=abs)
    verdict = "ok" if abs(worst) <= tolerance else f"NOT WITHIN {tolerance:.0%}"
    return f"{' '.join(f'{figure:.1f}' for figure in figures)}  worst {worst:+.1%} {verdict}"


def admitted(network: nic_network.NicNetwork, pods: Sequence[nic_network.Pod], asked: Sequence[port.Share], uplink: port.Uplink) -> None:
    for pod, share in zip(pods, asked, strict=True):
        network.port.install(uplink, share)
        network.port.admit(share, cookie=pod.cookie, mac=pod.mac)


def accuracy(row: Row) -> None:
    with nic_network.network() as network:
        pods = [network.pod(number) for number in range(1, row.shares + 1)]
        flows = row.flows(pods)
        total = unshaped(network, flows)
        if total < ENOUGH * row.rate * len(flows):
            say(f"accuracy {row.title}", f"machine too slow: {total:.0f} unshaped for {row.rate * len(flows)}")
            return
        admitted(network, pods, [network.share(number, row.rate * MEGA) for number in range(1, row.shares + 1)], network.uplink(4 * 10**10))
        with machine.watched() as usage:
            figures = measured(network, flows)
        text = f"{against(figures, [row.rate * GOODPUT] * len(flows), row.tolerance)}  {by_classes(network, row, flows)}"
        say(f"accuracy {row.title}", f"{text}  unshaped {total:.0f} {usage.text}")


def by_classes(network: nic_network.NicNetwork, row: Row, flows: Sequence[nic_network.Flow]) -> str:
    """What the classes themselves gave while frames waited in them, in one more run: how exact they are where the processor is what lacks."""
    ways = {"out": [nic_rates.OUT], "in": [nic_rates.IN], "both": [nic_rates.OUT, nic_rates.IN]}[row.ways]
    with nic_rates.running(network, flows, 3):
        found = nic_rates.counted(network, 2)
    rates = [found[way, 0x100 + number] for way in ways for number in range(1, row.shares + 1)]
    held = [rate.held / row.rate - 1 for rate in rates if rate.held is not None]
    return f"classes {max(held, key=abs):+.1%}" if len(held) == len(rates) else "classes never full"


def guarantee() -> None:
    rates = [100, 200, 300, 400]
    with nic_network.network() as network:
        pods = [network.pod(number) for number in range(1, 5)]
        flows = [nic_network.Flow(pod.space) for pod in pods]
        total = unshaped(network, flows)
        if total < ENOUGH * sum(rates):
            say("guarantee", f"machine too slow: {total:.0f} unshaped for {sum(rates)}")
            return
        asked = [network.share(number, rate * MEGA, ceil=10**9) for number, rate in enumerate(rates, start=1)]
        admitted(network, pods, asked, network.uplink(10**9))
        say("guarantee 100/200/300/400 of 1G", against(measured(network, flows), [rate * GOODPUT for rate in rates], 0.02))
        back = [dataclasses.replace(flow, reverse=True) for flow in flows]
        say("guarantee, inwards", against(measured(network, back), [rate * GOODPUT for rate in rates], 0.02))
        say("the 100M share alone", against(measured(network, flows[:1]), [1000 * GOODPUT], 0.02))


@contextlib.contextmanager
def flooding(space: netns.Namespace, kind: str, *words: str) -> Iterator[None]:
    process = subprocess.Popen(["ip", "netns", "exec", space.name, sys.executable, FLOOD, kind, "120", *words])
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def arriving(network: nic_network.NicNetwork) -> float:
    """What the network receives now in Mbit/s, counted as HTB counts; the median of the runs."""
    time.sleep(0.3)
    return statistics.median(network.arriving(SECONDS) for _ in range(RUNS))


@dataclasses.dataclass(frozen=True)
class Victim:
    """A sibling of 100M, and its goodput while nobody attacks: ``own``, in Mbit/s."""

    network: nic_network.NicNetwork
    pod: nic_network.Pod
    own: float

    def keeps(self, title: str, most: float = 100) -> None:
        """Say what it keeps while an attack runs, and what the attack brings onto the wire beside at most ``most``."""
        (kept,) = measured(self.network, [nic_network.Flow(self.pod.space)])
        sent = arriving(self.network)
        with nic_rates.running(self.network, [nic_network.Flow(self.pod.space)], 3):
            held = nic_rates.counted(self.network, 2)[nic_rates.OUT, 0x102].held or 0
        if sent > 1.02 * most or max(kept / self.own, held / 100) < 0.98:
            verdict = "NOT HELD"
        else:
            verdict = "ok" if kept >= 0.98 * self.own else "ok by its class; its sender lacked the processor"
        text = f"sibling {kept:.1f} of its own {self.own:.1f} (class {held:.1f} of 100), attacker sends {sent:.1f} of {most:.0f}"
        say(f"cheating: {title}", f"{text}  {verdict}")


def cheating() -> None:
    with nic_network.network() as network:
        attacker, sibling = network.sharing(network.share(1, 100 * MEGA), network.share(2, 100 * MEGA))
        victim = Victim(network, sibling, measured(network, [nic_network.Flow(sibling.space)])[0])
        with contextlib.suppress(subprocess.CalledProcessError):
            attacker.space.run("tc", "qdisc", "del", "dev", "net1", "root")
        attacker.space.ip("link", "set", "net1", "type", "macvlan", "mode", "bridge")
        with flooding(attacker.space, "datagrams", nic_network.SERVER, "0"):
            victim.keeps("qdisc deleted, bridge mode")
        with flooding(attacker.space, "frames", "net1", sibling.mac):
            victim.keeps("sibling's address, raw frames")
        for priority in ("0xda0000", "0xda8001"):
            with flooding(attacker.space, "datagrams", nic_network.SERVER, priority):
                victim.keeps(f"socket priority {priority}")
        with netns.namespace() as nested:
            forward(attacker.space, nested)
            for title, forged in (("sibling's", sibling.mac), ("the NIC's", nic_network.NIC_MAC)):
                with flooding(nested, "frames", "out0", forged):
                    victim.keeps(f"forwarded, {title} address")
        attacker.space.ip("link", "set", "net1", "address", "02:de:ad:00:00:01")
        wire = str(network.network.links()["wire"]["address"])
        attacker.space.ip("neighbour", "replace", nic_network.SERVER, "lladdr", wire, "dev", "net1")
        with flooding(attacker.space, "datagrams", nic_network.SERVER, "0"):
            victim.keeps("another address")


def forward(pod: netns.Namespace, nested: netns.Namespace) -> None:
    """Send what comes from a nested namespace out of the pod's interface, as it is."""
    pod.ip("link", "add", "in0", "type", "veth", "peer", "name", "out0", "netns", nested.name)
    pod.ip("link", "set", "in0", "up")
    nested.ip("link", "set", "out0", "up")
    pod.run("tc", "qdisc", "add", "dev", "in0", "clsact")
    redirect = ("match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "net1")
    pod.run("tc", "filter", "add", "dev", "in0", "ingress", "protocol", "all", "u32", *redirect)


def reserve() -> None:
    with nic_network.network() as network:
        pods = network.sharing(*(network.share(number, 100 * MEGA, ceil=10**9) for number in (1, 2)), speed=300 * MEGA, reserve=100 * MEGA)
        flows = [nic_network.Flow(network.node), *(nic_network.Flow(pod.space, streams=4) for pod in pods)]
        say("host's reserve of 100M, NIC busy", against(measured(network, flows)[:1], [100 * GOODPUT], 0.02))


def latency() -> None:
    with nic_network.network() as network:
        (pod,) = network.sharing(network.share(1, 100 * MEGA))
        flow = nic_network.Flow(pod.space, streams=8)
        trips = [network.measure([flow], SECONDS)[0].round_trip for _ in range(RUNS)]
        trip = statistics.median(trips)
        say("latency at 100M with 8 flows", f"{trip:.1f} ms  {'ok' if trip < 25 else 'NOT BELOW 25 ms'}")


def bridged() -> None:
    """Siblings that chose bridge mode talk inside the host: what holds, with the limiter in the pod and when its root has deleted it."""
    with nic_network.network() as network:
        shares = [network.share(1, 100 * MEGA), network.share(2, 50 * MEGA), network.share(3, 100 * MEGA)]
        fast, slow, other = network.bridged(*shares)
        across = [nic_network.Flow(fast.space, target=slow), nic_network.Flow(slow.space, target=fast)]
        for title, flow in zip(("100M to 50M sibling", "50M to 100M sibling"), across, strict=True):
            (seen,) = measured(network, [flow])
            say(f"bridge: {title}", against([seen], [50 * GOODPUT], 0.02))
        slow.space.run("tc", "qdisc", "del", "dev", "net1", "root")
        (seen, kept) = measured(network, [across[1], nic_network.Flow(other.space)])
        fine = seen <= 1.02 * 100 * GOODPUT and kept >= 0.98 * 100 * GOODPUT
        text = f"50M sends {seen:.1f} into the 100M sibling's own 95.6, a third keeps {kept:.1f} of 95.6"
        say("bridge: limiter deleted by root", f"{text}  {'ok' if fine else 'NOT HELD'}")


def together() -> None:
    """Two pods of one claim: within the share's rate together, in equal parts whatever number of flows each has."""
    with nic_network.network() as network:
        share = network.share(1, 100 * MEGA)
        (first,) = network.sharing(share)
        flows = [nic_network.Flow(first.space, streams=8), nic_network.Flow(network.pod(2, share).space)]
        for title, back in (("outwards", False), ("inwards", True)):
            seen = measured(network, [dataclasses.replace(flow, reverse=back) for flow in flows])
            say(
                f"two pods of one 100M claim, {title}",
                f"{against([sum(seen)], [100 * GOODPUT], 0.02)}  8 flows {seen[0]:.1f}, 1 flow {seen[1]:.1f}",
            )


def turnover() -> None:
    """How long a share takes to be set up and removed."""
    for title, text in bench_nic_turnover.lines():
        say(title, text)


def main(folder: pathlib.Path) -> None:
    """Print the tables; where traffic cannot be measured, why."""
    del folder
    reason = nic_network.why_not()
    if reason:
        say("not measured", reason)
        return
    say("machine", f"{os.cpu_count()} processors, {table.load()}, TCP congestion control {nic_network.congestion()}")
    for row in ROWS:
        accuracy(row)
    for part in (guarantee, cheating, bridged, together, reserve, latency):
        with machine.watched() as usage:
            part()
        say(f"machine during {part.__name__}", usage.text)
    turnover()
    for title, text in bench_nic_churn.lines(10 if QUICK else bench_nic_churn.SECONDS):
        say(title, text)


if __name__ == "__main__":
    main(pathlib.Path())
