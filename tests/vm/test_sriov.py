"""Virtual functions of a real driver (igb and igbvf): offered, set by a claim, used by a pod, and restored whatever happens to pod and driver."""

import os
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import records
from drakit_nic import checks, kernel_port
from fakes import nic_attach
from vm import virtual_functions

MAC = "02:ee:00:00:00:01"
EVERYTHING: records.Record = {"mac": MAC, "vlan": 7, "spoofCheck": False, "trust": True}


@pytest.fixture(scope="module")
def parent() -> Iterator[virtual_functions.Parent]:
    with virtual_functions.parent() as made:
        yield made


@pytest.fixture
def vf(parent: virtual_functions.Parent) -> str:
    """The interface of virtual function 0."""
    return parent.interfaces()[0]


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        yield virtual_functions.node(pathlib.Path(folder))


@pytest.fixture
def unchanged(parent: virtual_functions.Parent, vf: str) -> Iterator[None]:
    """In the end the parent enforces what it enforced before, and the interface is as it was."""
    before = (parent.functions(), virtual_functions.link_of(vf))
    yield
    assert virtual_functions.settled(lambda: (parent.functions(), virtual_functions.link_of(vf)), before) == before


def refused(driver: nic_attach.Running, wanted: claims.Claim) -> str:
    driver.world.source.put(wanted)
    return driver.local.engine.prepare([wanted.ref], nic_attach.Waiting())[wanted.ref.uid].error


