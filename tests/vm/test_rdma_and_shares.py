"""What RDMA can do beside a share, on the kernel's software device (rxe).

The client is ``ibv_rc_pingpong``, whose partner on the wire answers its greeting and then no packet, so the client repeats what it sends. The message
is one packet: Debian's kernel 6.12 panics where a queue still has packets of rxe when the client ends.
"""

import contextlib
import dataclasses
import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from drakit_nic import kernel_port, port
from fakes import netns, nic_network
from vm import rdma_subsystem, virtual_functions

pytestmark = pytest.mark.timeout(900)
MAC = "02:00:00:00:0a:02"
HOST, POD, PARTNER = "10.9.0.1", "10.9.0.2", "10.9.0.9"
GREETING_PORT, ROCE_PORT = 18515, 4791
GREETING = b"0000:000011:000000:00000000000000000000ffff0a090009\0"
RATE = 10**7
BYTES = 1000
HOSTS_CLASS = "da:2"


@dataclasses.dataclass(frozen=True)
class Bench:
    """The igb NIC, shared; a pod with a share of it, its interface ``net1``; and a partner on the wire."""

    nic: str
    pod: netns.Namespace
    partner: netns.Namespace
    partner_nic: str
    machine: kernel_port.KernelPort
    share: port.Share

    def counted(self) -> int:
        """The bytes that the share's class has sent."""
        (traffic,) = self.machine.traffic()
        return traffic.egress.bytes

    def counted_as_hosts(self) -> int:
        """The bytes that the class of the host's own traffic has sent."""
        listed = json.loads(rdma_subsystem.run("tc", "-s", "-j", "class", "show", "dev", self.nic))
        (sent,) = (entry["stats"]["bytes"] for entry in listed if entry["handle"] == HOSTS_CLASS)
        return int(sent)

    def sends(self, device: str) -> str:
        """Send a message by an RDMA device, from the pod's namespace; what the client printed."""
        command = ("timeout", "40", "stdbuf", "-oL", "ibv_rc_pingpong", "-d", device, "-g", "1", "-n", "1", "-s", str(BYTES), PARTNER)
        with greeting(self.partner):
            ran = subprocess.run(("ip", "netns", "exec", self.pod.name, *command), capture_output=True, text=True, check=False, timeout=90)
        return ran.stdout + ran.stderr

    @contextlib.contextmanager
    def captured(self) -> Iterator[list[int]]:
        """The number of RoCE packets that the partner received meanwhile, in a list that is filled in the end."""
        words = (
            "ip",
            "netns",
            "exec",
            self.partner.name,
            "tcpdump",
            "-n",
            "-i",
            self.partner_nic,
            "-w",
            "/dev/null",
            "udp",
            "port",
            str(ROCE_PORT),
        )
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as dump:
            assert dump.stderr is not None
            while "listening" not in dump.stderr.readline():
                assert dump.poll() is None
            packets: list[int] = []
            try:
                yield packets
            finally:
                dump.send_signal(signal.SIGINT)
                found = re.search(r"(\d+) packets? received by filter", dump.stderr.read())
        assert found is not None
        packets.append(int(found[1]))


@contextlib.contextmanager
def greeting(partner: netns.Namespace) -> Iterator[None]:
    """The partner answers a client's greeting with an address of its own, behind which is no RDMA device."""
    listener = nic_network.inside(partner, lambda: socket.create_server(("", GREETING_PORT)))

    def answer() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as client:
            client.recv(len(GREETING), socket.MSG_WAITALL)
            client.sendall(GREETING)
            client.recv(len(b"done"), socket.MSG_WAITALL)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # The client may not have connected.
        listener.close()
        thread.join()


