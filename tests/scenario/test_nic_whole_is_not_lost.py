"""A whole interface that a pod could not be given is the host's again at once, and nothing that a pod can write makes the driver take another.

The interface is a veth end on the real kernel. ``Secluded`` drivers see no namespace but their own, as in a container without host mounts; the others
see every process, as on a host or with hostPID.
"""

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from crash import contained_nic_driver, killable_nic_driver
from drakit.core import claim as claims
from drakit.core import claim_status, errors, records
from drakit.node import driver_context
from drakit_nic import kernel_port, link_monitor, pod_interfaces
from fakes import forked_cli, log_lines, netns, nic_attach, watched_driver

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

WHOLE = killable_nic_driver.claim_of("whole")
ROUTE = "10.60.0.0/16"
ROUTED: records.Record = {"interfaceName": "fast0", "addresses": ["10.99.1.2/16"], "routes": [{"destination": ROUTE}]}


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_attach.world() as made:
        made.options = dataclasses.replace(made.options, whole=("nic0",), offer_addressed=True)
        made.node.ip("address", "add", "10.7.0.1/24", "dev", "nic0")
        made.node.ip("link", "set", "nic0", "alias", "of the admin")
        yield made


@pytest.fixture
def pod() -> Iterator[nic_attach.Pod]:
    with nic_attach.pod() as made:
        yield made


@pytest.fixture(scope="module")
def forker(commands: forked_cli.Commands) -> Iterator[contained_nic_driver.Forker]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with contained_nic_driver.forker(commands) as made:
        yield made


def whole(parameters: records.Record) -> claims.Claim:
    """The claim for the whole NIC, with these parameters."""
    made = nic_attach.claim(1, parameters=parameters)
    return dataclasses.replace(WHOLE, configs=made.configs)


def give_route(pod: nic_attach.Pod) -> None:
    """The pod has a route of its own to where the claim wants one."""
    pod.space.make_nic("eth0", mac="02:00:00:00:00:44")
    pod.space.ip("route", "add", ROUTE, "dev", "eth0")


def is_back(world: nic_attach.World) -> bool:
    found = world.node.links().get("nic0")
    return found is not None and "UP" in str(found["flags"]) and "10.7.0.1/24" in world.node.ip("address", "show", "dev", "nic0")


@contextlib.contextmanager
def reporting(world: nic_attach.World) -> Iterator[tuple[nic_attach.Running, Callable[[], tuple[bool, str, str] | None]]]:
    """A driver, and what it said last of its device's Ready condition: status, reason and message."""
    said: list[claim_status.DeviceStatus] = []
    with world.driver(start=False) as driver:
        driver.local.context.sinks = driver_context.ReportSinks(status=lambda _, status: said.append(status))
        with watched_driver.watching(nic_attach.author_of(driver), driver.local.context):
            yield (
                driver,
                lambda: next(((ready.status, ready.reason, ready.message) for ready in said[-1].conditions), None) if said else None,
            )


