"""A shared NIC, the network behind it and pods on it, on the real kernel: namespaces joined by a veth pair, traffic by iperf3.

The node's ``nic0`` is one end of the pair; the other end, in a namespace of its own, is the network with one server. A pod is a namespace with a
macvlan child of the NIC, made by the ``ip`` tool as the driver's hook would make it, and admitted to a share.
"""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from drakit_nic import kernel_port, port
from drakit_nic.attach import sandboxes
from drakit_nic.netlink import rtnetlink
from drakit_nic.shaping import kernel_shares
from fakes import netns, waits

NIC_MAC = "02:00:00:00:00:20"
SERVER = "10.99.0.1"
HOST = "10.99.0.2"
EVERYBODY = "10.99.255.255"
_PORTS = itertools.count(5201)
_SURE_SECONDS, _LOOKS = 0.005, 20
Answer = TypeVar("Answer")
_CONGESTION = "cubic"
_ALGORITHMS = pathlib.Path("/proc/sys/net/ipv4")
Candidates = Callable[[], Iterable[kernel_shares.Enforcement]]
BY_NAMESPACE: Mapping[str, Candidates] = {"best": kernel_shares.enforcements, "memory": lambda: [kernel_shares.from_memory()]}
"""The ways to know the sender's namespace: the best one of this kernel, and the one of kernels without the helper."""


@dataclasses.dataclass(frozen=True)
class Pod:
    """A namespace with the interface ``net1`` on the NIC."""

    space: netns.Namespace
    mac: str
    address: str
    cookie: int


@dataclasses.dataclass(frozen=True)
class Flow:
    """One measured transfer: from a namespace to the server, or to another pod, or back; ``udp`` is a rate that is offered, of datagrams."""

    source: netns.Namespace
    reverse: bool = False
    streams: int = 1
    udp: int = 0
    target: Pod | None = None


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What iperf3 measured: goodput in bits per second at the receiver, and TCP's mean round trip in milliseconds."""

    goodput: float
    round_trip: float


class NicNetwork:
    """The node, its port, the network, and pods; made by ``network``."""

    def __init__(
        self,
        node: netns.Namespace,
        network: netns.Namespace,
        stack: contextlib.ExitStack,
        candidates: Candidates = kernel_shares.enforcements,
    ) -> None:
        self.node, self.network, self._stack = node, network, stack
        self.port = kernel_port.KernelPort(node.name, candidates=candidates)
        stack.callback(self.port.close)
        nic = self.port.interface("nic0")
        assert nic is not None
        self.nic = nic

    def uplink(self, speed: int = 10**10, reserve: int = 0) -> port.Uplink:
        return port.Uplink(interface="nic0", ifindex=self.nic.ifindex, mac=NIC_MAC, speed=speed, reserve=reserve)

    def share(self, number: int, bandwidth: int, ceil: int = 0) -> port.Share:
        return port.Share(
            id=f"share-{number}",
            interface="nic0",
            ifindex=self.nic.ifindex,
            mac=f"02:99:00:00:{number:02x}:00",
            bandwidth=bandwidth,
            ceil=ceil,
            minor=0x100 + number,
        )

    def pod(self, number: int, share: port.Share | None = None, *, mac: str = "", mode: str = "private") -> Pod:
        """A pod with a child of the NIC, admitted to the share if one is given."""
        space = self._stack.enter_context(netns.namespace())
        made = Pod(space=space, mac=mac or f"02:99:00:00:{number:02x}:01", address=f"10.99.1.{number}", cookie=cookie_of(space))
        self.node.ip("link", "add", "net1", "link", "nic0", "netns", space.name, "address", made.mac, "type", "macvlan", "mode", mode)
        space.ip_batch(("link", "set", "lo", "up"), ("address", "add", f"{made.address}/16", "dev", "net1"), ("link", "set", "net1", "up"))
        if share is not None:
            self.port.admit(share, cookie=made.cookie, mac=made.mac)
        return made

    def sharing(self, *shares: port.Share, speed: int = 10**10, reserve: int = 0) -> list[Pod]:
        """Shares installed, each with one pod."""
        for share in shares:
            self.port.install(self.uplink(speed, reserve), share)
        return [self.pod(number, share) for number, share in enumerate(shares, start=1)]

    def bridged(self, *shares: port.Share) -> list[Pod]:
        """Shares installed, each with one pod in bridge mode and the limiter that the driver gives such a pod."""
        for share in shares:
            self.port.install(self.uplink(), share)
        made = [self.pod(number, share, mode="bridge") for number, share in enumerate(shares, start=1)]
        kernel = sandboxes.KernelSandboxes(self.node.name)
        for pod, share in zip(made, shares, strict=True):
            with pathlib.Path(pod.space.path).open("rb") as file, kernel.opened(file.fileno()) as sandbox:
                link = sandbox.find("net1")
                assert link is not None
                sandbox.limit(link, share.bandwidth)
        return made

    def arriving(self, seconds: float = 1.5) -> float:
        """What the network receives from the NIC now, in megabits a second."""
        with counting(self.network, "wire") as received:
            return rates([received], seconds)[0]

    def measure(self, flows: Sequence[Flow], seconds: float) -> list[Transfer]:
        """All flows at once."""
        with contextlib.ExitStack() as servers, concurrent.futures.ThreadPoolExecutor(len(flows)) as threads:
            ports = [next(_PORTS) for _ in flows]
            for number, flow in zip(ports, flows, strict=True):
                servers.enter_context(_server(flow.target.space if flow.target else self.network, number))
            runs = [threads.submit(_run, flow, number, seconds) for flow, number in zip(flows, ports, strict=True)]
            return [run.result() for run in runs]


