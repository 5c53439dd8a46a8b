"""SIGKILL of the driver before and after every note and after every request to the kernel of an attach: nothing is leaked and nothing is lost.

After each kill the world goes on in one of three ways: the runtime starts the container again, the claim is unprepared while its sandbox lives, or
the sandbox ends first. A new driver makes each whole, and in the end the kernel is as it was. CI takes a sample of the steps, ``make crash`` all.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from fakes import netns, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

VICTIM = pathlib.Path(__file__).with_name("nic_victim.py")
TESTS = VICTIM.parents[1]
SAMPLE = 4

Kill = Callable[[nic_attach.World, str, int | None], dict[str, int]]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    path = os.pathsep.join([str(TESTS), *sys.path])
    with subprocess.Popen(
        [sys.executable, VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        given, told = parent.stdin, parent.stdout

        def run(world: nic_attach.World, pod: str, step: int | None) -> dict[str, int]:
            command = {"node": world.node.name, "folder": str(world.home.parent), "pod": pod, "step": step}
            given.write(json.dumps(command) + "\n")
            given.flush()
            answer: dict[str, int] = json.loads(told.readline())
            return answer

        yield run
        given.close()


@contextlib.contextmanager
def prepared() -> Iterator[tuple[nic_attach.World, Callable[[nic_attach.Running], None]]]:
    """A world with one prepared claim and no driver; it must be as before once the claim is unprepared by what is yielded."""
    with nic_attach.world() as world:
        before = world.node.state()
        with world.driver(start=False) as driver:
            ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}))
        yield world, lambda running: running.unprepare(ref)
        assert world.node.state() == before


def steps(kill: Kill) -> int:
    """How many steps an attach has."""
    with prepared() as (world, end), nic_attach.pod() as pod:
        lived = kill(world, pod.space.name, None)
        with world.driver() as driver:
            end(driver)
    assert lived["code"] == 0
    return lived["steps"]


@pytest.fixture(scope="module")
def all_steps(kill: Kill) -> range:
    return range(steps(kill))


def started_again(kill: Kill, step: int) -> None:
    with prepared() as (world, end), nic_attach.pod() as pod:
        assert kill(world, pod.space.name, step)["code"] == -signal.SIGKILL
        with world.driver() as driver:
            (ref,) = {grant.claim for grant in driver.local.site.grants()}
            assert world.call(ref, pod) == nic_attach.Said(0, "")
            assert "10.99.1.2/16" in pod.space.ip("address", "show", "dev", "fast0", "up")
            assert len(driver.members()) == 1
            end(driver)
        assert set(pod.space.links()) == {"lo"}


def unprepared(kill: Kill, step: int) -> None:
    with prepared() as (world, end), nic_attach.pod() as pod:
        assert kill(world, pod.space.name, step)["code"] == -signal.SIGKILL
        with world.driver() as driver:
            end(driver)
            assert not driver.members()
        assert set(pod.space.links()) == {"lo"}


def sandbox_ended(kill: Kill, step: int) -> None:
    with prepared() as (world, end):
        with nic_attach.pod() as pod:
            assert kill(world, pod.space.name, step)["code"] == -signal.SIGKILL
        with world.driver() as driver:
            nic_attach.until(lambda driver=driver: not driver.members(), "the dead sandbox is forgotten")  # type: ignore[misc]
            end(driver)


ENDS: list[Callable[[Kill, int], None]] = [started_again, unprepared, sandbox_ended]


def test_an_attach_has_steps_before_and_after_each_note_and_request(all_steps: range) -> None:
    assert len(all_steps) >= 10


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_death_at_some_step_is_mended(kill: Kill, all_steps: range, end: Callable[[Kill, int], None]) -> None:
    for step in all_steps[ENDS.index(end) :: max(len(all_steps) // SAMPLE, 1)]:
        end(kill, step)


@pytest.mark.full
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_death_at_any_step_is_mended(kill: Kill, all_steps: range, end: Callable[[Kill, int], None]) -> None:
    for step in all_steps:
        end(kill, step)
