"""How long a share takes from the kubelet's call to an interface in the pod, and back, through everything that a real node has between.

``prepare`` is the engine with its journal, locks, CDI file and the kernel's classes. ``attach`` is the real client as a process, the socket, the
resident server, and the interface made and dressed in the pod's namespace; every second share is asked for over the socket alone, which leaves the
client's process out. Beside them stands the floor: a process that does nothing. Removal is compared with what the kernel takes to delete as many
bare interfaces from the same namespaces.
"""

import contextlib
import functools
import pathlib
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence

from bench import machine, table
from drakit.core import claim as claims
from drakit_nic.attach import server
from drakit_nic.netlink import rtnetlink
from fakes import netns, nic_attach, nic_network

SHARES, PODS, FLOOR_RUNS = 100, 20, 20
MEDIAN_MS, ALL_SECONDS, REMOVED_SECONDS = 15.0, 3.0, 1.0
_DELLINK, _IFINFO = 17, struct.Struct("=BxHiII")


def lines(count: int = SHARES) -> Iterator[tuple[str, str]]:
    """The table's lines: title, and what was seen."""
    with machine.watched() as usage, nic_attach.world() as world, contextlib.ExitStack() as stack:
        pods = [stack.enter_context(nic_attach.pod(f"5a{number}")) for number in range(min(PODS, count))]
        bare = _bare(world.node, pods, count)
        world.namespace = None
        yield from nic_network.inside(world.node, lambda: _lived(world, pods, count, bare))
    yield "machine during turnover", usage.text


def _lived(world: nic_attach.World, pods: Sequence[nic_attach.Pod], count: int, bare: float) -> list[tuple[str, str]]:
    with world.driver() as driver:
        return list(_measured(driver, pods, count, bare))


def _measured(driver: nic_attach.Running, pods: Sequence[nic_attach.Pod], count: int, bare: float) -> Iterator[tuple[str, str]]:
    floor = statistics.median(table.timed(_nothing) for _ in range(FLOOR_RUNS))
    made = [nic_attach.claim(number, bandwidth="50M", parameters={"interfaceName": f"net{number}"}) for number in range(1, count + 1)]
    prepared, by_client, by_socket = [], [], []
    for number, claim in enumerate(made):
        pod = pods[number % len(pods)]
        prepared.append(table.timed(functools.partial(driver.prepare, claim)))
        if number % 2:
            by_socket.append(table.timed(functools.partial(_ask, driver.world, claim, pod)))
        else:
            by_client.append(table.timed(functools.partial(_call, driver.world, claim, pod)))
    removed = [table.timed(functools.partial(driver.unprepare, claim.ref)) for claim in made]
    one = statistics.median(prepared) + statistics.median(by_client)
    every = (sum(prepared) + sum(by_client) * count / len(by_client)) / 1000
    yield "one share: prepare", table.spread(prepared)
    yield "one share: attach", f"{table.spread(by_client)}  (a process that does nothing: {floor:.2f} ms)"
    yield "one share: attach, socket alone", table.spread(by_socket)
    yield "one share: prepare and attach", f"p50 {one:.1f} ms  {_verdict(one < MEDIAN_MS, f'{MEDIAN_MS:.0f} ms')}"
    yield f"{count} shares: prepare and attach", f"{every:.2f} s  {_verdict(every < ALL_SECONDS, f'{ALL_SECONDS:.0f} s')}"
    beyond = sum(removed) / 1000 - bare
    text = f"{sum(removed) / 1000:.2f} s, of which bare deletion takes the kernel {bare:.2f} s"
    yield "one share: unprepare", table.spread(removed)
    yield f"{count} shares: unprepare", f"{text}  {_verdict(beyond < REMOVED_SECONDS, f'{REMOVED_SECONDS:.0f} s beyond')}"


def _verdict(met: bool, aim: str) -> str:  # noqa: FBT001 - a verdict is about one condition
    return "ok" if met else f"NOT WITHIN {aim}"


def _nothing() -> None:
    subprocess.run(["true"], check=True, env={}, input=b"", capture_output=True)


def _call(world: nic_attach.World, claim: claims.Claim, pod: nic_attach.Pod) -> None:
    said = world.call(claim.ref, pod)
    assert said.code == 0, said.stderr


def _ask(world: nic_attach.World, claim: claims.Claim, pod: nic_attach.Pod) -> None:
    """What the client says, without the client."""
    (result,) = claim.results
    words = ("attach 1", claim.ref.uid, result.device, result.share_id or server.NO_SHARE, "c1", pod.sandbox, pod.uid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking, pathlib.Path(pod.space.path).open("rb") as space:
        asking.connect(str(world.home / "attach.sock"))
        socket.send_fds(asking, ["\n".join(words).encode()], [space.fileno()])
        answer = asking.recv(server.ANSWER_MAX)
    assert answer == server.OK, answer


def _bare(node: netns.Namespace, pods: Sequence[nic_attach.Pod], count: int) -> float:
    """Seconds that the kernel takes to delete children of the NIC that nobody uses, one after the other."""
    for number in range(count):
        node.ip("link", "add", f"bare{number}", "link", "nic0", "netns", pods[number % len(pods)].space.name, "type", "macvlan")
    spent = 0.0
    for pod in pods:
        with rtnetlink.Socket.open(pod.space.name) as sock:
            for name, link in pod.space.links().items():
                if name.startswith("bare"):
                    body = _IFINFO.pack(0, 0, int(str(link["ifindex"])), 0, 0)
                    start = time.perf_counter()
                    sock.ask(_DELLINK, body)
                    spent += time.perf_counter() - start
    return spent
