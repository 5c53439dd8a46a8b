"""Claims of NICs for virtual machines on real drivers: an igb virtual function and a virtio NIC, also with a driver that is killed at any step."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from drakit import testing
from drakit.core import claim as claims
from drakit.core import quantity
from drakit.vfio import kernel
from drakit_nic import driver as nic_driver
from drakit_nic import kernel_port
from drakit_nic import options as nic_options
from fakes import nic_attach, node_with_intents
from vm import vfio_machine

OPTIONS = nic_options.NicOptions(
    include=("driver:igbvf", "driver:virtio_net"),
    vfio=("driver:igbvf", "driver:virtio_net"),
    rules=(nic_options.NicRule(match="driver:*", speed=quantity.Quantity.of("1G")),),
)
CHOSEN = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "mac": "02:ee:00:00:00:01"}


class Killer:
    """Counts changes of the kernel, and kills this process at one of them once it is armed."""

    def __init__(self) -> None:
        self.passed, self.at = 0, -1

    def arm(self, at: int) -> None:
        self.passed, self.at = 0, at

    def __call__(self) -> None:
        self.passed, step = self.passed + 1, self.passed
        if step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


STEP = Killer()
PORT = kernel_port.KernelPort(None, driver=nic_driver.NAME, after_effect=STEP)
"""One for all lives, because it tries once what the kernel can enforce, which takes seconds here."""


@dataclasses.dataclass
class Machine:
    """This machine with a driver's folder, and the virtual function for the tests."""

    folder: pathlib.Path
    address: str

    @property
    def device(self) -> str:
        return f"pci-{self.address.replace(':', '-').replace('.', '-')}-vfio"

    @contextlib.contextmanager
    def node(self) -> Iterator[node_with_intents.NodeWithIntents]:
        """One life of the driver."""

        def make(intents: node_with_intents.Intents) -> nic_driver.NicDriver:
            bus = kernel.KernelBus(after_effect=STEP)
            return nic_driver.NicDriver(PORT, node="node-1", options=OPTIONS, intents=intents, bus=bus)

        with node_with_intents.NodeWithIntents(make, folder=self.folder) as made:
            yield made

    def facts(self) -> tuple[Any, ...]:
        """The function's driver and interface on the host, as far as the driver may change them."""
        function = kernel.KernelBus().function(self.address)
        assert function is not None
        names = vfio_machine.interfaces_of(self.address)
        states = [PORT.host_state(name) for name in names]
        properties = [(state.name, state.mac, state.mtu, state.up, state.alias) for state in states if state is not None]
        return function.driver, function.override, tuple(properties)


def settled(machine: Machine, before: tuple[Any, ...]) -> None:
    subprocess.run(["udevadm", "settle"], check=True)
    nic_attach.until(lambda: machine.facts() == before, f"it is not as it was: {machine.facts()} instead of {before}", seconds=30)


@pytest.fixture(scope="module")
def functions() -> Iterator[tuple[str, ...]]:
    with vfio_machine.virtual_functions() as made:
        yield made


@pytest.fixture
def machine(tmp_path: pathlib.Path, functions: tuple[str, ...]) -> Machine:
    (name,) = vfio_machine.interfaces_of(functions[0])
    subprocess.run(["ip", "link", "set", name, "down"], check=True)
    subprocess.run(["ip", "link", "set", name, "up", "mtu", "1400", "alias", "of the admin"], check=True)
    return Machine(tmp_path, functions[0])


def claimed(node: testing.Node, machine: Machine) -> claims.ClaimRef:
    return node.claim(machine.device, parameters=CHOSEN, source=claims.ConfigSource.CLASS, consumed={"bandwidth": "100M"})


def parent_mac() -> str:
    (name,) = vfio_machine.interfaces_of(vfio_machine.address_of("igb"))
    listed = subprocess.run(["ip", "link", "show", "dev", name], check=True, capture_output=True, text=True).stdout
    return next(line for line in listed.splitlines() if "vf 0" in line)


def test_a_virtual_function_goes_to_a_virtual_machine_and_comes_back(machine: Machine) -> None:
    before, former = machine.facts(), parent_mac()
    with machine.node() as node:
        offered = node.offered
        claim = claimed(node, machine)
        container = node.prepare(claim)
        assert vfio_machine.interfaces_of(machine.address) == []
        assert "02:ee:00:00:00:01" in parent_mac()
        interface, group = container.device_nodes
        assert interface == "/dev/vfio/vfio"
        with vfio_machine.opened(group) as is_viable:
            assert is_viable
            with pytest.raises(testing.RefusedError, match="end the virtual machine"):
                node.unprepare(claim)
        assert node.offered == offered
        assert node.prepare(claim) == container
    with machine.node() as node:
        node.unprepare(claim)
        assert node.is_clean
    settled(machine, before)
    assert parent_mac() == former


def test_a_nic_of_another_driver_goes_to_a_virtual_machine_and_comes_back(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path, vfio_machine.address_of("virtio_net"))
    (name,) = vfio_machine.interfaces_of(machine.address)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    before = machine.facts()
    with machine.node() as node:
        claim = node.claim(machine.device)
        _, group = node.prepare(claim).device_nodes
        with vfio_machine.opened(group) as is_viable:
            assert is_viable
        node.unprepare(claim)
    settled(machine, before)


def lives(machine: Machine, act: str, ref: claims.ClaimRef, claim: claims.Claim, at: int) -> int:
    """Run one life in a child that is killed at a step; return how many steps it passed if it lived, else -1."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            with machine.node() as node:
                node.claims.put(claim)
                STEP.arm(at)
                getattr(node, act)(ref)
                os.write(writer, str(STEP.passed).encode())
            status = 0
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as told:
        passed = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, -signal.SIGKILL}, f"{act} failed by itself"
    return int(passed) if status == 0 else -1


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("act", ["prepare", "unprepare"])
def test_a_driver_that_is_killed_at_any_step_loses_and_leaks_nothing(machine: Machine, act: str) -> None:
    before, former = machine.facts(), parent_mac()
    with machine.node() as node:
        ref = claimed(node, machine)
        claim = node.claims.fetch(ref)
    for at in range(100):
        if act == "unprepare":
            with machine.node() as node:
                node.claims.put(claim)
                node.prepare(ref)
        passed = lives(machine, act, ref, claim, at)
        with machine.node() as node:  # Its start undoes half states.
            node.claims.put(claim)
            if act == "prepare":
                with vfio_machine.opened(node.prepare(ref).device_nodes[1]) as is_viable:
                    assert is_viable
            node.unprepare(ref)
            assert node.is_clean
        settled(machine, before)
        assert parent_mac() == former
        if passed >= 0:
            assert passed > 3
            return
    raise AssertionError("it never ended")
