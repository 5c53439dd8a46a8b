"""``nic.sriov`` on a real driver (igb): the functions are created, never removed under anybody who uses one, and created again after a reset."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping

import pytest

from drakit_nic import options as nic_options
from drakit_nic.passthrough import function_counts
from fakes import log_lines, netns, nic_attach
from vm import virtual_functions

IGB = pathlib.Path("/sys/bus/pci/drivers/igb")
WATCHED_SECONDS = 6


def wanting(vfs: int) -> nic_options.NicOptions:
    return dataclasses.replace(virtual_functions.OPTIONS, sriov=(nic_options.SriovRule(match="driver:igb", vfs=vfs),))


@pytest.fixture
def parent() -> Iterator[virtual_functions.Parent]:
    with virtual_functions.parent(0) as made:
        yield made


@pytest.fixture
def world(parent: virtual_functions.Parent) -> Iterator[nic_attach.World]:
    del parent
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        yield virtual_functions.node(pathlib.Path(folder), wanting(3))


@pytest.fixture
def logged() -> log_lines.LogLines:
    return log_lines.LogLines()


def has(parent: virtual_functions.Parent, count: int) -> None:
    """Wait until the NIC has this many functions, with their interfaces."""
    file = parent.device / "sriov_numvfs"
    virtual_functions.until(lambda: file.exists() and int(file.read_text()) == count, f"the NIC has not {count} functions")
    subprocess.run(["udevadm", "settle"], check=True)
    virtual_functions.until(lambda: len(parent.interfaces()) == count, "the functions have no interfaces")


def whole(driver: nic_attach.Running) -> int:
    return sum(1 for name in nic_attach.author_of(driver).discover().by_name() if name.endswith("-whole"))


def messages(driver: nic_attach.Running) -> str:
    findings = nic_attach.author_of(driver).diagnose()
    return "; ".join(f"{finding.message}; {finding.fix}" for finding in findings if finding.topic == function_counts.TOPIC)


def test_the_driver_creates_the_functions_of_its_setting_and_offers_them(world: nic_attach.World, parent: virtual_functions.Parent) -> None:
    with world.driver() as driver:
        has(parent, 3)
        virtual_functions.until(lambda: whole(driver) == 3, "the functions are not offered")
        assert messages(driver) == "has 3 virtual functions (nic.sriov[0].vfs); "
    assert len(parent.interfaces()) == 3, "they stay when the driver ends"


def test_another_number_is_set_at_the_next_start_while_nobody_uses_a_function(
    world: nic_attach.World, parent: virtual_functions.Parent
) -> None:
    parent.make(2)
    with world.driver() as driver:
        has(parent, 3)
        virtual_functions.until(lambda: whole(driver) == 3, "the functions are not offered")


def without_addresses(parent: virtual_functions.Parent) -> list[Mapping[str, object]]:
    """Return the functions without their MAC addresses: the kernel driver draws one, and some show it at the parent only later."""
    return [{name: value for name, value in function.items() if name != "address"} for function in parent.functions()]


@pytest.mark.parametrize("where", ["prepared", "in a pod"])
def test_the_functions_of_a_claim_survive_a_change_of_the_setting(
    where: str, world: nic_attach.World, parent: virtual_functions.Parent, logged: log_lines.LogLines
) -> None:
    parent.make(3)
    vf = parent.interfaces()[0]
    address = (virtual_functions.NETWORK / vf / "device").resolve().name
    with nic_attach.pod() as pod:
        with world.driver() as driver:
            ref = driver.prepare(virtual_functions.claim(virtual_functions.device_of(world, vf), {"interfaceName": "fast0"}))
            if where == "in a pod":
                virtual_functions.attach(world, ref, pod)
        before = without_addresses(parent)
        world.options = wanting(5)
        with world.driver() as driver:
            assert without_addresses(parent) == before
            said = (
                f"nic.sriov[0].vfs: {parent.name} has 3 virtual functions, not 5, and {address} has a claim; delete the pods of its claim"
            )
            assert said in messages(driver)
            assert "virtual functions not created" in logged.events
            assert ("fast0" in pod.space.links()) is (where == "in a pod")
            driver.unprepare(ref)
            has(parent, 3)
        with world.driver() as driver:
            has(parent, 5)
            assert messages(driver) == "has 5 virtual functions (nic.sriov[0].vfs); "


def test_a_function_that_the_host_or_another_program_uses_keeps_the_number(
    world: nic_attach.World, parent: virtual_functions.Parent
) -> None:
    parent.make(2)
    first, second = parent.interfaces()
    with netns.namespace() as elsewhere:
        for begin, end, said in (
            (("address", "add", "192.0.2.7/24", "dev", first), ("address", "flush", "dev", first), "has an address of the host"),
            (("link", "set", first, "up"), ("link", "set", first, "down"), f"run: ip link set {first} down"),
            (("link", "set", second, "netns", elsewhere.name), (), "has its interface in another place"),
        ):
            virtual_functions.ip(*begin)
            if begin[-1] == "up":
                carrier = virtual_functions.NETWORK / first / "operstate"
                virtual_functions.until(lambda: carrier.read_text().strip() == "up", "the function has no link")  # noqa: B023
            with world.driver() as driver:
                assert said in messages(driver)
                assert len(parent.functions()) == 2
            if end:
                virtual_functions.ip(*end)
        elsewhere.ip("link", "set", second, "netns", "1")
    with world.driver():
        has(parent, 3)


def test_after_a_reset_of_the_kernel_driver_the_functions_are_created_again(
    world: nic_attach.World, parent: virtual_functions.Parent
) -> None:
    with world.driver() as driver:
        has(parent, 3)
        address = parent.device.resolve().name
        (IGB / "unbind").write_text(address)
        virtual_functions.until(lambda: not parent.device.exists(), "igb did not give the NIC up")
        time.sleep(WATCHED_SECONDS)
        (IGB / "bind").write_text(address)
        virtual_functions.until(parent.device.exists, "igb did not take the NIC")
        has(parent, 3)
        virtual_functions.ip("link", "set", parent.name, "up")
        virtual_functions.until(lambda: whole(driver) == 3, "the functions are not offered")


def test_a_reset_of_the_function_itself_keeps_the_number(world: nic_attach.World, parent: virtual_functions.Parent) -> None:
    with world.driver():
        has(parent, 3)
        (parent.device / "reset").write_text("1")
        time.sleep(WATCHED_SECONDS)
        has(parent, 3)


def killed(world: nic_attach.World, step: int) -> bool:
    """Start the driver in a process that kills itself after this many changes of the kernel; return whether it came so far."""
    child = os.fork()
    if child == 0:
        steps = iter(range(step))

        def die() -> None:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with world.driver(step=die):
                pass
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_driver_that_is_killed_after_a_write_is_completed_by_the_next_one(
    world: nic_attach.World, parent: virtual_functions.Parent
) -> None:
    for step, left in ((0, 0), (1, 3)):
        parent.make(2)
        assert killed(world, step)
        assert int((parent.device / "sriov_numvfs").read_text()) == left
        with world.driver():
            has(parent, 3)
