"""A whole NIC is moved with its RDMA device, on the kernel's RDMA subsystem, in both of its modes."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import signal
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import errors
from drakit_nic import kernel_port, pod_interfaces
from drakit_nic import options as nic_options
from drakit_nic.attach import sandboxes
from drakit_nic.discovery import attributes
from drakit_nic.passthrough import whole_interface
from fakes import netns, nic_attach
from vm import rdma_subsystem, virtual_functions

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not rdma_subsystem.can_load(), reason="the test module of RDMA devices was not built for this kernel"),
]
NODES = pathlib.Path("/dev/infiniband")
CLAIM = nic_attach.claim(1).ref


@dataclasses.dataclass(frozen=True)
class Node:
    """This machine as a node whose igb NIC is offered whole, with the name of the NIC's RDMA device."""

    world: nic_attach.World
    nic: str
    device: str

    @property
    def claim(self) -> claims.Claim:
        address = pathlib.Path(f"/sys/class/net/{self.nic}/device").resolve().name.replace(":", "-").replace(".", "-")
        base = nic_attach.claim(1)
        result = dataclasses.replace(base.results[0], device=f"pci-{address}-whole", share_id=None, consumed_capacity={})
        return dataclasses.replace(base, results=(result,))

    def state(self) -> dict[str, object]:
        """The NIC as the host sees it."""
        link = json.loads(rdma_subsystem.run("ip", "-j", "link", "show", "dev", self.nic))[0]
        return {key: link[key] for key in ("ifname", "address", "mtu")} | {"alias": link.get("ifalias", ""), "up": "UP" in link["flags"]}

    def attach(self, driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
        """Move the claim's NIC into a pod, as the attach hook does, whose runtime waits too shortly for an emulated machine."""
        (grant,) = driver.local.context.grants()
        wanted = pod_interfaces.InterfaceConfig(name="fast0", addresses=("10.9.0.1/24",))
        with pathlib.Path(pod.space.path).open() as opened:
            child = pod_interfaces.InterfaceRef(namespace=opened.fileno(), name=wanted.name)
            sandboxes.KernelSandboxes().move_in(whole_interface.passthrough(grant, None), child, wanted)

    def nodes(self) -> list[str]:
        """The device nodes of the claim's CDI file."""
        (edits,) = self.world.edits(CLAIM)
        return [node["path"] for node in edits.get("deviceNodes", ())]


@contextlib.contextmanager
def node_in(mode: str) -> Iterator[Node]:
    (nic,) = rdma_subsystem.interfaces_of("igb")
    with rdma_subsystem.mode(mode), rdma_subsystem.loaded([nic]) as (device,), tempfile.TemporaryDirectory(prefix="dk") as folder:
        rdma_subsystem.run("ip", "link", "set", nic, "up")
        rule = nic_options.NicRule(match=nic, speed=nic_attach.BITS("1G"))
        settings = nic_options.NicOptions(whole=(nic,), rules=(rule,))
        world = nic_attach.World(netns.Namespace("of the host"), pathlib.Path(folder), settings)
        world.namespace = None
        yield Node(world, nic, device)


@pytest.fixture
def exclusive() -> Iterator[Node]:
    with node_in("exclusive") as made:
        yield made


@pytest.fixture
def shared() -> Iterator[Node]:
    with node_in("shared") as made:
        yield made


def is_character_device(path: str) -> bool:
    return stat.S_ISCHR(pathlib.Path(path).stat().st_mode)


def test_the_slice_names_the_device_of_the_whole_form_only(shared: Node) -> None:
    with shared.world.driver() as driver:
        offered = nic_attach.author_of(driver).discover().devices
    forms = {device.attributes[attributes.FORM]: device.attributes for device in offered if device.attributes["ifName"] == shared.nic}
    assert {form: (of["dra.net/rdma"], of["dra.net/rdmaDevice"]) for form, of in forms.items()} == {
        "shared": (False, ""),
        "whole": (True, shared.device),
    }


def test_in_exclusive_mode_the_device_moves_with_its_nic_and_returns(exclusive: Node) -> None:
    node, before = exclusive, exclusive.state()
    with node.world.driver() as driver, nic_attach.pod() as pod:
        driver.prepare(node.claim)
        assert node.nodes() == ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"]
        assert all(map(is_character_device, node.nodes()))
        node.attach(driver, pod)
        assert (rdma_subsystem.names(), rdma_subsystem.names(pod.space.name)) == ([], [node.device])
        assert "netdev fast0" in pod.space.run("rdma", "link"), "the device is on the pod's interface"
        node.attach(driver, pod)  # For each container of the pod.
        pod.space.run("rdma", "dev", "set", node.device, "name", "renamed")
        driver.unprepare(CLAIM)
        assert (rdma_subsystem.names(), rdma_subsystem.names(pod.space.name)) == ([node.device], [])
    assert node.state() == before


def test_in_shared_mode_the_pod_gets_only_the_device_nodes(shared: Node) -> None:
    with shared.world.driver() as driver, nic_attach.pod() as pod:
        driver.prepare(shared.claim)
        assert shared.nodes() == ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"]
        shared.attach(driver, pod)
        assert rdma_subsystem.names() == rdma_subsystem.names(pod.space.name) == [shared.device]
        driver.unprepare(CLAIM)


def test_a_device_that_a_dead_pod_renamed_has_its_name_again(exclusive: Node) -> None:
    node, before = exclusive, exclusive.state()
    with node.world.driver() as driver:
        driver.prepare(node.claim)
        with nic_attach.pod() as pod:
            node.attach(driver, pod)
            pod.space.run("rdma", "dev", "set", node.device, "name", "renamed")
        driver.unprepare(CLAIM)
    assert rdma_subsystem.names() == [node.device]
    assert node.state() == before


def test_a_driver_that_died_leaves_a_device_that_the_next_one_returns(exclusive: Node) -> None:
    node, before = exclusive, exclusive.state()
    with nic_attach.pod() as pod:
        with node.world.driver() as driver:
            driver.prepare(node.claim)
            node.attach(driver, pod)
        with node.world.driver() as driver:
            assert rdma_subsystem.names(pod.space.name) == [node.device]
            driver.unprepare(CLAIM)
        assert rdma_subsystem.names() == [node.device]
    assert node.state() == before


def test_an_attach_fails_where_the_move_changes_the_device_nodes() -> None:
    (nic,) = rdma_subsystem.interfaces_of("virtio_net")
    rdma_subsystem.run("modprobe", "rdma_rxe")
    rdma_subsystem.run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", nic)
    with contextlib.ExitStack() as stack:
        deleted = stack.enter_context(contextlib.ExitStack())
        deleted.callback(rdma_subsystem.run, "rdma", "link", "delete", "rxe0")
        node = stack.enter_context(node_in("exclusive"))
        before = node.state()
        with node.world.driver() as driver, nic_attach.pod() as pod:
            driver.prepare(node.claim)
            assert node.nodes()[0] == "/dev/infiniband/uverbs1"
            deleted.close()
            with pytest.raises(errors.HardwareError, match=r"nodes \(uverbs0, rdma_cm\) than .* with \(uverbs1, rdma_cm\); delete the pod"):
                node.attach(driver, pod)
            driver.unprepare(CLAIM)
            assert rdma_subsystem.names() == [node.device], "the host has it again"
            driver.prepare(node.claim)
            assert node.nodes()[0] == "/dev/infiniband/uverbs0"
            node.attach(driver, pod)
            driver.unprepare(CLAIM)
        assert node.state() == before


def test_a_claim_whose_device_was_made_anew_fails_and_can_be_unprepared(exclusive: Node) -> None:
    node, before = exclusive, exclusive.state()
    with node.world.driver() as driver, nic_attach.pod() as pod:
        driver.prepare(node.claim)
        rdma_subsystem.run("rmmod", "drakit_rdma")
        rdma_subsystem.run("insmod", str(rdma_subsystem.MODULE), f"interfaces={node.nic}")
        with pytest.raises(errors.HardwareError, match=r"is gone; delete the pod"):
            node.attach(driver, pod)
        driver.unprepare(CLAIM)
    assert node.state() == before


def test_a_nic_with_a_software_device_is_not_moved() -> None:
    (nic,) = rdma_subsystem.interfaces_of("igb")
    rdma_subsystem.run("modprobe", "rdma_rxe")
    with tempfile.TemporaryDirectory(prefix="dk") as folder, contextlib.ExitStack() as stack:
        rdma_subsystem.run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", nic)
        stack.callback(rdma_subsystem.run, "rdma", "link", "delete", "rxe0")
        rule = nic_options.NicRule(match=nic, speed=nic_attach.BITS("1G"))
        world = nic_attach.World(netns.Namespace("of the host"), pathlib.Path(folder), nic_options.NicOptions(whole=(nic,), rules=(rule,)))
        world.namespace = None
        node = Node(world, nic, "rxe0")
        with world.driver() as driver, pytest.raises(AssertionError, match=r"rxe0.*rdma link delete rxe0"):
            driver.prepare(node.claim)
        assert rdma_subsystem.names() == ["rxe0"]


def test_a_driver_killed_at_any_step_loses_neither_function_nor_device() -> None:
    with (
        virtual_functions.parent(1) as parent,
        rdma_subsystem.mode("exclusive"),
        rdma_subsystem.loaded(parent.interfaces()) as (device,),
    ):
        host, (function,) = kernel_port.KernelPort(), parent.interfaces()
        former = host.host_state(function)
        assert former is not None
        assert former.rdma is not None
        whole = pod_interfaces.Passthrough(mark=pod_interfaces.mark_of("rdma"), host_state=former)
        step, died = 0, True
        while died:
            step += 1
            with netns.namespace() as pod, pathlib.Path(pod.path).open() as opened:
                child = pod_interfaces.InterfaceRef(namespace=opened.fileno(), name="fast0")
                host.mark(former, whole.mark)
                died = killed(step, functools.partial(move_in, whole, child))
                if not died:
                    assert rdma_subsystem.names(pod.name) == [device]
                killed(step, lambda kernel: kernel.return_to_host(whole))
                assert host.return_to_host(whole)
                assert rdma_subsystem.names() == [device], step
                assert host.host_state(function) == former, step
        assert step > 5, "each request to the kernel is a step"
        host.close()


def move_in(whole: pod_interfaces.Passthrough, child: pod_interfaces.InterfaceRef, kernel: sandboxes.KernelSandboxes) -> None:
    kernel.move_in(whole, child, pod_interfaces.InterfaceConfig(name=child.name, addresses=("10.9.0.1/24",)))


def killed(step: int, work: Callable[[sandboxes.KernelSandboxes], object]) -> bool:
    """Whether SIGKILL ended a process that did the work, after so many of its requests to the kernel."""
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            work(sandboxes.KernelSandboxes(after_effect=count))
        except BaseException:  # noqa: BLE001 - the process ends
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, ended = os.waitpid(pid, 0)
    assert ended in {0, signal.SIGKILL}, "the work failed"
    return ended != 0
