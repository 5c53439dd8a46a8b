"""Two NIC drivers of different names that make the first share of one NIC at the same moment, on the real kernel: one of them has it.

They are interleaved before every request to the kernel until the NIC is owned, and then raced in processes of their own.
"""

import contextlib
import functools
import itertools
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drakit_nic import driver as nic_driver
from drakit_nic import port
from fakes import examples, forked_cli, nic_attach, paused_calls

pytestmark = pytest.mark.root

OTHER = "other.example.com"
AHEAD_NS = 5 * 10**6
SKEW_NS = 500 * 10**3
CLAIMS = {nic_driver.NAME: nic_attach.claim(1), OTHER: nic_attach.claim(2, driver=OTHER)}


@pytest.fixture
def drivers() -> Iterator[tuple[nic_attach.Running, nic_attach.Running]]:
    """Two drivers with folders of their own; their keepers look only when they are told to."""
    with nic_attach.untouched_world() as world, contextlib.ExitStack() as stack:
        yield one_of(stack, world, nic_driver.NAME), one_of(stack, world, OTHER)


def one_of(stack: contextlib.ExitStack, world: nic_attach.World, name: str) -> nic_attach.Running:
    own = nic_attach.World(world.node, pathlib.Path(world.home).parent / f"of-{name}", world.options, name=name)
    running = stack.enter_context(own.driver(start=False))
    own.source.put(CLAIMS[name])
    return running


def prepare(driver: nic_attach.Running) -> str:
    """What the kubelet is answered: the error."""
    ref = CLAIMS[driver.world.name].ref
    return driver.local.engine.prepare([ref], nic_attach.Waiting())[ref.uid].error


def unprepare(driver: nic_attach.Running) -> str:
    """What the kubelet is answered: the error."""
    ref = CLAIMS[driver.world.name].ref
    return driver.local.engine.unprepare([ref], nic_attach.Waiting())[ref.uid]


def uplink(driver: nic_attach.Running) -> port.Uplink:
    (nic,) = nic_attach.author_of(driver).survey().nics
    return nic_attach.author_of(driver).uplink(nic.interface, nic.speed)


def one_has_it(drivers: tuple[nic_attach.Running, nic_attach.Running], result: tuple[str, str]) -> None:
    """Exactly one was told that it has a share; it is whole, and neither the other's keeper nor its undoing touch it."""
    assert sorted(map(bool, result)) == [False, True], result
    first = not result[0]
    winner, loser = drivers if first else drivers[::-1]
    assert f"nic0 is shared out by the driver {winner.world.name}; only one driver can share out an interface" in result[first], result
    wanted = winner.machine.shares()
    assert [share.id for share in wanted] == [str(CLAIMS[winner.world.name].results[0].share_id)]
    assert nic_attach.look(loser) == {}
    assert unprepare(loser) == ""
    assert winner.machine.check(uplink(winner), wanted) == ()
    assert nic_attach.look(winner) == {"nic0": ()}
    assert (winner.machine.shares(), loser.machine.traffic()) == (wanted, ())
    assert prepare(loser), "it is refused as long as the other has it"
    assert unprepare(winner) == ""
    assert prepare(loser) == "", "and has it once it is free"
    assert unprepare(loser) == ""


def requests_until_it_is_owned(drivers: tuple[nic_attach.Running, nic_attach.Running]) -> int:
    """How many requests a first share takes until the other driver sees whose the NIC is."""
    driver, other = drivers
    count = 0
    with paused_calls.PausedCall(lambda: prepare(driver)) as paused:
        while "nic0" not in {item.name for item in nic_attach.author_of(other).survey().withheld}:
            count += 1
            paused.run_to(count)
            assert count < 100, "nobody owns it after a hundred requests"
        assert paused.finish() == ""
    assert unprepare(driver) == ""
    return count


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [10, pytest.param(None, marks=pytest.mark.full)], ids=["some", "all"])
def test_exactly_one_of_two_drivers_takes_a_nic_at_every_interleaving(
    drivers: tuple[nic_attach.Running, nic_attach.Running], count: int | None
) -> None:
    until = requests_until_it_is_owned(drivers)
    assert until >= 4
    held = list(itertools.product(range(until + 1), repeat=2))
    for one, other in examples.draw("interleavings").sample(held, count) if count else held:
        first, second = (paused_calls.PausedCall(functools.partial(prepare, driver)) for driver in drivers)
        with first, second:
            first.run_to(one)
            second.run_to(other)
            result = first.finish(), second.finish()
        one_has_it(drivers, result)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
