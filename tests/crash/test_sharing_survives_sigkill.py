"""A real SIGKILL around every step, and at every line, of preparing and unpreparing a GPU, a share and a partition with an MPS daemon.

The driver dies, or the daemon does, or what is about to become one. In the end no process, folder or setting is left, and a retry in between makes
the claim whole. A daemon that lives is left as it is by a driver that starts; one that died while no driver ran is started by the next.
"""

import random
from collections.abc import Iterator

import pytest

from crash import gpu_daemons, gpu_scenarios

SAMPLE = 2
CALLS = ("prepare", "unprepare")


@pytest.fixture(scope="module")
def parent() -> Iterator[gpu_scenarios.Parent]:
    with gpu_scenarios.a_parent() as running:
        yield running


@pytest.fixture
def world(parent: gpu_scenarios.Parent, request: pytest.FixtureRequest) -> Iterator[gpu_daemons.World]:
    with gpu_daemons.a_world(parent, getattr(request, "param", gpu_daemons.GPU)) as made:
        yield made


def with_stories(*stories: str) -> pytest.MarkDecorator:
    """The stories that a test tells; the lines of the code are much the same in all of them, the steps are not."""
    return pytest.mark.parametrize("world", stories, indirect=True)


def check_every_call(world: gpu_daemons.World, *, by_line: bool, falls: str = "itself") -> int:
    """Hurt prepare and unprepare at every point; how many there are."""
    found = gpu_daemons.points(world, CALLS, by_line=by_line)
    for act, step in found:
        gpu_daemons.check_call(world, act, step, by_line=by_line, falls=falls)
    return len(found)


@with_stories(gpu_daemons.SHARE)
@pytest.mark.parametrize("by_line", [False, True], ids=["step", "line"])
def test_a_kill_at_a_sampled_point_leaves_no_daemon_and_no_setting(world: gpu_daemons.World, by_line: bool) -> None:  # noqa: FBT001 - a parameter of the test
    found = gpu_daemons.points(world, CALLS, by_line=by_line)
    assert len(found) >= 30, "before and after every hardware call, journal write, file and move of the daemon"
    for act, step in random.Random("mps").sample(found, SAMPLE):
        gpu_daemons.check_call(world, act, step, by_line=by_line)


@with_stories(gpu_daemons.SHARE)
def test_a_daemon_that_falls_at_a_sampled_line_is_made_anew(world: gpu_daemons.World) -> None:
    found = gpu_daemons.points(world, CALLS, by_line=True)
    for act, step in random.Random("fall").sample(found, SAMPLE):
        gpu_daemons.check_call(world, act, step, by_line=True, falls="daemons")


@with_stories(gpu_daemons.SHARE)
def test_a_start_killed_at_a_sampled_point_is_made_good_by_the_next(world: gpu_daemons.World) -> None:
    world.must("prepare")
    for by_line in (False, True):
        world.kill_daemons()
        for step in random.Random("start").sample(range(world.steps("start", by_line=by_line)), SAMPLE):
            gpu_daemons.check_start(world, step, by_line=by_line)
    world.must("unprepare")
    world.is_clean("after all starts")


def test_a_driver_that_starts_finds_the_daemon_again_and_leaves_it(world: gpu_daemons.World) -> None:
    world.must("prepare")
    before = world.living()
    assert [len(found) for found in before.values()] == [2], "a daemon and its server"
    world.must("start")
    world.must("prepare")
    assert world.living() == before, "the same processes"
    world.is_prepared("after a start")
    world.must("unprepare")
    world.is_clean("after a start")


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(*gpu_daemons.STORIES)
def test_a_kill_at_any_step_leaves_no_daemon_and_no_setting(
    world: gpu_daemons.World, request: pytest.FixtureRequest, record_property: gpu_scenarios.Record
) -> None:
    found = check_every_call(world, by_line=False)
    record_property("matrix", f"MPS {request.node.callspec.id}: {found} kills of the driver, by step")
    assert found >= 40


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(gpu_daemons.PARTITION)
def test_a_kill_at_any_line_leaves_no_daemon_and_no_setting(world: gpu_daemons.World, record_property: gpu_scenarios.Record) -> None:
    found = check_every_call(world, by_line=True)
    record_property("matrix", f"MPS: {found} kills of the driver, by line")
    assert found >= 100


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(gpu_daemons.SHARE)
def test_a_daemon_that_falls_at_any_line_is_made_anew(world: gpu_daemons.World, record_property: gpu_scenarios.Record) -> None:
    found = check_every_call(world, by_line=True, falls="daemons")
    record_property("matrix", f"MPS: {found} kills of the daemon, by line")
    assert found >= 100


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(gpu_daemons.SHARE)
@pytest.mark.parametrize("by_line", [False, True], ids=["step", "line"])
def test_a_start_killed_at_any_point_is_made_good_by_the_next(
    world: gpu_daemons.World,
    by_line: bool,  # noqa: FBT001 - a parameter of the test
    record_property: gpu_scenarios.Record,
) -> None:
    world.must("prepare")
    world.kill_daemons()
    steps = world.steps("start", by_line=by_line)
    for step in range(steps):
        gpu_daemons.check_start(world, step, by_line=by_line)
    world.must("unprepare")
    world.is_clean("after all starts")
    record_property("matrix", f"MPS: {steps} kills of a start, by {'line' if by_line else 'step'}")
    assert steps >= 10
