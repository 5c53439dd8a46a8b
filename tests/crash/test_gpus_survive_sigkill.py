"""A real SIGKILL before and after every hardware call, journal write and CDI file of prepare and unprepare, on every GPU table.

After a restart and the kubelet's retry the world is that of a node that never crashed: the same instances, settings, journal and CDI files, other
claims and what an admin made untouched. The normal run draws a sixteenth of the points of one table and one of each other table, the full one
every point of every table.
"""

import pathlib
import tempfile
from collections.abc import Callable, Iterator

import pytest

from crash import gpu_scenarios
from drakit_gpu import port
from fakes import examples, forked_cli

HERE = gpu_scenarios.InThisProcess()
SAMPLE = 1
EVERY_TIME, *OTHERS = gpu_scenarios.TABLES


@pytest.fixture(scope="module")
def parent(commands: forked_cli.Commands) -> Iterator[gpu_scenarios.Parent]:
    with gpu_scenarios.a_parent(commands) as running:
        yield running


def check(parent: gpu_scenarios.Parent, result: gpu_scenarios.Scenario, act: str, step: int, folder: pathlib.Path) -> None:
    """Kill at a point, start anew, let the kubelet retry, and compare with the node that never crashed."""
    node = (result.before if act == "prepare" else result.prepared).copy(folder)
    parent.kill(node, act, result.wants, step)
    gpu_scenarios.judge(HERE, result, act, node, f"{result.name} {act} {step}")


def check_some(parent: gpu_scenarios.Parent, model: str, kind: str, count: Callable[[int], int]) -> int:
    """As many points of a story as ``count`` takes of all, drawn anew in each run; how many there are."""
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        folder = pathlib.Path(made)
        result = gpu_scenarios.story(HERE, folder / kind, model, kind)
        for act, step in examples.draw(f"kills {model} {kind}").sample(result.points, count(len(result.points))):
            check(parent, result, act, step, folder / f"{act}-{step}")
    return len(result.points)


@pytest.mark.parametrize("kind", gpu_scenarios.KINDS)
def test_a_kill_at_a_sixteenth_of_the_points_changes_nothing_in_the_end_on_one_table(parent: gpu_scenarios.Parent, kind: str) -> None:
    points = check_some(parent, EVERY_TIME, kind, lambda count: count // 16)
    assert points >= 24, "before and after every journal write, every file and every hardware call"


@pytest.mark.parametrize("model", OTHERS)
def test_a_kill_at_a_sampled_point_changes_nothing_in_the_end(parent: gpu_scenarios.Parent, model: str) -> None:
    kind = gpu_scenarios.KINDS[OTHERS.index(model) % len(gpu_scenarios.KINDS)]
    assert check_some(parent, model, kind, lambda _: SAMPLE) > 8


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", gpu_scenarios.TABLES)
def test_a_kill_at_any_point_changes_nothing_in_the_end(
    parent: gpu_scenarios.Parent, model: str, record_property: gpu_scenarios.Record
) -> None:
    points = sum(check_some(parent, model, kind, int) for kind in gpu_scenarios.KINDS)
    record_property("matrix", f"{model}: {points} kills")
    assert points > 300


def test_the_parent_detects_a_process_that_was_not_killed(parent: gpu_scenarios.Parent) -> None:
    """A step beyond the last kills nobody: the points are all there are."""
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        folder = pathlib.Path(made)
        result = gpu_scenarios.story(HERE, folder / "s", EVERY_TIME, gpu_scenarios.ALONE)
        node = result.before.copy(folder / "beyond")
        steps = parent.finish(node.life("prepare", result.wants), result.prepare_steps)
        assert len(steps) == result.prepare_steps
        assert port.MigMode(current=True, pending=True) == node.look()["mode"]
