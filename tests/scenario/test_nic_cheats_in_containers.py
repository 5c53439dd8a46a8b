"""A root process with NET_ADMIN and NET_RAW in a real container tries to cheat; it gains nothing, and the pod beside it loses nothing.

Containers are run by runc and attached by the hook, as in ``test_nic_attach_with_runc``; ``test_nic_traffic`` measures the same attempts, and more of
them, from plain namespaces. A busy machine may deliver less than a class allows, so rates are judged from above, and what is left of the other pod
by a quarter below.
"""

import contextlib
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from drakit_nic import options as nic_options
from fakes import frame_flood, netns, nic_attach, nic_network, runc, waits

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(300)]

RIGHTS = ("CAP_NET_ADMIN", "CAP_NET_RAW")
MEGA = 10**6
GOODPUT = 0.956
RATE = 100
MOST, LEAST = 1.02, 0.75
TRIES = 4
FLOOD = pathlib.Path(frame_flood.__file__).read_text()
PYTHON = "/usr/bin/python3"


class Stage:
    """Two pods of one container each, on a share of 100 Mbit/s each: one cheats, one has to do with what is left."""

    def __init__(
        self, network: nic_network.NicNetwork, runtime: runc.Runc, cheat: str, spaces: tuple[netns.Namespace, netns.Namespace]
    ) -> None:
        self.nic_network, self.runtime, self.cheat = network, runtime, cheat
        self.space, self.sibling = spaces

    def inside(self, *words: str) -> str:
        """What the cheat's program prints."""
        return self.runtime.execute(self.cheat, *words)

    def mac(self, space: netns.Namespace) -> str:
        return str(space.links()["fast0"]["address"])

    @contextlib.contextmanager
    def flooding(self, *words: str, seconds: float = 6) -> Iterator[None]:
        """The cheat's container sends all it can, for a bounded time."""
        command = self.runtime.command("exec", self.cheat, PYTHON, "-c", FLOOD, words[0], str(seconds), *words[1:])
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            time.sleep(0.5)
            yield
            _, result = running.communicate(timeout=waits.SECONDS)
            assert running.returncode == 0, result

    def gains_nothing(self, *words: str) -> None:
        """Whatever the cheat sends, its own rate is all that arrives; and the sibling has its own meanwhile."""
        seen = []
        for _ in range(TRIES):
            with self.flooding(*words):
                alone = self.nic_network.arriving()
                (beside,) = self.nic_network.measure([nic_network.Flow(self.sibling)], 2)
            seen.append((alone, beside.goodput / MEGA))
            assert alone <= RATE * MOST, f"{seen}: more than its share left the NIC"
            if alone >= RATE * LEAST and beside.goodput / MEGA >= GOODPUT * RATE * LEAST:
                return
        raise AssertionError(f"{seen}: the flood or the sibling never had what it is to have")


@pytest.fixture(params=["best", pytest.param("memory", marks=pytest.mark.full)])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    for why_not in (nic_network.why_not(), runc.why_not(), "" if pathlib.Path(PYTHON).exists() else f"{PYTHON} is not there"):
        if why_not:
            pytest.skip(why_not)
    rule = nic_options.NicRule(match="nic0", speed=nic_attach.BITS("10G"))
    options = nic_options.NicOptions(include=("nic0",), take_over=("nic0",), reserve=nic_attach.BITS("1M"), rules=(rule,))
    with contextlib.ExitStack() as stack:
        network, runtime = stack.enter_context(nic_network.network()), stack.enter_context(runc.runtime())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="drk-", dir="/tmp"))
        world = nic_attach.World(network.node, pathlib.Path(folder), options)
        world.candidates = nic_network.BY_NAMESPACE[request.param]
        driver = stack.enter_context(world.driver())
        spaces = (stack.enter_context(netns.namespace()), stack.enter_context(netns.namespace()))
        containers = []
        for number, space in enumerate(spaces, start=1):
            opaque = {"interfaceName": "fast0", "addresses": [f"10.99.1.{number}/16"]}
            ref = driver.prepare(nic_attach.claim(number, bandwidth=f"{RATE}M", parameters=opaque))
            running = runtime.running(space, sandbox=f"pod{number}", edits=world.edits(ref), rights=RIGHTS)
            containers.append(stack.enter_context(running))
            stack.callback(driver.unprepare, ref)
        yield Stage(network, runtime, containers[0], spaces)
        assert len(driver.members()) == len(containers)


def test_qdiscs_in_the_container_and_the_mode_of_its_interface_are_not_what_holds_it(stage: Stage) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        stage.inside("tc", "qdisc", "del", "dev", "fast0", "root")
    stage.inside("tc", "qdisc", "add", "dev", "fast0", "root", "pfifo")
    stage.inside("ip", "link", "set", "fast0", "type", "macvlan", "mode", "bridge")
    stage.gains_nothing("datagrams", nic_network.SERVER, "0")
    with pytest.raises(subprocess.CalledProcessError):
        stage.inside("ping", "-c", "1", "-W", "1", "10.99.1.2")


def test_raw_frames_with_the_sibling_s_address_are_the_sender_s(stage: Stage) -> None:
    stage.gains_nothing("frames", "fast0", stage.mac(stage.sibling))


@pytest.mark.full
def test_another_address_of_its_interface_changes_nothing(stage: Stage) -> None:
    stage.inside("ip", "link", "set", "fast0", "address", "02:de:ad:00:00:01")
    wire = str(stage.nic_network.network.links()["wire"]["address"])
    stage.inside("ip", "neighbour", "replace", nic_network.SERVER, "lladdr", wire, "dev", "fast0")
    stage.gains_nothing("datagrams", nic_network.SERVER, "0")


@pytest.mark.full
def test_a_class_number_as_socket_priority_chooses_no_class(stage: Stage) -> None:
    stage.gains_nothing("datagrams", nic_network.SERVER, "0xda0002")