def test_a_first_share_during_another_driver_s_last_is_refused_or_complete(
    drivers: tuple[nic_attach.Running, nic_attach.Running], every: int
) -> None:
    driver, other = drivers
    refused = set()
    for number in itertools.count(0, every):
        assert prepare(driver) == ""
        with paused_calls.PausedCall(lambda: unprepare(driver)) as paused:
            paused.run_to(number)
            result = prepare(other)
            assert paused.finish() == ""
        refused.add(bool(result))
        if result:
            assert f"nic0 is shared out by the driver {driver.world.name};" in result
            assert prepare(other) == "", "it is free now"
        assert other.machine.check(uplink(other), other.machine.shares()) == ()
        assert [share.id for share in other.machine.shares()] == [str(CLAIMS[OTHER].results[0].share_id)]
        assert unprepare(other) == ""
        if paused.sent < number:
            break
    assert refused == {True, False}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.full)])
def test_a_reconciler_changes_nothing_while_another_driver_adds_its_first_share(
    drivers: tuple[nic_attach.Running, nic_attach.Running], every: int
) -> None:
    driver, other = drivers
    for number in itertools.count(0, every):
        with paused_calls.PausedCall(lambda: nic_attach.look(other)) as look:
            look.run_to(number)
            assert prepare(driver) == ""
            look.finish()
        assert driver.machine.check(uplink(driver), driver.machine.shares()) == ()
        assert nic_attach.look(driver) == {"nic0": ()}
        assert unprepare(driver) == ""
        with paused_calls.PausedCall(lambda: prepare(driver)) as paused:
            paused.run_to(number)
            nic_attach.look(other)
            assert paused.finish() == ""
        assert driver.machine.check(uplink(driver), driver.machine.shares()) == ()
        assert unprepare(driver) == ""
        if look.sent < number and paused.sent < number:
            break


class Racer:
    """A driver in a process of its own."""

    def __init__(self, running: forked_cli.Talk, name: str) -> None:
        self._running, self.name = running, name

    def tell(self, command: str) -> None:
        self._running.say(command)

    def hear(self) -> Any:
        return json.loads(self._running.stdout.readline())

    def ask(self, command: str) -> Any:
        self.tell(command)
        return self.hear()


@contextlib.contextmanager
def racer(commands: forked_cli.Commands, world: nic_attach.World, name: str) -> Iterator[Racer]:
    folder = pathlib.Path(world.home).parent / f"of-{name}"
    with commands.talk(str(pathlib.Path(__file__).with_name("nic_racer.py")), world.node.name, str(folder), name) as running:
        yield Racer(running, name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.full)])
def test_exactly_one_of_two_racing_processes_takes_a_nic(commands: forked_cli.Commands, rounds: int) -> None:
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(nic_attach.untouched_world())
        first, second = (stack.enter_context(racer(commands, world, name)) for name in (nic_driver.NAME, OTHER))
        assert (first.ask("look"), second.ask("look")) == ({}, {}), "both have started"
        before = world.node.state()
        for number in range(rounds):
            at = time.monotonic_ns() + AHEAD_NS
            for each in (first, second):
                each.tell(f"prepare {at + number % 5 * SKEW_NS * (each is first)}")
            result = {each.hear(): each for each in (first, second)}
            assert len(result) == 2, f"round {number}: {list(result)}"
            assert "" in result, f"round {number}: {list(result)}"
            winner = result.pop("")
            ((error, loser),) = result.items()
            assert f"nic0 is shared out by the driver {winner.name}; only one driver can share out an interface" in error, error
            assert (loser.ask("look"), loser.ask("unprepare"), winner.ask("look"), winner.ask("unprepare")) == ({}, "", {"nic0": []}, "")
            assert world.node.state() == before
