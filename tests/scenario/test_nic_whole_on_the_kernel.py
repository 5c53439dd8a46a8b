"""A whole interface given to a pod by the real hook, and brought back, on the real kernel. The interface is a veth end, so it dies with its pod."""

import dataclasses
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import records
from fakes import log_lines, netns, nic_attach

pytestmark = pytest.mark.root

PARAMETERS: records.Record = {"interfaceName": "fast0", "mtu": 1400, "addresses": ["10.99.1.2/16"]}


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_attach.world() as made:
        made.options = dataclasses.replace(made.options, whole=("nic0",), offer_addressed=True)
        made.node.ip("address", "add", "10.7.0.1/24", "dev", "nic0")
        made.node.ip("link", "set", "nic0", "alias", "of the admin")
        give_routes(made.node)
        yield made


def give_routes(node: netns.Namespace) -> None:
    """What an admin may have given the host by nic0: onto the link, by gateways, in other tables, with metrics, by several ways."""
    node.ip("route", "add", "10.50.0.0/16", "via", "10.7.0.254")
    node.ip("route", "add", "10.51.0.0/16", "dev", "nic0", "metric", "7", "table", "100", "proto", "77", "mtu", "1400")
    node.ip("route", "add", "10.52.0.0/16", "via", "192.0.2.1", "dev", "nic0", "onlink", "src", "10.7.0.1")
    node.ip("route", "add", "10.53.0.0/16", "nexthop", "via", "10.7.0.253", "weight", "3", "nexthop", "via", "10.7.0.254")
    node.ip("route", "add", "10.55.0.0/16", "via", "10.7.0.254", "metric", "9000", "table", "4000000")
    if netns.HAS_IPV6:
        node.ip("address", "add", "fd07::1/64", "dev", "nic0", "nodad")
        node.ip("route", "add", "fd50::/48", "via", "fd07::fe")
        node.ip("route", "add", "fd51::/48", "dev", "nic0", "table", "100", "metric", "5")
        node.ip("route", "add", "fd52::/48", "nexthop", "via", "fd07::fd", "nexthop", "via", "fd07::fe")


def routes(world: nic_attach.World) -> list[str]:
    """The routes of the host, but for those that the kernel makes."""
    reported = [line for family in ("-4", "-6") for line in world.node.ip(family, "route", "show", "table", "all").splitlines()]
    return sorted(
        " ".join(line.split()) for line in reported if "nic0" in line and "proto kernel" not in line and "table local" not in line
    )


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
        routes(world),
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
        assert "the pod has another interface named 'fast0'; choose a different NicConfig.interfaceName" in said.stderr
        driver.unprepare(ref)
    nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")
    assert as_it_was(world) == before


@pytest.mark.parametrize(
    "name, altname, message",
    [
        ("eth0", "fast0", "named 'fast0' ('eth0' with the alternative name 'fast0'); choose a different NicConfig.interfaceName\n"),
        (
            "eth7",
            "",
            "named 'eth7', which is an alternative name of the NIC nic0; rename the pod's interface, or on the host: ip link property",
        ),
    ],
    ids=["in the pod", "on the host"],
)
def test_an_alternative_name_that_is_taken_is_refused_like_a_name(
    world: nic_attach.World, pod: nic_attach.Pod, name: str, altname: str, message: str
) -> None:
    world.node.ip("link", "property", "add", "dev", "nic0", "altname", "eth7")
    before = as_it_was(world)
    pod.space.make_nic(name, mac="02:00:00:00:00:77")
    if altname:
        pod.space.ip("link", "property", "add", "dev", name, "altname", altname)
    with world.driver() as driver:
        ref = driver.prepare(whole())
        said = world.call(ref, pod)
        assert said.code
        assert said.stderr.startswith(f"drakit: the pod has another interface {message}")
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


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)], ids=["sampled", "every"])
@pytest.mark.parametrize("attached", [False, True], ids=["never attached", "in a pod"])
def test_a_death_after_any_request_of_unprepare_is_completed_by_the_next_process(
    world: nic_attach.World, pod: nic_attach.Pod, *, attached: bool, every: int
) -> None:
    before, wanted, last, died = as_it_was(world), whole(), 0, True
    for last in range(1, 60, every):
        steps, died = Steps(), False
        with world.driver(step=steps) as driver:
            ref = driver.prepare(wanted)
            assert not attached or world.call(ref, pod).code == 0
            steps.left = last
            try:
                driver.unprepare(ref)
            except Killed:
                died = True
            steps.left = 0
        with world.driver() as later:
            later.unprepare(ref)
        nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")
        assert as_it_was(world) == before
        if not died:
            break
    assert not died, "there are fewer requests than lives"
    assert last > (10 if attached else 1)


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


