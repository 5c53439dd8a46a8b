"""A real SIGKILL around every step, and at every line, of preparing and unpreparing a GPU, a share and a partition with an MPS daemon.

The driver dies, or the daemon does. In the end no process, pod, folder or setting is left, and a retry in between makes the claim whole. A daemon
that lives is left as it is by a driver that starts; one whose pod was over while no driver ran is started by the next. A run draws a point of each
kind, ``make crash`` takes all.
"""

from collections.abc import Iterator

import pytest

from crash import gpu_daemons, gpu_scenarios
from fakes import examples, forked_cli

CALLS = ("prepare", "unprepare")
CHANGES = ("begin", "ensure", "check", "write", "complete", "begin_unprepare", "remove", "stop", "finish_unprepare")
CHANGE_STEPS = {f"{moment} {change}" for change in CHANGES for moment in ("before", "after")}


@pytest.fixture(scope="module")
def parent(commands: forked_cli.Commands) -> Iterator[gpu_scenarios.Parent]:
    with gpu_scenarios.a_parent(commands) as running:
        yield running


@pytest.fixture(scope="module")
def world(parent: gpu_scenarios.Parent, request: pytest.FixtureRequest) -> Iterator[gpu_daemons.World]:
    """A world that each test leaves clean."""
    with gpu_daemons.a_world(parent, getattr(request, "param", gpu_daemons.GPU)) as made:
        yield made


def with_stories(*stories: str) -> pytest.MarkDecorator:
    """The stories that a test tells; the lines of the code are much the same in all of them, the steps are not."""
    return pytest.mark.parametrize("world", stories, indirect=True)


def check_every_call(world: gpu_daemons.World, *, by_line: bool, falls: str = "itself") -> list[gpu_daemons.Point]:
    """Hurt prepare and unprepare at every point, and return the points."""
    points = world.points(*CALLS, by_line=by_line)
    for point in points:
        gpu_daemons.check_call(world, point, falls=falls)
    return points


@with_stories(gpu_daemons.SHARE)
def test_a_kill_at_a_sampled_point_leaves_no_daemon_and_no_setting(world: gpu_daemons.World) -> None:
    points = world.points(*CALLS, by_line=False)
    assert {point.name for point in points} >= CHANGE_STEPS
    chance = examples.draw("kills of drivers")
    gpu_daemons.check_call(world, chance.choice(chance.choice((points, world.points(*CALLS, by_line=True)))))


@with_stories(gpu_daemons.SHARE)
def test_a_daemon_that_dies_at_a_sampled_line_is_restarted(world: gpu_daemons.World) -> None:
    point = examples.draw("kills of daemons").choice(world.points(*CALLS, by_line=True))
    gpu_daemons.check_call(world, point, falls="daemons")


@with_stories(gpu_daemons.SHARE)
def test_the_next_start_completes_one_killed_at_a_sampled_point(world: gpu_daemons.World) -> None:
    world.must("prepare")
    world.end_pods()
    chance = examples.draw("kills of starts")
    gpu_daemons.check_start(world, chance.choice(world.points("start", by_line=chance.choice((False, True)))))
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
    points = check_every_call(world, by_line=False)
    record_property("matrix", f"MPS {request.node.callspec.id}: {len(points)} kills of the driver, by step")
    assert {point.name for point in points} >= CHANGE_STEPS


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(gpu_daemons.PARTITION)
def test_a_kill_at_any_line_leaves_no_daemon_and_no_setting(world: gpu_daemons.World, record_property: gpu_scenarios.Record) -> None:
    points = check_every_call(world, by_line=True)
    record_property("matrix", f"MPS: {len(points)} kills of the driver, by line")
    assert len(points) >= 100


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(gpu_daemons.SHARE)
def test_a_daemon_that_dies_at_any_line_is_restarted(world: gpu_daemons.World, record_property: gpu_scenarios.Record) -> None:
    points = check_every_call(world, by_line=True, falls="daemons")
    record_property("matrix", f"MPS: {len(points)} kills of the daemon, by line")
    assert len(points) >= 80


@pytest.mark.full
@pytest.mark.timeout(3600)
@with_stories(gpu_daemons.SHARE)
@pytest.mark.parametrize("by_line", [False, True], ids=["step", "line"])
def test_the_next_start_completes_one_killed_at_any_point(
    world: gpu_daemons.World,
    by_line: bool,  # noqa: FBT001 - a parameter of the test
    record_property: gpu_scenarios.Record,
) -> None:
    world.must("prepare")
    world.end_pods()
    points = world.points("start", by_line=by_line)
    for point in points:
        gpu_daemons.check_start(world, point)
    world.must("unprepare")
    world.is_clean("after all starts")
    record_property("matrix", f"MPS: {len(points)} kills of a start, by {'line' if by_line else 'step'}")
    assert len(points) >= 10