def test_an_attach_that_the_pod_makes_impossible_gives_the_interface_back_each_time(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    give_route(pod)
    with world.driver() as driver:
        ref = driver.prepare(whole(ROUTED))
        for _ in range(3):
            said = world.call(ref, pod)
            assert f"the pod has a route to {ROUTE}" in said.stderr
            assert is_back(world)
            assert "fast0" not in pod.space.links()
        pod.space.ip("route", "delete", ROUTE, "dev", "eth0")
        assert world.call(ref, pod) == nic_attach.Said(0, "")
        driver.unprepare(ref)
    assert is_back(world)
    assert world.node.links()["nic0"]["ifalias"] == "of the admin"


def test_a_pod_that_was_refused_and_is_given_up_costs_no_interface(
    world: nic_attach.World, forker: contained_nic_driver.Forker, pod: nic_attach.Pod
) -> None:
    secluded = killable_nic_driver.world_of(world.node.name, world.home.parent)
    pod.space.make_nic("fast0", mac="02:00:00:00:00:77")
    with forker.life(secluded) as driver:
        assert driver.prepare() == ""
        for _ in range(2):
            assert (
                "the pod has another interface named 'fast0'; choose a different NicConfig.interfaceName"
                in secluded.call(WHOLE.ref, pod).stderr
            )
            assert is_back(world)
        assert driver.unprepare() == ""
    assert is_back(world)


def test_another_pod_s_interface_with_the_mark_is_left_where_it_is(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    pod.space.make_nic("evil0", mac="02:00:00:00:00:66")
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        mark = world.node.links()["nic0"]["ifalias"]
        with nic_attach.pod("first") as first:
            assert world.call(ref, first).code == 0
            pod.space.ip("link", "set", "evil0", "alias", str(mark))
        with nic_attach.pod("second") as second:
            nic_attach.until(lambda: "in another pod" not in world.call(ref, second).stderr, "it ended with its namespace")
            assert "is gone" in world.call(ref, second).stderr, "a marked interface is not moved into a pod"
            assert "fast0" not in second.space.links()
        driver.unprepare(ref)
    assert "nic0" not in world.node.links(), "nothing is brought back"
    assert "evil0" in pod.space.links()


def test_an_interface_that_an_admin_took_away_is_not_replaced_by_a_marked_one(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    pod.space.make_nic("evil0", mac="02:00:00:00:00:66")
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        pod.space.ip("link", "set", "evil0", "alias", str(world.node.links()["nic0"]["ifalias"]))
        world.node.ip("link", "delete", "nic0")
        with nic_attach.pod("second") as second:
            assert "is gone" in world.call(ref, second).stderr
            assert set(second.space.links()) == {"lo"}
        driver.unprepare(ref)
    assert "evil0" in pod.space.links()


def lookalike(pod: nic_attach.Pod) -> None:
    """The pod's root deletes its interface, and makes one of the same kind, name, index, MAC and alias."""
    found = pod.space.links()["fast0"]
    pod.space.ip("link", "delete", "fast0")
    index = ("index", str(found["ifindex"]))
    pod.space.ip("link", "add", "fast0", *index, "address", str(found["address"]), "type", "veth", "peer", "name", "fast0-wire")
    pod.space.ip("link", "set", "fast0", "alias", str(found.get("ifalias", "none")))


def test_a_lookalike_that_the_pod_made_stays_in_the_pod(world: nic_attach.World, pod: nic_attach.Pod, logged: log_lines.LogLines) -> None:
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
        lookalike(pod)
        driver.unprepare(ref)
    assert "nic0" not in world.node.links()
    assert "fast0" in pod.space.links()
    assert "interface gone with its pod" in logged.text


def test_a_lookalike_put_in_its_place_at_the_last_moment_is_sent_back(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    armed: list[bool] = []

    def swap() -> None:
        if armed:
            armed.clear()
            lookalike(pod)

    with world.driver(step=swap) as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
        armed.append(True)
        error = driver.local.engine.unprepare([ref], nic_attach.Waiting())[ref.uid]
        assert "the pod put another interface in its place, which was sent back" in error
        assert "nic0" not in world.node.links()
        assert "nic0" in pod.space.links(), "under the name that it had for a moment"
        driver.unprepare(ref)


def test_the_alias_of_the_real_one_does_not_matter(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
        pod.space.ip("link", "set", "fast0", "alias", "drakit whole another-claim")
        pod.space.ip("link", "set", "fast0", "down")
        pod.space.ip("link", "set", "fast0", "name", "mine")
        assert world.call(ref, pod, "second") == nic_attach.Said(0, ""), "the pod may rename what is its own"
        driver.unprepare(ref)
    assert is_back(world)
    assert world.node.links()["nic0"]["ifalias"] == "of the admin"


def test_a_pod_keeps_no_child_of_an_interface_that_is_the_host_s_again(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
        pod.space.ip("link", "add", "left0", "link", "fast0", "type", "macvlan", "mode", "bridge")
        pod.space.make_nic("eth0", mac="02:00:00:00:00:44")
        driver.unprepare(ref)
    assert is_back(world)
    assert set(pod.space.links()) == {"lo", "eth0", "eth0-wire"}, "the rest of the pod is its own"


def nested_macvlan(pod: nic_attach.Pod, nested: netns.Namespace) -> None:
    """A privileged pod puts a macvlan on its interface into a namespace of its own, and itself out of sight of the pod's."""
    pod.space.ip("link", "add", "left0", "link", "fast0", "type", "macvlan", "mode", "bridge")
    pod.space.ip("link", "set", "left0", "netns", nested.name)
    assert "left0" in nested.links()


def test_a_pod_keeps_no_child_in_a_nested_namespace(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver, netns.namespace() as nested:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
        nested_macvlan(pod, nested)
        nested.make_nic("eth0", mac="02:00:00:00:00:44")
        driver.unprepare(ref)
        assert set(nested.links()) == {"lo", "eth0", "eth0-wire"}, "what is not on the interface is left"
    assert is_back(world)


class KilledError(BaseException):
    """The driver ends here."""


@pytest.mark.parametrize("attached_again", [False, True], ids=["unprepared", "attached again"])
def test_a_driver_killed_while_it_returns_the_interface_leaves_no_child(
    world: nic_attach.World, pod: nic_attach.Pod, *, attached_again: bool
) -> None:
    """The interface is on the host with the mark of one that returns, and a macvlan is still on it."""
    armed: list[bool] = []

    def kill() -> None:
        if armed and "nic0" in world.node.links():
            armed.clear()
            raise KilledError

    with netns.namespace() as nested:
        with world.driver(step=kill) as driver:
            ref = driver.prepare(WHOLE)
            assert world.call(ref, pod).code == 0
            nested_macvlan(pod, nested)
            armed.append(True)
            with pytest.raises(KilledError):
                driver.unprepare(ref)
        assert str(world.node.links()["nic0"]["ifalias"]).endswith(" coming back")
        assert "left0" in nested.links()
        with world.driver() as later:
            if attached_again:
                later.prepare(WHOLE)
                assert world.call(ref, pod, "second") == nic_attach.Said(0, "")
                assert "left0" not in nested.links()
            later.unprepare(ref)
        assert "left0" not in nested.links()
    assert is_back(world)


def test_an_interface_that_another_namespace_uses_is_not_moved_into_a_pod(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    """Otherwise nobody could tell the pod's macvlan from another's when the interface returns."""
    with world.driver() as driver, netns.namespace() as other:
        ref = driver.prepare(WHOLE)
        world.node.ip("link", "add", "cni0", "link", "nic0", "type", "macvlan", "mode", "bridge")
        world.node.ip("link", "set", "cni0", "netns", other.name)
        assert "cni0, a macvlan in another network namespace" in world.call(ref, pod).stderr
        assert is_back(world)
        driver.unprepare(ref)
        assert "cni0" in other.links(), "another's macvlan is not deleted"


@pytest.mark.parametrize("moved_by", ["hook", "runtime"])
def test_a_veth_with_a_peer_elsewhere_leaves_a_running_pod_only_if_recorded(
    world: nic_attach.World, pod: nic_attach.Pod, moved_by: str, logged: log_lines.LogLines
) -> None:
    world.options = dataclasses.replace(world.options, net_devices=moved_by == "runtime")
    with netns.namespace() as other, world.driver() as driver:
        world.node.ip("link", "set", "nic0-wire", "netns", other.name)
        ref = driver.prepare(WHOLE)
        if moved_by == "hook":
            assert world.call(ref, pod).code == 0
        else:
            world.node.ip("link", "set", "nic0", "netns", pod.space.name, "name", "fast0")
        driver.unprepare(ref)
        assert ("nic0" in world.node.links(), "fast0" in pod.space.links()) == (moved_by == "hook", moved_by == "runtime")
        assert ("interface gone with its pod" in logged.text) == (moved_by == "runtime")


def as_an_earlier_version_wrote_it(world: nic_attach.World) -> None:
    """Rewrite the journal: what the interface was has no identity, and the record of its move has the sandbox's cookie and the pod alone."""
    with contextlib.closing(sqlite3.connect(world.home / "journal.db")) as journal, journal:
        for key, *texts in journal.execute("SELECT rowid, intent, record FROM grants").fetchall():
            kept = [json.loads(text) for text in texts]
            for record in kept:
                former = record["whole"]["former"]
                former["place"] = former.pop("identity").get("place")
            journal.execute("UPDATE grants SET intent = ?, record = ? WHERE rowid = ?", (*map(json.dumps, kept), key))
        for key, text in journal.execute("SELECT rowid, record FROM notes WHERE key = 'whole'").fetchall():
            note = {name: value for name, value in json.loads(text).items() if name in {"cookie", "pod"}}
            assert len(note) == 2
            journal.execute("UPDATE notes SET record = ? WHERE rowid = ?", (json.dumps(note), key))


def test_a_container_restarts_after_an_upgrade_from_a_version_without_identities(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
    as_an_earlier_version_wrote_it(world)
    pod.space.ip("address", "flush", "dev", "fast0")
    with world.driver() as later, nic_attach.pod("second") as second:
        assert world.call(ref, pod, "again") == nic_attach.Said(0, "")
        assert "10.99.1.2/16" in pod.space.ip("address", "show", "dev", "fast0"), "it is configured as at the first start"
        assert "is gone" in world.call(ref, second).stderr, "no other sandbox counts as the one that was recorded"
        later.unprepare(ref)
        assert "fast0" in pod.space.links(), "without an identity nothing is moved out of a pod"
    assert "nic0" not in world.node.links()


def test_a_failure_after_such_an_upgrade_leaves_the_interface_in_the_pod(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(whole(ROUTED))
        assert world.call(ref, pod).code == 0
    as_an_earlier_version_wrote_it(world)
    pod.space.ip("route", "delete", ROUTE)
    give_route(pod)
    with world.driver():
        assert f"the pod has a route to {ROUTE}" in world.call(ref, pod, "again").stderr
        assert "fast0" in pod.space.links()
        pod.space.ip("link", "set", "fast0", "alias", "none")
        pod.space.ip("link", "set", "fast0", "down")
        pod.space.ip("link", "set", "fast0", "name", "mine")
        assert "the pod no longer has the interface fast0" in world.call(ref, pod, "again").stderr
        assert "fast0" not in pod.space.links()


def test_an_attach_that_such_a_version_did_not_complete_is_tried_anew(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    """It recorded the sandbox before the move, and kept the record when the move failed."""
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
    as_an_earlier_version_wrote_it(world)
    pod.space.ip("link", "set", "fast0", "down")
    pod.space.ip("link", "set", "fast0", "netns", world.node.name, "name", "nic0")
    with world.driver() as later:
        assert world.call(ref, pod, "again") == nic_attach.Said(0, "")
        later.unprepare(ref)
    assert is_back(world), "the new record has its identity"


def test_a_command_that_knows_no_notes_brings_it_back_too(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
    with world.driver(start=False) as command:
        command.unprepare(ref)
    assert is_back(world)
    assert "fast0" not in pod.space.links()


def test_a_pod_whose_index_is_taken_gets_the_interface_under_another(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    pod.space.ip("link", "add", "taken", "index", str(world.node.links()["nic0"]["ifindex"]), "type", "veth", "peer", "name", "other")
    with world.driver() as driver:
        ref = driver.prepare(WHOLE)
        assert world.call(ref, pod).code == 0
        driver.unprepare(ref)
    assert is_back(world)


def test_hardware_that_no_namespace_shows_is_not_forgotten(world: nic_attach.World) -> None:
    """Bus addresses that exist stand for hardware that the kernel is about to give back, one that does not for hardware that was pulled out."""
    plugged = next(path.name for path in sorted(pathlib.Path("/sys/bus").glob("*/devices/*")))
    machine = kernel_port.KernelPort(world.node.name)
    former = machine.host_state("nic0")
    assert former is not None
    for address, where in ((plugged, pod_interfaces.Location.RETURNING), ("0000:ff:1f.7", pod_interfaces.Location.GONE)):
        place = dataclasses.replace(former.identity, place=f"{address} 02:00:00:00:00:99", kind="", other=0)
        asked = pod_interfaces.Passthrough(mark="drakit whole x", host_state=dataclasses.replace(former, name="eth9", identity=place))
        assert machine.locate(asked) is where
        if where is pod_interfaces.Location.RETURNING:
            with pytest.raises(errors.HardwareError, match="it returns to the host when the namespace that has it ends"):
                machine.return_to_host(asked)
        else:
            assert not machine.return_to_host(asked)
    machine.close()


def test_the_status_says_attach_failed_until_an_attach_succeeds(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    give_route(pod)
    with reporting(world) as (driver, said):
        ref = driver.prepare(whole(ROUTED))
        assert said() is None, "nothing is said before a container asks"
        for container in ("first", "again"):
            assert world.call(ref, pod, container).code
            nic_attach.until(lambda: said() is not None, "nothing was said")
            status, reason, message = said() or (True, "", "")
            assert (status, reason) == (False, "AttachFailed")
            assert f"the pod has a route to {ROUTE}" in message
        author = nic_attach.author_of(driver)
        assert isinstance(author._link_monitor, link_monitor.LinkMonitor)
        author._link_monitor.check()
        assert (said() or (True, ""))[:2] == (False, "AttachFailed"), "a later report does not overwrite it"
        pod.space.ip("route", "delete", ROUTE, "dev", "eth0")
        assert world.call(ref, pod).code == 0
        nic_attach.until(lambda: (said() or (False, ""))[:2] == (True, "Attached"), "the status is not Ready again")
        driver.unprepare(ref)


def test_the_status_says_why_a_second_pod_has_no_address_until_it_has(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with reporting(world) as (driver, said), nic_attach.pod("second") as other:
        ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}))
        assert world.call(ref, pod).code == 0
        nic_attach.until(lambda: (said() or (False,))[0], "the first pod's share is Ready")
        second = dataclasses.replace(other, uid="0f0f0f0f-0000-4000-8000-000000000002")
        assert "is used by another pod" in world.call(ref, second).stderr
        nic_attach.until(lambda: (said() or (True, ""))[:2] == (False, "AttachFailed"), "the refusal was not said")
        assert world.call(ref, pod, "again").code == 0
        author = nic_attach.author_of(driver)
        assert isinstance(author._link_monitor, link_monitor.LinkMonitor)
        author._link_monitor.check()
        _, reason, message = said() or (True, "", "")
        assert reason == "AttachFailed", "the first pod's success is not the second's"
        assert "10.99.1.2 is used by another pod" in message
        driver.unprepare(ref)
