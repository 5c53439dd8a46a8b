"""A process that hangs with one NIC's lock stops the calls and checks of that NIC only."""

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit_nic import options as nic_options
from drakit_nic.attach import attacher, collector, sandboxes
from fakes import netns, nic_attach, waits

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

RULES = tuple(nic_options.NicRule(match=name, speed=nic_attach.BITS("10G")) for name in ("nic0", "nic1"))
OPTIONS = nic_options.NicOptions(exclude=("*-wire",), rules=RULES)
CALLS = 24
SECONDS = 2
ADDRESSES = {"addressPools": [{"subnet": "10.9.0.0/16", "first": "10.9.1.1", "last": "10.9.1.9"}]}
HOLD = (
    "import fcntl, sys, time; file = open(sys.argv[1], 'r+'); fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as node, tempfile.TemporaryDirectory(prefix="dk") as made:
        node.make_nic("nic0", mac=nic_attach.NIC_MAC)
        node.make_nic("nic1", mac="02:00:00:00:00:21")
        yield nic_attach.World(node, pathlib.Path(made), OPTIONS)


def claim(number: int, device: str) -> claims.Claim:
    made = nic_attach.claim(number, parameters=ADDRESSES, source=claims.ConfigSource.CLASS)
    return dataclasses.replace(made, results=tuple(dataclasses.replace(result, device=device) for result in made.results))


@contextlib.contextmanager
def held(world: nic_attach.World, device: str) -> Iterator[None]:
    """Another process holds the device's lock, as a driver that hangs in the middle of its work."""
    path = world.home / "locks" / f"{device}.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield
        finally:
            holder.kill()


@contextlib.contextmanager
def waiting(world: nic_attach.World, ref: claims.ClaimRef, pod: nic_attach.Pod) -> Iterator[list[nic_attach.Said]]:
    """Many calls of a pod, whose runtime waits for them; what they said after the block."""
    said: list[nic_attach.Said] = []
    threads = [threading.Thread(target=lambda: said.append(world.call(ref, pod, seconds=SECONDS))) for _ in range(CALLS)]
    for thread in threads:
        thread.start()
    yield said
    for thread in threads:
        thread.join()


def collecting(driver: nic_attach.Running) -> collector.AttachmentCollector:
    kernel = sandboxes.KernelSandboxes(driver.world.namespace)
    context: contexts.DriverContext = driver.local.context
    own = attacher.Attacher(driver.machine, kernel, context, node=nic_attach.NODE)
    return collector.AttachmentCollector(driver.machine, kernel, context, own, intents=tuple)


def left_after_a_collection(driver: nic_attach.Running) -> int:
    """The number of members that a collection leaves. The driver's own checks may have a lock meanwhile, so one collection may skip a NIC."""
    collecting(driver).collect()
    return len(driver.members())


def test_a_held_lock_of_one_nic_delays_no_call_for_another(world: nic_attach.World) -> None:
    with world.driver() as driver, nic_attach.pod() as stuck_pod, nic_attach.pod("5a4e") as pod:
        stuck, free = driver.prepare(claim(1, "nic0")), driver.prepare(claim(2, "nic1"))
        with held(world, "nic0"), waiting(world, stuck, stuck_pod) as said:
            for number in range(5):
                assert world.call(free, pod, f"c{number}") == nic_attach.Said(0, "")
            assert not said, "the calls for the other NIC still waited"
        assert {answer.code for answer in said} == {1}
        assert world.call(stuck, stuck_pod) == nic_attach.Said(0, ""), "the calls that gave up left the NIC free"


def test_a_held_lock_of_one_nic_delays_no_check_of_another(world: nic_attach.World) -> None:
    with world.driver() as driver, nic_attach.pod() as stuck_pod, nic_attach.pod("5a4e") as pod:
        refs = {device: driver.prepare(claim(number, device)) for number, device in enumerate(("nic0", "nic1"), 1)}
        for device, sandbox in (("nic0", stuck_pod), ("nic1", pod)):
            assert world.call(refs[device], sandbox) == nic_attach.Said(0, "")
        with held(world, "nic0"):
            nic_attach.until(lambda: nic_attach.look(driver) == {"nic1": ()}, "the free NIC is checked")
            for sandbox in (stuck_pod, pod):
                (name,) = (link for link in sandbox.space.links() if link != "lo")
                sandbox.space.ip("link", "del", name)
            nic_attach.until(lambda: left_after_a_collection(driver) == 1, "only the attachment on the free NIC is removed")
        nic_attach.until(lambda: nic_attach.look(driver) == {"nic0": (), "nic1": ()}, "both NICs are checked")
        nic_attach.until(lambda: left_after_a_collection(driver) == 0, "both attachments are removed")


@pytest.mark.long
def test_an_attach_names_a_lock_of_another_process_and_succeeds_once_it_is_released(world: nic_attach.World) -> None:
    with world.driver() as driver, nic_attach.pod() as pod:
        share, said = driver.prepare(claim(1, "nic0")), list[nic_attach.Said]()
        later = threading.Thread(target=lambda: said.append(world.call(share, pod)))
        with held(world, "nic0"):
            refused = world.call(share, pod)
            later.start()
            later.join(0.5)
            assert not said, "the call waits for the lock"
        later.join(waits.SECONDS)
    assert refused.code == 1
    assert "nic0 is locked by another process" in refused.stderr
    assert said == [nic_attach.Said(0, "")]