@contextlib.contextmanager
def counting(space: netns.Namespace, link: str) -> Iterator[Callable[[], int]]:
    """Reads the bytes that an interface has received, by one system call: a program started for it would read an unknown time later."""
    with inside(space, lambda: pathlib.Path("/proc/thread-self/net/dev").open("rb", buffering=0)) as file:

        def received() -> int:
            lines = os.pread(file.fileno(), 1 << 20, 0).decode().splitlines()
            (figures,) = (line.partition(":")[2] for line in lines if line.partition(":")[0].strip() == link)
            return int(figures.split()[0])

        yield received


def rates(counters: Sequence[Callable[[], int]], seconds: float) -> list[float]:
    """What counters of bytes gain now, in megabits a second."""
    start, before = timed(lambda: [read() for read in counters])
    time.sleep(seconds)
    end, after = timed(lambda: [read() for read in counters])
    return [(late - early) * 8 / 10**6 / (end - start) for early, late in zip(before, after, strict=True)]


def timed(read: Callable[[], Answer]) -> tuple[float, Answer]:
    """What was read, and when, to a few milliseconds: where others had the processor in the middle of a read, it is read again."""
    looks = []
    for _ in range(_LOOKS):
        before = time.monotonic()
        answer = read()
        after = time.monotonic()
        looks.append((after - before, (before + after) / 2, answer))
        if after - before <= _SURE_SECONDS:
            break
    _, moment, answer = min(looks, key=lambda look: look[0])
    return moment, answer


@contextlib.contextmanager
def _server(space: netns.Namespace, number: int) -> Iterator[None]:
    words = ["ip", "netns", "exec", space.name, "iperf3", "-s", "-p", str(number)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + waits.SECONDS
        while f":{number} " not in space.run("ss", "-ltn"):
            assert time.monotonic() < deadline, "iperf3 did not start"
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        server.wait(waits.SECONDS)
        if server.stdout:
            server.stdout.close()


def inside(space: netns.Namespace, work: Callable[[], Answer]) -> Answer:
    """The result of work done in a namespace, as by a process that lives there."""
    with pathlib.Path(space.path).open("rb") as file, concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(ctypes.CDLL(None).setns, file.fileno(), 0).result()
        return thread.submit(work).result()


def cookie_of(space: netns.Namespace) -> int:
    with rtnetlink.Socket.open(space.name) as sock:
        return sock.cookie


@contextlib.contextmanager
def network(candidates: Candidates = kernel_shares.enforcements, *, queues: int = 1) -> Iterator[NicNetwork]:
    several = ("numtxqueues", str(queues), "numrxqueues", str(queues)) if queues > 1 else ()
    with contextlib.ExitStack() as stack:
        node, network = stack.enter_context(netns.namespace()), stack.enter_context(netns.namespace())
        node.ip_batch(
            ("link", "set", "lo", "up"),
            ("link", "add", "nic0", "address", NIC_MAC, *several, "type", "veth", "peer", "name", "wire", *several, "netns", network.name),
            ("address", "add", f"{HOST}/16", "dev", "nic0"),
            ("link", "set", "nic0", "up"),
        )
        network.ip_batch(("address", "add", f"{SERVER}/16", "dev", "wire"), ("link", "set", "wire", "up"))
        yield NicNetwork(node, network, stack, candidates)


@functools.cache
def congestion() -> str:
    """TCP's congestion control in every flow: cubic, Linux's own default, else what this machine has.

    One that paces itself (bbr) spends several times the processor on each frame, and on two processors measures them instead of the shares.
    """
    available = (_ALGORITHMS / "tcp_available_congestion_control").read_text().split()
    return _CONGESTION if _CONGESTION in available else (_ALGORITHMS / "tcp_congestion_control").read_text().strip()


def why_not() -> str:
    """Why traffic cannot be measured here; empty when it can."""
    missing = [tool for tool in ("iperf3", "ss", "ping") if shutil.which(tool) is None]
    return f"{', '.join(missing)} is not installed" if missing else netns.why_not()


def _run(flow: Flow, number: int, seconds: float) -> Transfer:
    address = flow.target.address if flow.target else SERVER
    words = [
        "iperf3",
        "-c",
        address,
        "-p",
        str(number),
        "-t",
        str(int(seconds)),
        "-J",
        "-P",
        str(flow.streams),
        "--connect-timeout",
        "5000",
    ]
    words += ["-R"] if flow.reverse else []
    words += ["-u", "-b", str(flow.udp // flow.streams), "-l", "1400"] if flow.udp else ["-C", congestion()]
    result = json.loads(flow.source.run(*words, timeout=seconds + 30))
    assert "error" not in result, result["error"]
    end = result["end"]
    received = end["sum_received"]
    trips = [stream.get("sender", {}).get("mean_rtt", 0) for stream in end["streams"]]
    return Transfer(goodput=received["bits_per_second"], round_trip=sum(trips) / len(trips) / 1000)
