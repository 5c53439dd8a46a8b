"""SIGKILL of the driver before and after every journal write, CDI file and request to the kernel of prepare and unprepare: no leak, no loss.

The claim asks for one share, for two, or for the whole NIC, with other claims on the NIC or without, with a pod that uses it or without; or for a
virtual function of a mock machine. After each death a new driver starts, and the kubelet asks again, asks for the opposite, or never asks; or a
driver of another name is asked first. In the end kernel, journal and CDI directory are as they were, and what others have was never touched. CI takes
a sample of the steps, ``make crash`` all.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crash import killable_nic_driver, nic_parent
from drakit.core import claim as claims
from drakit.core import lifecycle
from fakes import examples, forked_cli, netns, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

ADDRESS = "10.7.0.1/24"
OTHER = "other.example.com"
NOT_OFFERED = (
    "status.allocation.devices.results[0].device: this node does not offer 'nic0': nic0 is shared out by the driver other.example.com"
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the claim asks for, and what is around it."""

    form: str
    beside: bool = False
    used: bool = False

    def __str__(self) -> str:
        return self.form + (", used" if self.used else "") + (", beside another" if self.beside else "")


SETTINGS = [
    Setting("share"),
    Setting("pair"),
    Setting("share", beside=True),
    Setting("share", beside=True, used=True),
    Setting("pair", used=True),
    Setting("whole"),
    Setting("whole", used=True),
]
Way = Callable[["Stage", nic_attach.Running], None]


@pytest.fixture(scope="module")
def parent(commands: forked_cli.Commands) -> Iterator[nic_parent.Parent]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_parent.parent(commands) as made:
        yield made


class Stage:
    """A node on which a claim is prepared and unprepared again and again; between two of them it must be as it was in the beginning."""

    def __init__(self, parent: nic_parent.Parent, setting: Setting, world: nic_attach.World, pod: nic_attach.Pod) -> None:
        self.world, self.pod, self.setting = world, pod, setting
        self.wanted = killable_nic_driver.claim_of(setting.form)
        self._parent = parent
        self._place = {"form": setting.form, "node": world.node.name, "folder": str(world.home.parent)}
        self._others: tuple[object, ...] = ()
        self._before = self._look()

    def settle(self) -> None:
        """What is there now is the beginning."""
        with self.world.driver() as driver:
            self._others = tuple(driver.machine.shares()), tuple(driver.machine.members())
        self._before = self._look()

    def ready(self, act: str) -> None:
        """What comes before the act: nothing, or the claim prepared and, where it is used, attached."""
        if act == "unprepare":
            with self.world.driver() as driver:
                self.prepared(driver)

    def steps(self, act: str) -> int:
        """How many steps the act has."""
        self.ready(act)
        found = self._parent.steps(act=act, **self._place)
        with self.world.driver() as driver:
            driver.unprepare(self.wanted.ref)
        self.is_as_before()
        return found

    def die(self, act: str, step: int, way: Way) -> None:
        """Kill the driver at a step of the act, and go on in some way."""
        self.kill(act, step)
        with self.world.driver() as driver:
            self.others_are_whole(driver)
            way(self, driver)
        self.is_as_before()

    def kill(self, act: str, step: int) -> None:
        """Kill the driver at a step of the act."""
        self.ready(act)
        self._parent.kill(step, act=act, **self._place)

    def prepared(self, driver: nic_attach.Running) -> None:
        """Prepare the claim, and attach the pod where it is used."""
        driver.prepare(self.wanted)
        if self.setting.used:
            assert self.world.call(self.wanted.ref, self.pod) == nic_attach.Said(0, "")

    def is_whole(self, driver: nic_attach.Running) -> None:
        """The claim is prepared and the kernel holds its shares as wanted."""
        assert {entry.claim.uid: entry.state for entry in driver.local.journal.entries()}[self.wanted.ref.uid] is lifecycle.State.PREPARED
        assert len(self.world.edits(self.wanted.ref)) == len(self.wanted.results)
        if self.setting.form != "whole":
            installed = {share.id for share in driver.machine.shares()}
            assert installed >= {str(result.share_id) for result in self.wanted.results}
            assert self.damage(driver) == ()

    def damage(self, driver: nic_attach.Running) -> tuple[str, ...]:
        """What of the NIC is not as its shares want it."""
        author: Any = driver.local.author
        (nic,) = (one for one in author.survey().nics if one.name == "nic0")
        return driver.machine.check(author.uplink(nic.interface, nic.speed), driver.machine.shares())

    def others_are_whole(self, driver: nic_attach.Running) -> None:
        """What other claims and their pods have is there."""
        if self._others:
            shares, members = self._others
            assert set(shares) <= set(driver.machine.shares())  # type: ignore[call-overload]
            assert set(members) <= set(driver.machine.members())  # type: ignore[call-overload]

    def is_as_before(self) -> None:
        """Nothing of the claim is left anywhere."""
        with contextlib.suppress(AssertionError):
            nic_attach.until(
                lambda: self.world.node.state().items() <= self._before.items(), "the kernel takes a link up a moment later", 5
            )
        assert self._look() == self._before

    def _look(self) -> dict[str, object]:
        with self.world.driver(start=False) as driver:
            kept = [(entry.claim.uid, entry.state) for entry in driver.local.journal.entries()]
            installed = driver.machine.shares(), driver.machine.members()
        files = sorted(file.name for file in self.world.cdi.glob("*.json"))
        return {
            "journal": kept,
            "installed": installed,
            "files": files,
            "pod": sorted(self.pod.space.links()),
            **self.world.node.state(),
        }


