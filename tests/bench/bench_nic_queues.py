"""How many frames a second one HTB tree carries on a NIC with several transmit queues, against ``mq`` and against no queueing at all.

The NIC is a veth pair with eight queues, of which each processor uses its own (XPS), as on hardware. Pods are namespaces with a macvlan child. Each
sends frames from one processor, as many as it can; its share is far above that, so that the table shows the cost of queueing and not a limit. What
arrives is dropped at once, so that little else costs time. Every round measures all kinds of queueing one after the other; the median counts.

``one HTB, shares`` is what drakit installs for 64 shares. ``one HTB`` is the same kind of tree without a classifier, and ``one HTB a queue`` is that
tree below each queue of ``mq``: the difference between the two is what the one lock costs. ``fq a queue`` is where departure times would be kept,
without the program that computes them.

``under the lock`` is the bound that follows for any number of processors: what a share costs beyond no queueing at all is nearly all done under the
tree's one lock.

Frames for each second of the senders' processor time depend little on what else the machine does; frames a second do. The senders have a raised
priority, so that those of two processors do run at the same time. Needs root.
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench import machine, table
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import bpf, tc_messages
from fakes import frame_sender, netns, nic_network

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS, ROUNDS = (0.5, 1) if QUICK else (1.0, 5)
QUEUES, SHARES = 8, 64
GIGA = 10**9
SIZES = (60, 1514)
SENDER = str(pathlib.Path(frame_sender.__file__))
_DROP = 2
_HTB = ("htb", "default", "1", "direct_qlen", "0")
_CLASS = ("htb", "rate", "100gbit", "quantum", "65536")


def say(title: str, text: str) -> None:
    sys.stdout.write(f"queues: {title:34s} {text}\n")
    sys.stdout.flush()


def tc(space: netns.Namespace, *words: str) -> None:
    space.run("tc", *words)


def no_queueing(network: nic_network.NicNetwork) -> None:
    tc(network.node, "qdisc", "replace", "dev", "nic0", "root", "noqueue")


def multiqueue(network: nic_network.NicNetwork, *leaf: str) -> None:
    tc(network.node, "qdisc", "replace", "dev", "nic0", "root", "handle", "1:", "mq")
    for number in range(1, QUEUES + 1) if leaf else ():
        tc(network.node, "qdisc", "replace", "dev", "nic0", "parent", f"1:{number:x}", "handle", f"{0x10 + number:x}:", *leaf)


def tree(network: nic_network.NicNetwork) -> None:
    tc(network.node, "qdisc", "replace", "dev", "nic0", "root", "handle", "1:", *_HTB)
    tc(network.node, "class", "add", "dev", "nic0", "parent", "1:", "classid", "1:1", *_CLASS)


def tree_of_each_queue(network: nic_network.NicNetwork) -> None:
    multiqueue(network, *_HTB)
    for number in range(1, QUEUES + 1):
        major = f"{0x10 + number:x}"
        tc(network.node, "class", "add", "dev", "nic0", "parent", f"{major}:", "classid", f"{major}:1", *_CLASS)


def shares(network: nic_network.NicNetwork, pods: Sequence[nic_network.Pod]) -> None:
    """What drakit installs, without the ingress side, which the benchmark does not use."""
    uplink = network.uplink(100 * GIGA)
    for number in range(1, SHARES + 1):
        network.port.install(uplink, network.share(number, GIGA, ceil=100 * GIGA))
    for number, pod in enumerate(pods, start=1):
        network.port.admit(network.share(number, GIGA, ceil=100 * GIGA), cookie=pod.cookie, mac=pod.mac)


def unshare(network: nic_network.NicNetwork) -> None:
    for share in network.port.shares():
        network.port.remove(share.id)


def kinds(network: nic_network.NicNetwork, pods: Sequence[nic_network.Pod]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each kind of queueing, with what installs it."""
    yield "no qdisc", lambda: no_queueing(network)
    yield "mq", lambda: multiqueue(network)
    yield "one HTB", lambda: tree(network)
    yield "one HTB a queue", lambda: tree_of_each_queue(network)
    if netns.has_qdisc("fq"):
        yield "fq a queue", lambda: multiqueue(network, "fq")
    yield "one HTB, shares", lambda: shares(network, pods)


@contextlib.contextmanager
def discarding(space: netns.Namespace, link: str) -> Iterator[None]:
    """Drop what arrives before any protocol sees it."""
    ifindex = int(str(space.links()[link]["ifindex"]))
    with rtnetlink.Socket.open(space.name) as sock:
        tc_messages.add_hooks(sock, ifindex)
        program = bpf.load("drop", _returning(_DROP))
        try:
            tc_messages.put_filter(sock, ifindex, tc_messages.HOOK_INGRESS, program=program, name="drop", action=True)
            yield
        finally:
            os.close(program)


