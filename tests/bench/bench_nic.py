"""Bandwidth shares on the real kernel: accuracy, guarantee, cheating, the host's reserve, latency, and how long setting up and removing takes.

NICs are veth pairs and pods are namespaces; traffic is iperf3's, for 5 s, three times, of which the median counts. Every row of the table first runs
the same flows unshaped: where their total is below 1.5 times what is asked, the row says "machine too slow" and nothing else. Goodput is compared
with 0.956 of the rate, which is what TCP can carry in full Ethernet frames of 1500 bytes (rates count link-layer bytes, as HTB does).

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

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import names, quantity
from drakit.devices.nic import config, netlink, port
from drakit.devices.nic import driver as nic_driver
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic import share as shares
from fakes import flood, netns, nic_town

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS, RUNS = (2, 1) if QUICK else (5, 3)
MEGA = 10**6
GOODPUT = 0.956
ENOUGH = 1.5
SHARES = 100
FLOOD = str(pathlib.Path(flood.__file__))


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

    def flows(self, pods: Sequence[nic_town.Pod]) -> list[nic_town.Flow]:
        reverses = {"out": [False], "in": [True], "both": [False, True]}[self.ways]
        return [nic_town.Flow(pod.space, reverse=reverse) for reverse in reverses for pod in pods]


ROWS = [
    *(Row(rate, shares, ways) for rate in (100, 500, 1000) for shares in (1, 2, 4) for ways in ("out", "in")),
    *(Row(rate, shares, "both") for rate in (100, 500) for shares in (1, 2, 4)),
    Row(5000, 1, "out"),
    Row(5000, 1, "in"),
]


def say(title: str, text: str) -> None:
    sys.stdout.write(f"nic: {title:34s} {text}\n")
    sys.stdout.flush()


def measured(town: nic_town.Town, flows: Sequence[nic_town.Flow]) -> list[float]:
    """Median goodput of each flow in Mbit/s."""
    runs = [[seen.goodput / MEGA for seen in town.measure(flows, SECONDS)] for _ in range(RUNS)]
    return [statistics.median(figures) for figures in zip(*runs, strict=True)]


def unshaped(town: nic_town.Town, flows: Sequence[nic_town.Flow]) -> float:
    """Goodput of all flows together in Mbit/s, while no share is installed."""
    return sum(seen.goodput for seen in town.measure(flows, 2)) / MEGA


def against(figures: Sequence[float], ideals: Sequence[float], tolerance: float) -> str:
    """The figures, how far the worst one is off, and whether that is within the tolerance."""
    worst = max((figure / ideal - 1 for figure, ideal in zip(figures, ideals, strict=True)), key=abs)
    verdict = "ok" if abs(worst) <= tolerance else f"NOT WITHIN {tolerance:.0%}"
    return f"{' '.join(f'{figure:.1f}' for figure in figures)}  worst {worst:+.1%} {verdict}"


def admitted(town: nic_town.Town, pods: Sequence[nic_town.Pod], asked: Sequence[port.Share], uplink: port.Uplink) -> None:
    for pod, share in zip(pods, asked, strict=True):
        town.port.install(uplink, share)
        town.port.admit(share, cookie=pod.cookie, mac=pod.mac)


def accuracy(row: Row) -> None:
    with nic_town.town() as town:
        pods = [town.pod(number) for number in range(1, row.shares + 1)]
        flows = row.flows(pods)
        total = unshaped(town, flows)
        if total < ENOUGH * row.rate * len(flows):
            say(f"accuracy {row.title}", f"machine too slow: {total:.0f} unshaped for {row.rate * len(flows)}")
            return
        admitted(town, pods, [town.share(number, row.rate * MEGA) for number in range(1, row.shares + 1)], town.uplink(4 * 10**10))
        figures = measured(town, flows)
        say(f"accuracy {row.title}", f"{against(figures, [row.rate * GOODPUT] * len(flows), row.tolerance)}  unshaped {total:.0f}")


def guarantee() -> None:
    rates = [100, 200, 300, 400]
    with nic_town.town() as town:
        pods = [town.pod(number) for number in range(1, 5)]
        flows = [nic_town.Flow(pod.space) for pod in pods]
        total = unshaped(town, flows)
        if total < ENOUGH * sum(rates):
            say("guarantee", f"machine too slow: {total:.0f} unshaped for {sum(rates)}")
            return
        asked = [town.share(number, rate * MEGA, ceil=10**9) for number, rate in enumerate(rates, start=1)]
        admitted(town, pods, asked, town.uplink(10**9))
        say("guarantee 100/200/300/400 of 1G", against(measured(town, flows), [rate * GOODPUT for rate in rates], 0.02))
        back = [dataclasses.replace(flow, reverse=True) for flow in flows]
        say("guarantee, inwards", against(measured(town, back), [rate * GOODPUT for rate in rates], 0.02))
        say("the 100M share alone", against(measured(town, flows[:1]), [1000 * GOODPUT], 0.02))


@contextlib.contextmanager
def flooding(space: netns.Namespace, kind: str, *words: str) -> Iterator[None]:
    process = subprocess.Popen(["ip", "netns", "exec", space.name, sys.executable, FLOOD, kind, "120", *words])
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def arriving(town: nic_town.Town) -> float:
    """What the network receives now in Mbit/s, counted as HTB counts; the median of the runs."""
    time.sleep(0.3)
    seen = []
    for _ in range(RUNS):
        before, start = town.received(), time.monotonic()
        time.sleep(SECONDS)
        seen.append((town.received() - before) * 8 / MEGA / (time.monotonic() - start))
    return statistics.median(seen)


def attack(title: str, town: nic_town.Town, sibling: nic_town.Pod, most: float) -> None:
    """What a sibling of 100M keeps while an attack runs, and what the attack brings onto the wire beside at most ``most``."""
    (kept,) = measured(town, [nic_town.Flow(sibling.space)])
    sent = arriving(town)
    fine = kept >= 0.98 * 100 * GOODPUT and sent <= 1.02 * most
    say(f"cheating: {title}", f"sibling {kept:.1f} of 95.6, attacker sends {sent:.1f} of {most:.0f}  {'ok' if fine else 'NOT HELD'}")


def cheating() -> None:
    with nic_town.town() as town:
        attacker, sibling = town.sharing(town.share(1, 100 * MEGA), town.share(2, 100 * MEGA))
        with contextlib.suppress(subprocess.CalledProcessError):
            attacker.space.run("tc", "qdisc", "del", "dev", "net1", "root")
        attacker.space.ip("link", "set", "net1", "type", "macvlan", "mode", "bridge")
        with flooding(attacker.space, "datagrams", nic_town.SERVER, "0"):
            attack("qdisc deleted, bridge mode", town, sibling, 100)
        with flooding(attacker.space, "frames", "net1", sibling.mac):
            attack("sibling's address, raw frames", town, sibling, 100)
        for priority in ("0xda0000", "0xda8001"):
            with flooding(attacker.space, "datagrams", nic_town.SERVER, priority):
                attack(f"socket priority {priority}", town, sibling, 100)
        with netns.namespace() as nested:
            forward(attacker.space, nested)
            for title, forged in (("sibling's", sibling.mac), ("the NIC's", nic_town.NIC_MAC)):
                with flooding(nested, "frames", "out0", forged):
                    attack(f"forwarded, {title} address", town, sibling, 100)
        attacker.space.ip("link", "set", "net1", "address", "02:de:ad:00:00:01")
        wire = str(town.network.links()["wire"]["address"])
        attacker.space.ip("neighbour", "replace", nic_town.SERVER, "lladdr", wire, "dev", "net1")
        with flooding(attacker.space, "datagrams", nic_town.SERVER, "0"):
            attack("another address", town, sibling, 100)


def forward(pod: netns.Namespace, nested: netns.Namespace) -> None:
    """Send what comes from a nested namespace out of the pod's interface, as it is."""
    pod.ip("link", "add", "in0", "type", "veth", "peer", "name", "out0", "netns", nested.name)
    pod.ip("link", "set", "in0", "up")
    nested.ip("link", "set", "out0", "up")
    pod.run("tc", "qdisc", "add", "dev", "in0", "clsact")
    redirect = ("match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "net1")
    pod.run("tc", "filter", "add", "dev", "in0", "ingress", "protocol", "all", "u32", *redirect)


def reserve() -> None:
    with nic_town.town() as town:
        pods = town.sharing(*(town.share(number, 100 * MEGA, ceil=10**9) for number in (1, 2)), speed=300 * MEGA, reserve=100 * MEGA)
        flows = [nic_town.Flow(town.node), *(nic_town.Flow(pod.space, streams=4) for pod in pods)]
        say("host's reserve of 100M, NIC busy", against(measured(town, flows)[:1], [100 * GOODPUT], 0.02))


def latency() -> None:
    with nic_town.town() as town:
        (pod,) = town.sharing(town.share(1, 100 * MEGA))
        flow = nic_town.Flow(pod.space, streams=8)
        trips = [town.measure([flow], SECONDS)[0].round_trip for _ in range(RUNS)]
        trip = statistics.median(trips)
        say("latency at 100M with 8 flows", f"{trip:.1f} ms  {'ok' if trip < 25 else 'NOT BELOW 25 ms'}")


def turnover() -> None:
    """How long the driver takes to plan, install and admit a share, and to remove it."""
    with nic_town.town() as town:
        spent, removed = nic_town.inside(town.node, _turn_over)
    median, total = statistics.median(spent), sum(spent) / 1000
    say("one share: plan, prepare, admit", f"p50 {median:.1f} ms, p95 {sorted(spent)[95 * SHARES // 100]:.1f} ms")
    fine = median < 15 and total < 3 and removed < 1
    say(f"{SHARES} shares", f"set up {total:.2f} s, removed {removed:.2f} s  {'ok' if fine else 'NOT WITHIN 15 ms, 3 s and 1 s'}")


def _turn_over() -> tuple[list[float], float]:
    """Milliseconds for each share, and seconds to remove all."""
    rule = nic_settings.InterfaceRule(match="nic0", speed=quantity.Quantity.of("40G"))
    settings = nic_settings.NicSettings(include=("nic0",), offer_addressed=True, interfaces=(rule,))
    machine = netlink.KernelPort()
    machine.shaping()
    author = nic_driver.NicDriver(machine, node="bench", settings=settings)
    device = author.discover().by_name()["nic0"]
    spent, grants = [], []
    for number in range(SHARES):
        asked = drivers.Grant(
            claim=claims.ClaimRef(uid=names.ClaimUid(f"00000000-0000-4000-8000-{number:012}"), namespace="bench", name="net"),
            request="net",
            pool="bench",
            device=device,
            config=config.NicConfig(),
            share_id=names.ShareId(f"a671734a-0000-4000-8000-{number:012}"),
            consumed_capacity={"bandwidth": quantity.Quantity.of("100M")},
        )
        start = time.perf_counter()
        planned = dataclasses.replace(asked, intent=author.plan(asked))
        share = shares.from_record(author.prepare(planned).record)
        if share is not None:
            machine.admit(share, cookie=10**6 + number, mac=share.mac)
        spent.append(1000 * (time.perf_counter() - start))
        grants.append(planned)
    start = time.perf_counter()
    for grant in grants:
        author.unprepare(grant)
    machine.close()
    return spent, time.perf_counter() - start


def main(folder: pathlib.Path) -> None:
    """Print the tables; where traffic cannot be measured, why."""
    del folder
    reason = nic_town.why_not()
    if reason:
        say("not measured", reason)
        return
    for row in ROWS:
        accuracy(row)
    for part in (guarantee, cheating, reserve, latency, turnover):
        part()


if __name__ == "__main__":
    main(pathlib.Path())