@contextlib.contextmanager
def stage(parent: nic_parent.Parent, setting: Setting) -> Iterator[Stage]:
    with nic_attach.world() as made, nic_attach.pod() as pod, nic_attach.pod("0the") as neighbour:
        made.node.ip("address", "add", ADDRESS, "dev", "nic0")
        made.node.ip("link", "set", "nic0", "alias", "of the admin")
        world = killable_nic_driver.world_of(made.node.name, made.home.parent)
        ready = Stage(parent, setting, world, pod)
        other = nic_attach.claim(9, parameters={"interfaceName": "other0", "addresses": ["10.99.9.9/16"]})
        if setting.beside:
            with world.driver() as driver:
                driver.prepare(other)
                assert world.call(other.ref, neighbour) == nic_attach.Said(0, "")
            ready.settle()
        yield ready
        if setting.beside:
            with world.driver() as driver:
                assert world.call(other.ref, neighbour) == nic_attach.Said(0, ""), "the neighbour's next container starts too"
                driver.unprepare(other.ref)
        assert set(neighbour.space.links()) == {"lo"}


def asked_again(stage: Stage, driver: nic_attach.Running) -> None:
    """The kubelet prepares the claim, because it never heard that it was, or because the pod came back."""
    stage.prepared(driver)
    stage.is_whole(driver)
    driver.unprepare(stage.wanted.ref)


def unprepared(stage: Stage, driver: nic_attach.Running) -> None:
    """The kubelet unprepares the claim."""
    driver.unprepare(stage.wanted.ref)


def not_asked(stage: Stage, driver: nic_attach.Running) -> None:
    """The kubelet asks nothing for a while: the claim is whole or not there at all; there is no half."""
    states = {entry.claim.uid: entry.state for entry in driver.local.journal.entries()}
    if stage.wanted.ref.uid in states:
        stage.is_whole(driver)
        driver.unprepare(stage.wanted.ref)


WAYS: list[Way] = [asked_again, unprepared, not_asked]
ACTS = ("prepare", "unprepare")


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_kill_at_a_sampled_step_leaks_and_loses_nothing(parent: nic_parent.Parent, setting: Setting) -> None:
    chance = examples.draw(f"kills {setting}")
    with stage(parent, setting) as ready:
        act = chance.choice(ACTS)
        ready.die(act, chance.randrange(ready.steps(act)), chance.choice(WAYS))


