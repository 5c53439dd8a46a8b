"""A whole interface given to a pod by the real hook, and brought back, on the real kernel. The interface is a veth end, so it dies with its pod."""

import dataclasses
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import records
from fakes import netns, nic_attach

pytestmark = pytest.mark.root

PARAMETERS: records.Record = {"interfaceName": "fast0", "mtu": 1400, "addresses": ["10.99.1.2/16"]}


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_attach.world() as made:
        made.settings = dataclasses.replace(made.settings, whole=("nic0",), offer_addressed=True)
        made.node.ip("address", "add", "10.7.0.1/24", "dev", "nic0")
        made.node.ip("link", "set", "nic0", "alias", "of the admin")
        yield made


@pytest.fixture
def pod() -> Iterator[nic_attach.Pod]:
    with nic_attach.pod() as made:
        yield made


def whole(number: int = 1) -> claims.Claim:
    shared = nic_attach.claim(number, parameters=PARAMETERS)
    (result,) = shared.results
    return dataclasses.replace(shared, results=(dataclasses.replace(result, device="nic0-whole", share_id=None, consumed_capacity={}),))


def as_it_was(world: nic_attach.World) -> tuple[object, ...]:
    link = world.node.links()["nic0"]
    return (
        *(link.get(key) for key in ("address", "mtu", "ifalias", "operstate")),
        world.node.ip("-4", "-o", "address", "show", "dev", "nic0"),
    )


def test_it_is_in_the_pod_for_every_container_and_comes_back_as_it_was(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    before = as_it_was(world)
    with world.driver() as driver:
        ref = driver.prepare(whole())
        for container in ("init", "main", "main"):
            assert world.call(ref, pod, container) == nic_attach.Said(0, "")
        link = pod.space.links()["fast0"]
        assert (link["address"], link["mtu"], link["operstate"]) == (nic_attach.NIC_MAC, 1400, "UP")
        assert "10.99.1.2/16" in pod.space.ip("address", "show", "dev", "fast0")
        assert "nic0" not in world.node.links()
        assert "nic0-whole" in driver.local.author.discover().by_name(), "it is still offered while it is away"
        assert driver.prepare(whole()) == ref, "the kubelet may ask again"
        driver.unprepare(ref)
    nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")
    assert as_it_was(world) == before
    assert "fast0" not in pod.space.links()


def test_another_process_brings_it_back(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    before = as_it_was(world)
    with world.driver() as driver:
        ref = driver.prepare(whole())
        assert world.call(ref, pod).code == 0
    with world.driver() as later:
        assert world.call(ref, pod, "second") == nic_attach.Said(0, "")
        later.unprepare(ref)
    nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")
    assert as_it_was(world) == before


def test_a_second_pod_is_refused_while_the_first_has_it(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver, nic_attach.pod("other") as other:
        ref = driver.prepare(whole())
        assert world.call(ref, pod).code == 0
        said = world.call(ref, other)
        assert said.code
        assert (
            "nic0-whole is a whole interface and in another pod of claim default/claim-1; only one pod at a time can have it" in said.stderr
        )
        assert "fast0" in pod.space.links()
        driver.unprepare(ref)


def test_shares_and_the_whole_exclude_each_other(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(whole())
        share = nic_attach.claim(2)
        world.source.put(share)
        refused = driver.local.engine.prepare([share.ref], nic_attach.Waiting())[share.ref.uid]
        assert "counter uses of nic0 is used up by claim default/claim-1" in refused.error
        driver.unprepare(ref)
        driver.unprepare(driver.prepare(share))


def test_a_virtual_interface_that_died_with_its_pod_is_let_go(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(whole())
        with nic_attach.pod() as pod:
            assert world.call(ref, pod).code == 0
        driver.unprepare(ref)
        assert "nic0" not in world.node.links()
        assert driver.local.author.discover().devices == ()


def test_the_host_s_own_network_is_refused(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(whole())
        with nic_attach.inhabited(world.node) as process:
            said = world.call(ref, dataclasses.replace(pod, process=process))
        assert said.code
        assert "hostNetwork" in said.stderr
        driver.unprepare(ref)


def test_what_the_pod_has_of_that_name_is_refused_and_nothing_is_moved(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    before = as_it_was(world)
    pod.space.make_nic("fast0", mac="02:00:00:00:00:77")
    with world.driver() as driver:
        ref = driver.prepare(whole())
        said = world.call(ref, pod)
        assert said.code
        assert "the pod has an interface fast0 already" in said.stderr
        driver.unprepare(ref)
    nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")
    assert as_it_was(world) == before


class Killed(BaseException):
    """The process ends here; nobody may catch it, as nobody catches SIGKILL."""


class Steps:
    """Counts requests that change the kernel, and ends the process after so many."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("attached", [False, True], ids=["never attached", "in a pod"])
def test_a_death_after_any_request_of_unprepare_is_completed_by_the_next_process(
    world: nic_attach.World, pod: nic_attach.Pod, *, attached: bool
) -> None:
    before, wanted, deaths = as_it_was(world), whole(), 0
    for last in range(1, 20):
        steps = Steps()
        with world.driver(step=steps) as driver:
            ref = driver.prepare(wanted)
            assert not attached or world.call(ref, pod).code == 0
            steps.left = last
            try:
                driver.unprepare(ref)
            except Killed:
                deaths += 1
            steps.left = 0
        with world.driver() as later:
            later.unprepare(ref)
        nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")
        assert as_it_was(world) == before
        if deaths < last:
            break
    assert deaths >= (1 if not attached else 5), "each request was the last one once"


def test_a_death_right_after_the_mark_is_undone_or_completed(world: nic_attach.World) -> None:
    before, wanted, steps = as_it_was(world), whole(), Steps()
    with world.driver(step=steps, start=False) as driver:
        steps.left = 1
        with pytest.raises(Killed):
            driver.prepare(wanted)
        steps.left = 0
    assert world.node.links()["nic0"]["ifalias"] != before[2]
    with world.driver() as later:
        later.unprepare(later.prepare(wanted))
    assert as_it_was(world) == before