@contextlib.contextmanager
def shared_nic() -> Iterator[Bench]:
    virtual_functions.until(lambda: rdma_subsystem.interfaces_of("virtio_net"), "the NIC is still in the namespace of another test")
    (nic,), (partner_nic,) = rdma_subsystem.interfaces_of("igb"), rdma_subsystem.interfaces_of("virtio_net")
    rdma_subsystem.run("modprobe", "rdma_rxe")
    with contextlib.ExitStack() as stack:
        partner, pod = stack.enter_context(netns.namespace()), stack.enter_context(netns.namespace())
        rdma_subsystem.run("ip", "link", "set", nic, "up")
        rdma_subsystem.run("ip", "address", "add", f"{HOST}/24", "dev", nic)
        stack.callback(rdma_subsystem.run, "ip", "address", "flush", "dev", nic)
        rdma_subsystem.run("ip", "link", "set", partner_nic, "netns", partner.name)
        rdma_subsystem.run(
            "ip", "link", "add", "net1", "link", nic, "netns", pod.name, "address", MAC, "type", "macvlan", "mode", "private"
        )
        for space, name, address in ((partner, partner_nic, PARTNER), (pod, "net1", POD)):
            space.ip("address", "add", f"{address}/24", "dev", name)
            space.ip("link", "set", name, "up")
        machine = stack.enter_context(contextlib.closing(kernel_port.KernelPort(None)))
        interface = machine.interface(nic)
        assert interface is not None
        share = port.Share(id="rdma", interface=nic, ifindex=interface.ifindex, mac=MAC, bandwidth=RATE, minor=0x101)
        machine.install(port.Uplink(interface=nic, ifindex=interface.ifindex, mac=interface.mac, speed=10**9), share)
        stack.callback(machine.remove, share.id, share)
        machine.admit(share, cookie=nic_network.cookie_of(pod), mac=MAC)
        pod.run("ping", "-c", "1", "-w", "20", PARTNER)
        yield Bench(nic, pod, partner, partner_nic, machine, share)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with shared_nic() as made:
        yield made


@contextlib.contextmanager
def software_device(name: str, interface: str, *inside: str) -> Iterator[None]:
    rdma_subsystem.run(*inside, "rdma", "link", "add", name, "type", "rxe", "netdev", interface)
    try:
        rdma_subsystem.run("udevadm", "settle")
        yield
    finally:
        rdma_subsystem.run("rdma", "link", "delete", name)


def test_a_pod_without_net_admin_makes_no_software_device(bench: Bench) -> None:
    words = ("setpriv", "--bounding-set", "-net_admin", "rdma", "link", "add", "rxe9", "type", "rxe", "netdev", "net1")
    ran = subprocess.run(("ip", "netns", "exec", bench.pod.name, *words), capture_output=True, text=True, check=False)
    assert "Operation not permitted" in ran.stderr


def test_what_a_software_device_on_a_share_sends_is_in_the_hosts_class(bench: Bench) -> None:
    with software_device("rxe9", "net1", "ip", "netns", "exec", bench.pod.name), bench.captured() as packets:
        before = bench.counted_as_hosts()
        said = bench.sends("rxe9")
        counted = bench.counted_as_hosts() - before
    assert "remote address" in said, "the client sent nothing for another reason"
    assert packets[0] * BYTES <= counted


def test_in_shared_mode_a_device_node_of_the_host_leads_around_a_share(bench: Bench) -> None:
    with software_device("rxe0", bench.nic), bench.captured() as packets:
        before, host_before = bench.counted(), bench.counted_as_hosts()
        said = bench.sends("rxe0")
        counted, host_counted = bench.counted() - before, bench.counted_as_hosts() - host_before
    assert "remote address" in said
    assert packets[0] > 0, "the host's device sends"
    assert counted < packets[0] * BYTES, "the share does not count it"
    assert host_counted >= packets[0] * BYTES, "the host's reserve limits it"


def test_in_exclusive_mode_a_device_node_of_the_host_is_of_no_use() -> None:
    with rdma_subsystem.mode("exclusive"), shared_nic() as bench, software_device("rxe0", bench.nic), bench.captured() as packets:
        assert "IB device rxe0 not found" in bench.sends("rxe0")
    assert packets == [0]