@pytest.mark.full
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_kill_at_any_step_leaks_and_loses_nothing(
    parent: nic_parent.Parent, setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {}
    with stage(parent, setting) as ready:
        for act in ACTS:
            counted[act] = ready.steps(act)
            assert counted[act] >= 6
            for step in range(counted[act]):
                for way in WAYS:
                    ready.die(act, step, way)
    reported = ", ".join(f"{act} {steps} steps" for act, steps in counted.items())
    with capsys.disabled():
        print(f"\n{setting}: {reported}, {sum(counted.values()) * len(WAYS)} deaths")  # noqa: T201 - the matrix says how large it was


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.full)])
def test_a_kill_at_any_step_of_a_first_share_blocks_no_other_driver(parent: nic_parent.Parent, every: int) -> None:
    with stage(parent, Setting("share")) as ready:
        steps = ready.steps("prepare")
        was_free = {beside_another_driver(ready, step) for step in range(0, steps, every)}
    assert was_free == {True, False}, "there are deaths before the NIC is the driver's, and after"


def beside_another_driver(stage: Stage, step: int) -> bool:
    """Die at a step of the first share; whether a driver of another name has the NIC then. If not, it has it after the dead one's next life."""
    world = nic_attach.World(stage.world.node, stage.world.home.parent / "other", stage.world.options, name=OTHER)
    theirs = nic_attach.claim(2, driver=OTHER)
    with world.driver(start=False) as other:
        stage.kill("prepare", step)
        reported = asked(other, theirs)
        if reported:
            assert f"nic0 is shared out by the driver {stage.world.name};" in reported
            with stage.world.driver() as driver:
                asked_again(stage, driver)
            assert asked(other, theirs) == ""
        with stage.world.driver() as driver:
            assert asked(driver, stage.wanted) == NOT_OFFERED, "it looked when it started, and so withholds the NIC"
            driver.unprepare(stage.wanted.ref)
        assert [share.id for share in other.machine.shares()] == [str(theirs.results[0].share_id)]
        assert nic_attach.look(other) == {"nic0": ()}
        other.unprepare(theirs.ref)
    with stage.world.driver() as driver:
        asked_again(stage, driver)
    stage.is_as_before()
    return not reported


def asked(driver: nic_attach.Running, wanted: claims.Claim) -> str:
    """What the kubelet is answered when it asks to prepare; the error."""
    driver.world.source.put(wanted)
    return driver.local.engine.prepare([wanted.ref], nic_attach.Waiting())[wanted.ref.uid].error


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("count", [3, pytest.param(None, marks=pytest.mark.full)], ids=["some", "all"])
def test_a_kill_at_any_step_leaves_a_virtual_function_held_or_unchanged(
    parent: nic_parent.Parent, tmp_path: pathlib.Path, act: str, count: int | None
) -> None:
    wanted = killable_nic_driver.claim_of("function")

    def live(do: str) -> None:
        with killable_nic_driver.function_driver(tmp_path) as local:
            assert killable_nic_driver.call(local, do, wanted) == ""

    def held() -> object:
        return killable_nic_driver.machine_of(tmp_path).function(killable_nic_driver.FUNCTION)

    assert held() == killable_nic_driver.FRESH
    command = {"act": act, "form": "function", "folder": str(tmp_path)}
    if act == "unprepare":
        live("prepare")
    steps = parent.steps(**command)
    live("unprepare")
    assert steps >= 6
    for step in examples.draw(f"kills function {act}").sample(range(steps), count or steps):
        for last in ACTS:
            if act == "unprepare":
                live("prepare")
            parent.kill(step, **command)
            live(last)
            assert held() == (killable_nic_driver.HELD if last == "prepare" else killable_nic_driver.FRESH)
            live("unprepare")
            assert held() == killable_nic_driver.FRESH
            with killable_nic_driver.function_driver(tmp_path) as local:
                assert not local.journal.entries()
            assert not list((tmp_path / "cdi").glob("*.json"))