def _returning(value: int) -> bytes:
    return bytes.fromhex("b7000000") + value.to_bytes(4, sys.byteorder) + bytes.fromhex("9500000000000000")


def transmitted(network: nic_network.NicNetwork) -> int:
    """Frames that the NIC has sent."""
    text = network.node.run("cat", "/sys/class/net/nic0/statistics/tx_packets")
    return int(text)


@contextlib.contextmanager
def ready(pods: Sequence[nic_network.Pod], size: int) -> Iterator[list[subprocess.Popen[str]]]:
    """One sender for each pod, each on a processor of its own as far as there are enough."""
    with contextlib.ExitStack() as stack:
        senders = []
        for number, pod in enumerate(pods):
            words = ["nice", "-n", "-10", "taskset", "-c", str(number % (os.cpu_count() or 1)), "ip", "netns", "exec", pod.space.name]
            words += [sys.executable, SENDER, str(SECONDS), "net1", pod.mac, str(size)]
            sender = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            senders.append(stack.enter_context(sender))
        time.sleep(0.3)
        yield senders


def measured(network: nic_network.NicNetwork, pods: Sequence[nic_network.Pod], size: int) -> tuple[float, float]:
    """Frames a second, and frames for each second of the senders' processor time; both in millions."""
    with ready(pods, size) as senders:
        before, start = transmitted(network), time.monotonic()
        for sender in senders:
            assert sender.stdin is not None
            sender.stdin.write("\n")
            sender.stdin.close()
        used = [float(sender.stdout.read()) for sender in senders if sender.stdout]
        frames, seconds = transmitted(network) - before, time.monotonic() - start
    return frames / seconds / 1e6, frames / sum(used) / 1e6


def spread_over_queues(network: nic_network.NicNetwork) -> None:
    """Let each processor send on queues of its own."""
    for queue in range(QUEUES):
        mask = f"{1 << queue % (os.cpu_count() or 1):x}"
        network.node.run("sh", "-c", f"echo {mask} >/sys/class/net/nic0/queues/tx-{queue}/xps_cpus")


@contextlib.contextmanager
def installed(network: nic_network.NicNetwork, install: Callable[[], None]) -> Iterator[None]:
    """The NIC with one kind of queueing."""
    install()
    yield
    if network.port.shares():
        unshare(network)
    else:
        tc(network.node, "qdisc", "delete", "dev", "nic0", "root")


def compare(network: nic_network.NicNetwork, pods: Sequence[nic_network.Pod], size: int) -> None:
    """Print one table: so many senders, frames of one size."""
    figures: dict[str, list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for name, install in kinds(network, pods):
            with installed(network, install):
                figures.setdefault(name, []).append(measured(network, pods, size))
    print_table(figures, f"{len(pods)} of {size} bytes")
    bare, shared = (statistics.median(each for _, each in figures[name]) for name in ("no qdisc", "one HTB, shares"))
    if shared < bare:
        say(
            f"{len(pods)} of {size} bytes, under the lock",
            f"at most {1 / (1 / shared - 1 / bare):6.3f} M frames/s on any number of processors",
        )


def print_table(figures: Mapping[str, Sequence[tuple[float, float]]], title: str) -> None:
    floor = statistics.median(each for _, each in figures["mq"])
    for name, runs in figures.items():
        rate, efficiency = (statistics.median(column) for column in zip(*runs, strict=True))
        text = f"{rate:6.3f} M frames/s  {efficiency:6.3f} M for a processor's second  {efficiency / floor:5.2f} of mq"
        say(f"{title}, {name}", text)


def main(folder: pathlib.Path) -> None:
    """Print the tables; where frames cannot be sent, why."""
    del folder
    reason = nic_network.why_not()
    if reason:
        say("not measured", reason)
        return
    say("machine", f"{os.cpu_count()} processors, {os.uname().release}, {table.load()}")
    with machine.watched() as usage, nic_network.network(queues=QUEUES) as network:
        spread_over_queues(network)
        pods = [network.pod(number) for number in range(1, (os.cpu_count() or 1) + 1)]
        with discarding(network.network, "wire"):
            for count in sorted({1, len(pods)}):
                for size in SIZES:
                    compare(network, pods[:count], size)
    say("machine", usage.text)


if __name__ == "__main__":
    main(pathlib.Path())