def test_functions_are_offered_and_the_slice_says_that_there_is_no_minimum(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    before = parent.functions()
    with world.driver() as driver:
        devices = nic_attach.author_of(driver).discover().by_name()
        whole = [device for name, device in devices.items() if name.endswith("-whole")]
        assert len(whole) == 3
        offered = devices[virtual_functions.device_of(world, vf)]
        assert offered.attributes["dra.net/isSriovVf"] is True
        assert offered.attributes["minRate"] is False
        assert offered.capacity["bandwidth"].value == virtual_functions.BITS("100M")
        (shared,) = (device for device in devices.values() if device.attributes["ifName"] == parent.name)
        assert shared.attributes["dra.net/sriovVfs"] == 7
        drawn = {part.counter_set: part.counters.get("bandwidth") for device in (shared, offered) for part in device.consumes}
        assert drawn[shared.name] == virtual_functions.BITS("100M"), "the link of 1 Gbit/s is one account for the parent and its functions"
    assert parent.functions() == before, "discovery changes nothing"


def test_doctor_says_which_rates_the_parent_enforces(parent: virtual_functions.Parent) -> None:
    (finding,) = checks.of_functions(kernel_port.KernelPort(None))
    assert (finding.subject, finding.message) == (
        parent.name,
        "virtual functions get a maximum rate; a claim shows whether igb takes a minimum rate too (attribute minRate)",
    )


@pytest.mark.usefixtures("unchanged")
def test_a_claim_sets_the_function_by_its_parent_and_unprepare_restores_it(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    with world.driver() as driver:
        ref = driver.prepare(virtual_functions.claim(virtual_functions.device_of(world, vf), EVERYTHING))
        (function, *_) = parent.functions()
        assert (function["address"], function["vlan_list"][0]["vlan"]) == (MAC, 7)
        assert (function["spoofchk"], function["trust"]) == (False, True)
        assert function["rate"] == {"max_tx": 50, "min_tx": 0}
        (edits,) = world.edits(ref)
        assert any(variable.endswith("_BANDWIDTH=50000000") for variable in edits["env"])
        driver.unprepare(ref)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("asked,megabits", [("10500k", 10), ("500k", 1)])
def test_a_maximum_is_whole_megabits_and_never_unlimited(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str, asked: str, megabits: int
) -> None:
    with world.driver() as driver:
        ref = driver.prepare(virtual_functions.claim(virtual_functions.device_of(world, vf), bandwidth=asked))
        assert parent.functions()[0]["rate"]["max_tx"] == megabits
        driver.unprepare(ref)


@pytest.mark.usefixtures("unchanged")
def test_what_the_driver_refuses_is_an_error_with_the_fix_and_is_undone(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    with world.driver() as driver:
        wanted = virtual_functions.claim(virtual_functions.device_of(world, vf), {**EVERYTHING, "linkState": "enable"})
        error = refused(driver, wanted)
        assert f"refuses linkState enable for virtual function 0 of {parent.name} (Operation not supported" in error
        assert "remove NicConfig.linkState from the DeviceClass" in error
        driver.unprepare(wanted.ref)


@pytest.mark.usefixtures("unchanged")
def test_a_pod_gets_the_function_with_an_address_that_its_parent_keeps(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    with world.driver() as driver, nic_attach.pod() as pod:
        parameters: records.Record = {"interfaceName": "fast0", "addresses": ["10.99.1.2/16"], "mac": MAC}
        wanted = virtual_functions.claim(virtual_functions.device_of(world, vf), parameters)
        ref = driver.prepare(wanted)
        assert world.call(ref, pod) == nic_attach.Said(0, "")
        link = pod.space.links()["fast0"]
        assert link["address"] == MAC
        assert vf not in parent.interfaces()
        # igbvf of Linux 6.12 refuses this. Of 6.1 it changes the interface only, whose frames the parent's spoof check then drops.
        subprocess.run(["ip", "-netns", pod.space.name, "link", "set", "fast0", "address", "02:ee:00:00:00:02"], check=False)
        assert parent.functions()[0]["address"] == MAC
        driver.unprepare(ref)


def test_after_a_pod_s_death_the_next_driver_restores_the_function_for_the_host(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    before = (parent.functions(), virtual_functions.link_of(vf))
    with nic_attach.pod() as pod, world.driver() as driver:
        ref = driver.prepare(virtual_functions.claim(virtual_functions.device_of(world, vf), {"mac": MAC}))
        assert world.call(ref, pod) == nic_attach.Said(0, "")
    with world.driver() as later:
        later.unprepare(ref)
    virtual_functions.until(lambda: vf in parent.interfaces(), "the function did not come back")
    assert virtual_functions.settled(lambda: (parent.functions(), virtual_functions.link_of(vf)), before) == before
    virtual_functions.ip("link", "set", vf, "address", "02:ee:00:00:00:03")
    assert parent.functions()[0]["address"] == "02:ee:00:00:00:03"
    virtual_functions.ip("link", "set", vf, "address", before[1]["address"])


def killed(world: nic_attach.World, wanted: claims.Claim, step: int) -> bool:
    """Prepare and unprepare a claim in a process that kills itself after this many changes of the kernel; return whether it came so far."""
    child = os.fork()
    if child == 0:
        steps = iter(range(step))

        def die() -> None:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with world.driver(step=die, start=False) as driver:
                driver.unprepare(driver.prepare(wanted))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.usefixtures("unchanged")
def test_after_sigkill_at_every_change_the_next_driver_restores_the_function(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    before = (parent.functions(), virtual_functions.link_of(vf))
    wanted = virtual_functions.claim(virtual_functions.device_of(world, vf), EVERYTHING)
    step = 0
    while killed(world, wanted, step):
        with world.driver(start=False) as driver:
            driver.unprepare(wanted.ref)
        assert (parent.functions(), virtual_functions.link_of(vf)) == before, f"killed after {step} changes"
        step += 1
    assert step >= 10


def test_a_claim_ends_after_its_function_is_gone(world: nic_attach.World, parent: virtual_functions.Parent, vf: str) -> None:
    with world.driver() as driver:
        ref = driver.prepare(virtual_functions.claim(virtual_functions.device_of(world, vf), EVERYTHING))
        parent.make(0)
        driver.unprepare(ref)
    parent.make(3)
    assert "rate" not in parent.functions()[0] or parent.functions()[0]["rate"]["max_tx"] == 0


def test_a_function_made_again_reaches_its_pod_with_the_claim_s_settings(
    world: nic_attach.World, parent: virtual_functions.Parent, vf: str
) -> None:
    with world.driver() as driver, nic_attach.pod() as pod:
        parameters: records.Record = {"interfaceName": "fast0", "mac": MAC, "vlan": 7}
        ref = driver.prepare(virtual_functions.claim(virtual_functions.device_of(world, vf), parameters))
        parent.make(0)
        parent.make(3)
        assert parent.functions()[0]["address"] != MAC
        assert world.call(ref, pod) == nic_attach.Said(0, "")
        (function, *_) = parent.functions()
        assert (function["address"], function["vlan_list"][0]["vlan"], function["rate"]["max_tx"]) == (MAC, 7, 50)
        driver.unprepare(ref)