def linked(world: nic_attach.World) -> None:
    nic_attach.until(lambda: world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")


def test_the_host_s_routes_come_back_with_it(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    before = routes(world)
    assert len(before) >= 5
    with world.driver() as driver:
        ref = driver.prepare(whole())
        assert world.call(ref, pod).code == 0
        assert routes(world) == []
        driver.unprepare(ref)
    linked(world)
    assert routes(world) == before


def test_the_default_route_goes_only_where_an_admin_says_so_and_comes_back(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    world.node.ip("route", "add", "default", "via", "10.7.0.254")
    before = routes(world)
    with world.driver() as driver:
        assert driver.local.author.discover().devices == ()
    world.options = dataclasses.replace(world.options, take_over=("nic0",), reserve=nic_attach.BITS("1G"))
    with world.driver() as driver:
        ref = driver.prepare(whole())
        assert world.call(ref, pod).code == 0
        driver.unprepare(ref)
    linked(world)
    assert routes(world) == before


def test_a_route_that_cannot_come_back_is_reported_and_the_rest_does(
    world: nic_attach.World, pod: nic_attach.Pod, logged: log_lines.LogLines
) -> None:
    world.node.make_nic("spare", mac="02:00:00:00:00:78")
    world.node.ip("address", "add", "10.8.0.1/24", "dev", "spare")
    before = [line for line in routes(world) if not line.startswith("10.50.")]
    with world.driver() as driver:
        ref = driver.prepare(whole())
        assert world.call(ref, pod).code == 0
        world.node.ip("route", "add", "10.50.0.0/16", "via", "10.8.0.254")
        driver.unprepare(ref)
    linked(world)
    assert routes(world) == before
    assert "10.50.0.0/16 via 10.8.0.254 dev spare" in world.node.ip("route"), "what somebody else made meanwhile is not replaced"
    (line,) = (record for record in logged.lines if record["event"] == "route restore failed")
    assert line["interface"] == "nic0"
    assert line["route"].startswith("10.50.0.0/16 via 10.7.0.254 dev nic0 table 254")
    world.node.ip("link", "delete", "spare")


def test_a_route_that_an_admin_took_from_an_interface_that_never_left_stays_away(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(whole())
        world.node.ip("route", "delete", "10.50.0.0/16")
        left = routes(world)
        driver.unprepare(ref)
    assert routes(world) == left


def test_ways_by_other_interfaces_stay_and_are_joined_again(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    world.node.make_nic("spare", mac="02:00:00:00:00:78")
    world.node.ip("address", "add", "10.8.0.1/24", "dev", "spare")
    world.node.ip("route", "add", "10.54.0.0/16", "nexthop", "via", "10.7.0.254", "nexthop", "via", "10.8.0.254")
    if netns.HAS_IPV6:
        world.node.ip("address", "add", "fd08::1/64", "dev", "spare", "nodad")
        world.node.ip("route", "add", "fd54::/48", "nexthop", "via", "fd07::fe", "nexthop", "via", "fd08::fe")
    before = sorted(world.node.ip("route").split("\n")), sorted(world.node.ip("-6", "route").split("\n"))
    with world.driver() as driver:
        ref = driver.prepare(whole())
        assert world.call(ref, pod).code == 0
        driver.unprepare(ref)
    linked(world)
    assert "nexthop via 10.8.0.254 dev spare" in world.node.ip("route", "show", "10.54.0.0/16")
    assert sorted(world.node.ip("route").split("\n")) == before[0]
    if netns.HAS_IPV6:
        shown = world.node.ip("-6", "route", "show", "fd54::/48")
        assert "via fd07::fe dev nic0" in shown
        assert "via fd08::fe dev spare" in shown
    world.node.ip("link", "delete", "spare")
