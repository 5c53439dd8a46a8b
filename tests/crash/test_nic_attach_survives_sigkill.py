"""SIGKILL of the driver before and after every note and every request to the kernel of an attach: nothing is leaked and nothing is lost.

After each kill the world goes on in one of three ways: the runtime starts the container again, the claim is unprepared while its sandbox lives, or
the sandbox ends first. A new driver makes each whole, and in the end the kernel is as it was. CI takes a sample of the steps, ``make crash`` all.
"""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from crash import nic_parent
from fakes import examples, forked_cli, netns, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def parent(commands: forked_cli.Commands) -> Iterator[nic_parent.Parent]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_parent.parent(commands) as made:
        yield made


def named(world: nic_attach.World, pod: nic_attach.Pod) -> dict[str, str]:
    """The attach of this pod in this world, as the parent is asked for it."""
    return {"act": "attach", "form": "share", "node": world.node.name, "folder": str(world.home.parent), "pod": pod.space.name}


@contextlib.contextmanager
def prepared() -> Iterator[tuple[nic_attach.World, Callable[[nic_attach.Running], None]]]:
    """A world with one prepared claim and no driver; it must be as before once the claim is unprepared by what is yielded."""
    with nic_attach.world() as world:
        before = world.node.state()
        with world.driver(start=False) as driver:
            ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}))
        yield world, lambda running: running.unprepare(ref)
        nic_attach.must_become(world.node, before)


@pytest.fixture(scope="module")
def all_steps(parent: nic_parent.Parent) -> range:
    with prepared() as (world, end), nic_attach.pod() as pod:
        found = parent.steps(**named(world, pod))
        with world.driver() as driver:
            end(driver)
    return range(found)


def is_offered(driver: nic_attach.Running) -> bool:
    """Whether the NIC is still offered: what a dead driver left on it is no use by others."""
    return [nic.interface.name for nic in nic_attach.author_of(driver).survey().nics] == ["nic0"]


def started_again(parent: nic_parent.Parent, step: int) -> None:
    with prepared() as (world, end), nic_attach.pod() as pod:
        parent.kill(step, **named(world, pod))
        with world.driver() as driver:
            assert is_offered(driver)
            (ref,) = {grant.claim for grant in driver.local.context.grants()}
            assert world.call(ref, pod) == nic_attach.Said(0, "")
            assert "10.99.1.2/16" in pod.space.ip("address", "show", "dev", "fast0", "up")
            assert len(driver.members()) == 1
            end(driver)
        assert set(pod.space.links()) == {"lo"}


def unprepared(parent: nic_parent.Parent, step: int) -> None:
    with prepared() as (world, end), nic_attach.pod() as pod:
        parent.kill(step, **named(world, pod))
        with world.driver() as driver:
            assert is_offered(driver)
            end(driver)
            assert is_offered(driver)
            assert not driver.members()
        assert set(pod.space.links()) == {"lo"}


def sandbox_ended(parent: nic_parent.Parent, step: int) -> None:
    with prepared() as (world, end):
        with nic_attach.pod() as pod:
            parent.kill(step, **named(world, pod))
        with world.driver() as driver:
            nic_attach.until(lambda driver=driver: not driver.members(), "the dead sandbox is forgotten")  # type: ignore[misc]
            end(driver)


ENDS: list[Callable[[nic_parent.Parent, int], None]] = [started_again, unprepared, sandbox_ended]


def test_an_attach_has_a_step_after_each_note_and_request(all_steps: range) -> None:
    assert len(all_steps) >= 10


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_an_attach_killed_at_a_sampled_step_is_completed_or_undone(
    parent: nic_parent.Parent, all_steps: range, end: Callable[[nic_parent.Parent, int], None]
) -> None:
    end(parent, examples.draw(f"kills {end.__name__}").choice(all_steps))


@pytest.mark.full
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_an_attach_killed_at_any_step_is_completed_or_undone(
    parent: nic_parent.Parent,
    all_steps: range,
    end: Callable[[nic_parent.Parent, int], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for step in all_steps:
        end(parent, step)
    with capsys.disabled():
        print(f"\nattach, {end.__name__}: {len(all_steps)} deaths")  # noqa: T201 - the matrix says how large it was
