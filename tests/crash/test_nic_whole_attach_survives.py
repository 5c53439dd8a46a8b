"""A whole NIC whose attach fails, or whose driver dies, at any step is not lost, although the driver can enter no sandbox by itself.

Each step is a request to the kernel or a note. What happens then: the container is started again in its sandbox, also with the same fault; the pod
is given up and its sandbox ends; the driver is killed at the step, or while it takes the interface back. CI takes a sample, ``make crash`` all.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from crash import contained_nic_driver, killable_nic_driver
from fakes import examples, forked_cli, netns, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

REF = killable_nic_driver.claim_of("whole").ref
HOST_ROUTE = "10.50.0.0/16"


@pytest.fixture(scope="module")
def forker(commands: forked_cli.Commands) -> Iterator[contained_nic_driver.Forker]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with contained_nic_driver.forker(commands) as made:
        yield made


@dataclasses.dataclass(frozen=True)
class Node:
    """A node with the whole NIC of one claim, and what the NIC was before."""

    world: nic_attach.World
    forker: contained_nic_driver.Forker
    before: tuple[object, ...]

    def life(self) -> contextlib.AbstractContextManager[contained_nic_driver.ContainedDriver]:
        return self.forker.life(self.world)

    def has_it(self) -> bool:
        return "nic0" in self.world.node.links()

    def is_back(self) -> None:
        """Assert that the host has the interface as it was, but for its mark."""
        assert self.has_it(), "the interface is not the host's again"
        linked(self)
        assert facts(self.world) == self.before

    def end(self) -> None:
        """Unprepare; the interface is as it was, its alias too."""
        with self.life() as driver:
            assert driver.unprepare() == ""
        assert self.world.node.links()["nic0"]["ifalias"] == "of the admin"
        self.is_back()

    def fails(self, driver: contained_nic_driver.ContainedDriver, pod: nic_attach.Pod, step: int) -> None:
        """A try that fails at a step, after which the host has the interface."""
        driver.arm(fail=step)
        said = self.world.call(REF, pod)
        assert said.code
        assert "made to fail" in said.stderr
        assert "is gone" not in said.stderr
        self.is_back()
        assert "lookup 100" not in pod.space.ip("rule"), "nothing of it outlives the interface in the pod"

    def dies(self, pod: nic_attach.Pod, step: int, fail: int = 0) -> None:
        """A try in which the driver dies at a step."""
        with self.life() as driver:
            driver.arm(kill=step, fail=fail)
            assert self.world.call(REF, pod).code

    def works(self, driver: contained_nic_driver.ContainedDriver, pod: nic_attach.Pod) -> None:
        """A try that attaches."""
        driver.arm()
        assert self.world.call(REF, pod) == nic_attach.Said(0, "")
        assert "10.99.1.2/16" in pod.space.ip("address", "show", "dev", "fast0", "up")
        assert "10.62.0.0/16 via 10.99.0.1 dev fast0" in pod.space.ip("route")
        assert pod.space.ip("rule").count("from 10.99.1.2 lookup 100") == 1
        assert not self.has_it()


def facts(world: nic_attach.World) -> tuple[object, ...]:
    link = world.node.links()["nic0"]
    listed = world.node.ip("-4", "-o", "address", "show", "dev", "nic0")
    return link["address"], link["mtu"], listed, world.node.ip("route", "show", HOST_ROUTE)


def linked(node: Node) -> None:
    nic_attach.until(lambda: node.world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")


@contextlib.contextmanager
def prepared(forker: contained_nic_driver.Forker) -> Iterator[Node]:
    """A node whose claim is prepared, and that has no driver."""
    with nic_attach.world() as made:
        world = killable_nic_driver.world_of(made.node.name, made.home.parent)
        world.node.ip("address", "add", "10.7.0.1/24", "dev", "nic0")
        world.node.ip("link", "set", "nic0", "alias", "of the admin")
        world.node.ip("route", "add", HOST_ROUTE, "via", "10.7.0.254")
        node = Node(world, forker, facts(world))
        with node.life() as driver:
            assert driver.prepare() == ""
        yield node


@pytest.fixture(scope="module")
def all_steps(forker: contained_nic_driver.Forker) -> range:
    with prepared(forker) as node, nic_attach.pod() as pod, node.life() as driver:
        node.works(driver, pod)
        return range(1, driver.passed() + 1)


def again(step: int) -> int:
    """The same step of the next try in a sandbox, whose namespace has its number already."""
    return max(step - 1, 1)


def failed_and_tried_again(node: Node, step: int) -> None:
    with nic_attach.pod() as pod, node.life() as driver:
        node.fails(driver, pod, step)
        node.works(driver, pod)
        driver.arm(fail=1)
        assert node.world.call(REF, pod, "second").code, "the next container's attach fails"
        assert "fast0" in pod.space.links(), "it is not taken from the first container"
        driver.arm()
        assert "cannot be entered" in driver.unprepare(), "it is not forgotten while a pod has it"
    with node.life() as driver:
        assert driver.unprepare() == "", "the virtual interface ended with its sandbox"


def failed_twice_and_given_up(node: Node, step: int) -> None:
    with nic_attach.pod() as pod, node.life() as driver:
        node.fails(driver, pod, step)
        node.fails(driver, pod, again(step))
    node.end()


def failed_and_failed_with_a_new_driver(node: Node, step: int) -> None:
    with nic_attach.pod() as pod:
        for tried in (step, again(step)):
            with node.life() as driver:
                node.fails(driver, pod, tried)
    node.end()


def failed_and_given_to_a_new_sandbox(node: Node, step: int) -> None:
    with node.life() as driver:
        with nic_attach.pod() as pod:
            node.fails(driver, pod, step)
        with nic_attach.pod("new") as pod:
            node.works(driver, pod)


def killed_and_tried_again(node: Node, step: int) -> None:
    with nic_attach.pod() as pod:
        node.dies(pod, step)
        with node.life() as driver:
            node.works(driver, pod)


def killed_and_failed(node: Node, step: int) -> None:
    with nic_attach.pod() as pod:
        node.dies(pod, step)
        with node.life() as driver:
            driver.arm(fail=1)
            assert node.world.call(REF, pod).code
            if node.has_it():
                node.is_back()
            else:
                assert "fast0" in pod.space.ip("-d", "link"), "the step was the last, and the container has it"
                return
    node.end()


def killed_while_taking_it_back(node: Node, step: int) -> None:
    """But for the last step: once it is noted that the container has it, it is."""
    for later in (1, 3, 6):
        with nic_attach.pod() as pod:
            node.dies(pod, again(step) + later, fail=again(step))
            with node.life() as driver:
                node.fails(driver, pod, 1)
    node.end()


def killed_and_the_sandbox_ended(node: Node, step: int) -> None:
    with nic_attach.pod() as pod:
        node.dies(pod, step)
        was_away = not node.has_it()
    with node.life() as driver, nic_attach.pod("new") as pod:
        if not was_away:
            node.works(driver, pod)
            return
        nic_attach.until(lambda: "in another pod" not in node.world.call(REF, pod).stderr, "it is in another pod for ever")
        assert "a virtual interface ends with the network namespace of the pod that had it" in node.world.call(REF, pod).stderr
        assert driver.unprepare() == ""


STORIES: list[Callable[[Node, int], None]] = [
    failed_and_tried_again,
    failed_twice_and_given_up,
    failed_and_failed_with_a_new_driver,
    failed_and_given_to_a_new_sandbox,
    killed_and_tried_again,
    killed_and_failed,
    killed_while_taking_it_back,
    killed_and_the_sandbox_ended,
]


def test_an_attach_has_a_step_for_each_note_and_request(all_steps: range) -> None:
    assert len(all_steps) >= 12


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_whole_nic_survives_some_faults(
    forker: contained_nic_driver.Forker, all_steps: range, story: Callable[[Node, int], None]
) -> None:
    with prepared(forker) as node:
        story(node, examples.draw(f"faults {story.__name__}").choice(all_steps))


@pytest.mark.full
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_whole_nic_survives_every_fault(
    forker: contained_nic_driver.Forker,
    all_steps: range,
    story: Callable[[Node, int], None],
    record_property: Callable[[str, object], None],
) -> None:
    for step in all_steps:
        with prepared(forker) as node:
            story(node, step)
    record_property("matrix", f"whole NIC, {story.__name__}: {len(all_steps)} steps")
