"""Claims in containers of containerd that AppArmor confines, and what a restart of containerd does to them."""

import contextlib
import pathlib
import tempfile

from fakes import netns
from vm import containerd, virtual_functions

SANDBOX = "5a4d"
PING = ("CAP_NET_RAW",)
SHARE, PARTNER = "10.99.0.2", "10.99.0.9"


def test_a_confined_container_has_its_share_and_keeps_it_when_containerd_restarts() -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(virtual_functions.partner(PARTNER))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dk")))
        parent = stack.enter_context(virtual_functions.parent(1))
        runtime = stack.enter_context(containerd.started())
        world = virtual_functions.node(folder, virtual_functions.ROOMY)
        wanted = virtual_functions.function_and_share(world, parent, SHARE)
        driver, space = stack.enter_context(world.driver()), stack.enter_context(netns.namespace())
        refs = [driver.prepare(claim) for claim in wanted]
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
