"""Claims in containers of containerd that AppArmor confines, and what a restart of containerd does to them."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from fakes import netns, nic_attach
from vm import containerd, virtual_functions

SANDBOX = "5a4d"
PING = ("CAP_NET_RAW",)
SHARE, PARTNER = "10.99.0.2", "10.99.0.9"


@pytest.fixture
def partner() -> Iterator[None]:
    """The machine's second NIC in a namespace of its own, as a partner on the wire."""
    (name,) = (
        entry.name
        for entry in virtual_functions.NETWORK.iterdir()
        if (entry / "device/driver").exists() and (entry / "device/driver").resolve().name == "virtio_net"
    )
    with netns.namespace() as space:
        for words in (
            ("link", "set", name, "netns", space.name),
            ("-netns", space.name, "address", "add", f"{PARTNER}/16", "dev", name),
            ("-netns", space.name, "link", "set", name, "up"),
        ):
            virtual_functions.ip(*words)
        yield
    virtual_functions.until((virtual_functions.NETWORK / name).exists, "the partner did not come back")


@pytest.mark.usefixtures("partner")
def test_a_confined_container_has_its_share_and_keeps_it_when_containerd_restarts() -> None:
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dk")))
        parent = stack.enter_context(virtual_functions.parent(1))
        runtime = stack.enter_context(containerd.started())
        world = virtual_functions.node(folder, virtual_functions.ROOMY)
        whole = virtual_functions.claim(virtual_functions.device_of(world, parent.interfaces()[0]), {"interfaceName": "fast0"})
        share = nic_attach.claim(2, bandwidth="50M", parameters={"interfaceName": "shared0", "addresses": [f"{SHARE}/16"]})
        share = virtual_functions.of_device(share, virtual_functions.device_of(world, parent.name).removesuffix("-whole"))
        driver, space = stack.enter_context(world.driver()), stack.enter_context(netns.namespace())
        refs = [driver.prepare(whole), driver.prepare(share)]
        edits = [edit for ref in refs for edit in world.edits(ref)]
        with runtime.running(space, sandbox=SANDBOX, edits=edits, rights=PING) as first:
            label = pathlib.Path(f"/proc/{runtime.process(first)}/attr/current").read_text().strip()
            assert label == f"{containerd.PROFILE} (enforce)"
            process, state = runtime.process(first), (space.state(), virtual_functions.shaping())
            assert {"fast0", "shared0"} <= set(space.links())
            assert "1 received" in runtime.execute(first, "ping", "-c", "1", "-W", "5", PARTNER)
            runtime.restart()
            assert (runtime.process(first), (space.state(), virtual_functions.shaping())) == (process, state)
            assert "1 received" in runtime.execute(first, "ping", "-c", "1", "-W", "5", PARTNER)
            with runtime.running(space, sandbox=SANDBOX, edits=edits, rights=PING) as second:
                assert "1 received" in runtime.execute(second, "ping", "-c", "1", "-W", "5", PARTNER)
                assert (space.state(), virtual_functions.shaping()) == state
        for ref in refs:
            driver.unprepare(ref)
