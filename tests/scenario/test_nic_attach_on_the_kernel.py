"""Sandboxes get their interfaces on the real kernel: by the real client, through the CDI file, from the journal alone, and whoever dies meanwhile.

Pods are network namespaces; the order of hooks and deaths is that of a real kubelet and containerd.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import records
from drakit.testing import fake_context
from drakit_nic.attach import attacher, attachment_records, collector, sandboxes, server
from fakes import log_lines, netns, nic_attach, waits

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

Object = dict[str, object]


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    with nic_attach.untouched_world() as made:
        yield made


@pytest.fixture
def driver(world: nic_attach.World) -> Iterator[nic_attach.Running]:
    with world.driver() as made:
        yield made


@pytest.fixture
def pod() -> Iterator[nic_attach.Pod]:
    with nic_attach.pod() as made:
        yield made


def children(pod: nic_attach.Pod) -> dict[str, Object]:
    return {name: link for name, link in pod.space.links().items() if name != "lo"}


def only(pod: nic_attach.Pod) -> Object:
    (link,) = children(pod).values()
    return link


def kind(link: Object) -> Object:
    found = link["linkinfo"]
    assert isinstance(found, dict)
    return found


def test_a_container_gets_its_interface_and_its_frames_are_the_share_s(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0", "mtu": 1400, "addresses": ["10.99.1.2/16"]}))
    assert driver.world.call(ref, pod) == nic_attach.Said(0, "")
    link = only(pod)
    assert (link["ifname"], link["mtu"], link["operstate"]) == ("fast0", 1400, "UP")
    assert kind(link)["info_kind"] == "macvlan"
    assert kind(link)["info_data"] == {"mode": "private", "bcqueuelen": 1000, "usedbcqueuelen": 1000}
    assert str(link["ifalias"]) == f"drakit:{driver.members()[0].share_id}:5a4d"
    assert "10.99.1.2/16" in pod.space.ip("address", "show", "dev", "fast0")
    (member,) = driver.members()
    assert member.mac == link["address"]
    driver.unprepare(ref)
    assert not children(pod)
    assert not driver.members()


def test_a_name_that_nobody_chose_reaches_the_container(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    assert driver.world.call(ref, pod).code == 0
    text = next(driver.world.cdi.glob("*.json")).read_text()
    assert f'_INTERFACE={only(pod)["ifname"]}"' in text
    assert "_MAC=" not in text
    assert '"cdiVersion": "0.5.0"' in text
    driver.unprepare(ref)


def test_containers_and_restarts_of_one_sandbox_have_one_interface(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1, parameters={"addresses": ["10.99.1.2/16"]}))
    for container in ("init", "main", "side", "main"):
        assert driver.world.call(ref, pod, container) == nic_attach.Said(0, "")
    first = only(pod)
    assert only(pod)["ifindex"] == first["ifindex"]
    assert len(driver.members()) == 1
    driver.unprepare(ref)


def test_two_pods_of_one_claim_have_an_interface_each_in_one_share(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    with nic_attach.pod("6b5e") as second:
        assert driver.world.call(ref, pod).code == driver.world.call(ref, second).code == 0
        links = [only(pod), only(second)]
        assert len({link["address"] for link in links}) == 2
        assert {member.mac for member in driver.members()} == {link["address"] for link in links}
        assert len({member.share_id for member in driver.members()}) == 1
        driver.unprepare(ref)
        assert not children(pod)
        assert not children(second)


def test_two_shares_of_one_claim_are_two_interfaces_of_one_pod(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1, shares=2))
    for _ in range(2):
        assert driver.world.call(ref, pod).code == 0
    assert len(children(pod)) == len(driver.members()) == 2
    driver.unprepare(ref)
    assert not children(pod)


def test_a_new_sandbox_attaches_from_the_journal_also_by_another_process(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        assert world.call(ref, pod).code == 0
    with world.driver() as driver, nic_attach.pod("6b5e") as second:
        assert world.call(ref, second).code == 0, "no Prepare came before"
        assert world.call(ref, pod).code == 0
        assert children(second)
        driver.unprepare(ref)
        assert not children(pod)
        assert not children(second)


def by_class(number: int, **parameters: str) -> claims.Claim:
    return nic_attach.claim(number, parameters=parameters, source=claims.ConfigSource.CLASS)


def test_in_bridge_mode_what_a_child_sends_is_limited_in_the_pod_too(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(by_class(1, interfaceName="fast0", mode="bridge"))
    for _ in range(2):
        assert driver.world.call(ref, pod) == nic_attach.Said(0, "")
    data = kind(only(pod))["info_data"]
    assert isinstance(data, dict)
    assert data["mode"] == "bridge"
    (limiter,) = json.loads(pod.space.run("tc", "-j", "qdisc", "show", "dev", "fast0"))
    assert limiter["kind"] == "tbf"
    assert limiter["options"]["rate"] == 10**9 // 8
    driver.unprepare(ref)


def test_an_address_that_the_class_chose_is_one_pod_s_at_a_time(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(by_class(1, interfaceName="fast0", mac="02:ab:00:00:00:01"))
    with nic_attach.pod("6b5e") as first:
        assert driver.world.call(ref, first) == nic_attach.Said(0, "")
        assert only(first)["address"] == "02:ab:00:00:00:01"
        refused = driver.world.call(ref, pod)
        assert (refused.code, "02:ab:00:00:00:01, which another pod has" in refused.stderr) == (1, True)
        assert not children(pod)
    nic_attach.until(lambda: driver.world.call(ref, pod).code == 0, "the first sandbox is gone")
    assert [member.mac for member in driver.members()] == [only(pod)["address"]]
    minding(driver, now=[0.0])[0].collect()
    assert children(pod), "what is forgotten of the first sandbox is not taken from the second"
    assert driver.members()
    driver.unprepare(ref)


def test_a_sandbox_that_ends_before_unprepare_takes_its_interface_along(driver: nic_attach.Running) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    with nic_attach.pod() as short:
        assert driver.world.call(ref, short).code == 0
    driver.unprepare(ref)
    assert not driver.members()


def minding(driver: nic_attach.Running, *, now: list[float]) -> tuple[collector.AttachmentCollector, fake_context.FakeContext]:
    """A minder of this driver's world that tells its notices to a fake."""
    world = driver.world
    recorded = fake_context.FakeContext(world.home)
    kernel = sandboxes.KernelSandboxes(world.node.name)
    context = driver.local.context
    context.sinks = type(context.sinks)(event=recorded.record_event)
    attaching = attacher.Attacher(driver.machine, kernel, context, node=nic_attach.NODE)
    return collector.AttachmentCollector(driver.machine, kernel, context, attaching, intents=tuple, monotonic=lambda: now[0]), recorded


def test_a_sandbox_that_is_gone_is_forgotten_and_the_next_one_of_the_claim_served(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    minds, _ = minding(driver, now=[0.0])
    with nic_attach.pod("dead") as short:
        assert driver.world.call(ref, short).code == 0

    def is_forgotten() -> bool:
        minds.collect()
        return not driver.members()

    nic_attach.until(is_forgotten, "the kernel takes a namespace down a moment later")
    (grant,) = driver.local.context.grants()
    assert not attachment_records.attachments_of(driver.local.context.state(grant))
    assert driver.world.call(ref, pod).code == 0
    assert len(driver.members()) == 1
    driver.unprepare(ref)


def test_members_that_the_kernel_lost_are_led_to_their_share_again(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    assert driver.world.call(ref, pod).code == 0
    (member,) = driver.members()
    (share,) = driver.machine.shares()
    driver.machine.dismiss(share, cookie=member.cookie, mac=member.mac)
    minding(driver, now=[0.0])[0].collect()
    assert driver.members() == [member]
    driver.unprepare(ref)


def test_the_wait_for_a_container_is_not_begun_anew_by_a_restart(driver: nic_attach.Running) -> None:
    unused = driver.prepare(nic_attach.claim(1))
    now = [1000.0]
    minding(driver, now=now)[0].collect()
    for _ in range(3):
        now[0] += collector.GRACE / 3
        minds, recorded = minding(driver, now=now)
        minds.collect()
    ((claim, event),) = recorded.events
    assert (claim.uid, event.reason) == (unused.uid, "ShareNotAttached")
    driver.unprepare(unused)


def test_calls_of_runtimes_are_counted_timed_and_refusals_logged_with_their_claim(
    driver: nic_attach.Running, pod: nic_attach.Pod, logged: log_lines.LogLines
) -> None:
    logged.show_info()
    ref, other = (driver.prepare(nic_attach.claim(number, parameters={"interfaceName": "net1"})) for number in (1, 2))
    author = nic_attach.author_of(driver)

    def read() -> tuple[dict[str, int], dict[str, float]]:
        readings = author.metrics()
        calls = {item.labels["outcome"]: item.buckets[-1][1] for item in readings if item.name == "nic_attach_seconds"}
        return calls, {item.labels["reason"]: item.value for item in readings if item.name == "nic_attach_refusals"}

    calls, refusals = read()
    assert calls == {"ok": 0, "refused": 0}
    assert refusals == dict.fromkeys([reason.value for reason in server.Reason], 0)
    assert driver.world.call(ref, pod).code == 0
    assert driver.world.call(other, pod).code != 0
    calls, refusals = read()
    assert calls == {"ok": 1, "refused": 1}
    assert {reason for reason, count in refusals.items() if count} == {"name_taken"}
    (attached,) = (record for record in logged.lines if record["event"] == "sandbox attached")
    (refused,) = (record for record in logged.lines if record["event"] == "attach refused")
    assert attached.items() >= {"claim": str(ref), "device": "nic0", "pod": pod.uid}.items()
    expected = {"claim": str(other), "claim_uid": other.uid, "device": "nic0", "pod": pod.uid, "reason": "name_taken"}
    assert refused.items() >= expected.items()
    for done in (ref, other):
        driver.unprepare(done)


def test_a_claim_that_no_container_lists_is_warned_of_once(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    used, unused = driver.prepare(nic_attach.claim(1)), driver.prepare(nic_attach.claim(2))
    now = [0.0]
    minds, recorded = minding(driver, now=now)
    assert driver.world.call(used, pod).code == 0
    minds.collect()
    assert not recorded.events
    for _ in range(3):
        now[0] += collector.GRACE
        minds.collect()
    ((claim, event),) = recorded.events
    assert (claim.uid, event.reason, event.type) == (unused.uid, "ShareNotAttached", contexts.EventType.WARNING)
    assert "resources.claims" in event.message
    now[0] = 0.0
    again, _ = minding(driver, now=now)
    for _ in range(3):
        now[0] += collector.GRACE
        again.collect()
    assert len(recorded.events) == 1, "not even by the next process"
    for ref in (used, unused):
        driver.unprepare(ref)


def test_with_the_driver_down_the_container_does_not_start_and_its_owner_reads_why(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
    said = world.call(ref, pod, seconds=1)
    assert said.code == 1
    assert said.stderr.startswith("drakit: the NIC driver on this node is not running (Connection refused);")
    assert not children(pod)
    with world.driver() as driver:
        driver.unprepare(ref)


def test_a_claim_that_is_no_longer_prepared_gets_nothing(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    hooks = driver.world.hooks(ref)
    driver.unprepare(ref)
    (hook,) = hooks
    said = nic_attach.run(hook["path"], hook["args"], json.dumps(pod.state()).encode())
    assert said == nic_attach.Said(
        1, "drakit: the claim's share of nic0 is not prepared on this node; the kubelet retries after it has prepared the claim\n"
    )
    assert not children(pod)


def test_the_host_s_own_network_is_refused(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    with nic_attach.inhabited(driver.world.node) as on_the_nic:
        for process in (os.getpid(), on_the_nic):
            said = driver.world.call(ref, pod, pid=process)
            assert said.code == 1
            assert "hostNetwork" in said.stderr
    assert not driver.members()
    driver.unprepare(ref)


def test_a_name_the_pod_has_already_is_refused_by_the_field(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    pod.space.ip("link", "add", "fast0", "type", "bridge")
    ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0"}))
    said = driver.world.call(ref, pod)
    assert (said.code, "NicConfig.interfaceName" in said.stderr) == (1, True)
    driver.unprepare(ref)
    assert set(children(pod)) == {"fast0"}, "what the driver did not make it does not destroy"


def test_an_alternative_name_in_the_pod_is_refused_like_a_name(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    pod.space.ip("link", "add", "eth0", "type", "bridge")
    pod.space.ip("link", "property", "add", "dev", "eth0", "altname", "fast0")
    ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0"}))
    said = driver.world.call(ref, pod)
    text = (
        "the pod has another interface named 'fast0' ('eth0' with the alternative name 'fast0'); choose a different NicConfig.interfaceName"
    )
    assert said == nic_attach.Said(1, f"drakit: {text}\n")
    assert set(children(pod)) == {"eth0"}
    pod.space.ip("link", "property", "del", "dev", "eth0", "altname", "fast0")
    assert driver.world.call(ref, pod) == nic_attach.Said(0, ""), "the next attempt needs no new claim"
    driver.unprepare(ref)


ADDRESS: records.Record = {"addresses": ["10.99.1.2/16"]}
NAME: records.Record = {"interfaceName": "fast0"}


def test_a_static_address_with_a_second_pod_is_refused_by_name(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1, parameters=ADDRESS))
    assert driver.world.call(ref, pod).code == 0
    with nic_attach.pod("6b5e") as another:
        second = dataclasses.replace(another, uid="1f1f1f1f-0000-4000-8000-000000000000")
        said = driver.world.call(ref, second)
        assert (said.code, "10.99.1.2 is used by another pod of the claim default/claim-1" in said.stderr) == (1, True)
        assert not children(second)
    driver.unprepare(ref)


@pytest.mark.parametrize("cheats", [False, True], ids=["ended", "moved its interface to a nested namespace"])
def test_the_next_pod_of_a_claim_gets_the_address_of_an_ended_one_at_once(driver: nic_attach.Running, *, cheats: bool) -> None:
    """Not only after the collector's next check, for which a kubelet would wait with a growing pause."""
    ref = driver.prepare(nic_attach.claim(1, parameters={**ADDRESS, **NAME}))
    with contextlib.ExitStack() as nested_spaces:
        with nic_attach.pod("5a4d") as first:
            assert driver.world.call(ref, first).code == 0
            if cheats:
                nested = nested_spaces.enter_context(netns.namespace())
                first.space.ip("link", "set", "fast0", "netns", nested.name)
        with nic_attach.pod("6b5e") as other:
            second = dataclasses.replace(other, uid="1f1f1f1f-0000-4000-8000-000000000000")
            said = driver.world.call(ref, second)
            assert (said.code, said.stderr) == (0, "")
            assert set(children(second)) == {"fast0"}
            driver.unprepare(ref)


@pytest.mark.parametrize(
    "asked, message",
    [(NAME, "the pod has another interface named 'fast0'"), (ADDRESS, "10.99.1.2 is used by the claim default/claim-1")],
    ids=["a name", "an address"],
)
def test_two_claims_of_one_pod_that_conflict_are_refused_when_it_attaches(
    driver: nic_attach.Running, pod: nic_attach.Pod, asked: records.Record, message: str
) -> None:
    first, second = (driver.prepare(nic_attach.claim(number, parameters=asked)) for number in (1, 2))
    assert driver.world.call(first, pod).code == 0
    said = driver.world.call(second, pod)
    assert (said.code, message in said.stderr) == (1, True)
    assert len(children(pod)) == len(driver.members()) == 1
    for ref in (first, second):
        driver.unprepare(ref)


@pytest.mark.parametrize("asked, message", [(NAME, "'fast0'"), (ADDRESS, "10.99.1.2")], ids=["a name", "an address"])
def test_conflicting_shares_of_one_claim_are_refused_before_anything_changes(
    driver: nic_attach.Running, asked: records.Record, message: str
) -> None:
    before = driver.world.node.state()
    wanted = driver.world.source.put(nic_attach.claim(1, shares=2, parameters=asked))
    for _ in range(2):
        answer = driver.local.engine.prepare([wanted], nic_attach.Waiting())[wanted.uid]
        assert f"{message} is requested by the requests net-0 and net-1 of claim default/claim-1" in answer.error
    assert driver.world.node.state() == before
    assert not driver.local.journal.entries()


def test_an_inode_that_is_used_again_is_another_sandbox(driver: nic_attach.Running) -> None:
    """Numbers of namespaces (inode, nsid) come again at once; cookies do not."""
    ref = driver.prepare(nic_attach.claim(1))
    cookies = []
    for number in range(6):
        with nic_attach.pod(f"dead{number}") as short:
            assert driver.world.call(ref, short).code == 0
            assert only(short)["operstate"] == "UP"
            cookies = sorted(member.cookie for member in driver.members())
    assert len(set(cookies)) == len(cookies)
    driver.unprepare(ref)


def late(driver: nic_attach.Running, pod: nic_attach.Pod, answers: list[bool]) -> None:
    """Attach for a caller that is there as ``answers`` say, one for each time it is looked for."""
    (grant,) = driver.local.context.grants()
    kernel = sandboxes.KernelSandboxes(driver.world.node.name)
    attaching = attacher.Attacher(driver.machine, kernel, driver.local.context, node=nic_attach.NODE)
    request = server.Request(claim=grant.claim.uid, device="nic0", share_id=grant.share_id, container="c1", sandbox=pod.sandbox)
    with pathlib.Path(pod.space.path).open("rb") as space:
        attaching.attach(request, space.fileno(), lambda: answers.pop(0))


@pytest.mark.parametrize("answers", [[False], [True, False]], ids=["before the work", "after the work"])
def test_an_interface_that_comes_too_late_is_undone(driver: nic_attach.Running, pod: nic_attach.Pod, answers: list[bool]) -> None:
    ref = driver.prepare(nic_attach.claim(1, parameters={"addresses": ["10.99.1.2/16"]}))
    with pytest.raises(server.RefusedError, match="no longer waits"):
        late(driver, pod, list(answers))
    assert not children(pod)
    assert not driver.members()
    (grant,) = driver.local.context.grants()
    assert not driver.local.context.state(grant)
    driver.unprepare(ref)


def test_a_late_call_of_a_second_container_leaves_the_first_one_s_interface(driver: nic_attach.Running, pod: nic_attach.Pod) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    assert driver.world.call(ref, pod).code == 0
    with pytest.raises(server.RefusedError):
        late(driver, pod, [True, False])
    assert children(pod)
    assert len(driver.members()) == 1
    driver.unprepare(ref)


def test_no_descriptor_keeps_a_dead_namespace_alive(driver: nic_attach.Running) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    with nic_attach.pod() as short:
        assert driver.world.call(ref, short).code == 0
        before = _kept_open()
        assert driver.world.call(ref, short).code == 0
        assert waits.eventually(lambda: _kept_open() == before)
        number = pathlib.Path(short.space.path).stat().st_ino
    assert number not in {entry.stat().st_ino for entry in _open_namespaces()}
    driver.unprepare(ref)


def _kept_open() -> int:
    """How many descriptors are open all the time; the driver's threads open others for moments, when a check runs or a call ends."""
    looks = []
    for _ in range(30):
        looks.append(len(list(pathlib.Path("/proc/self/fd").iterdir())))
        time.sleep(0.02)
    return min(looks)


def _open_namespaces() -> Iterator[pathlib.Path]:
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(entry.readlink()).startswith("net:"):
                yield entry


def test_a_child_that_nobody_owns_is_removed_at_start_and_others_are_left(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        assert world.call(ref, pod).code == 0
    own = next(iter(children(pod)))
    for name, alias in (("orphan", "drakit:gone:5a4d"), ("foreign", "somebody else's"), ("plain", "")):
        world.node.ip("link", "add", name, "link", "nic0", "netns", pod.space.name, "type", "macvlan", "mode", "private")
        if alias:
            pod.space.ip("link", "set", name, "alias", alias)
    with world.driver() as driver:
        assert set(children(pod)) == {own, "foreign", "plain"}
        driver.unprepare(ref)
    assert set(children(pod)) == {"foreign", "plain"}
    for name in children(pod):
        pod.space.ip("link", "delete", name)


def test_a_child_of_another_host_s_interface_is_left(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with netns.namespace() as other:
        other.make_nic("nic0", mac="02:00:00:00:00:30")
        other.ip("link", "add", "net7", "link", "nic0", "netns", pod.space.name, "type", "macvlan", "mode", "private")
        pod.space.ip("link", "set", "net7", "alias", "drakit:gone:5a4d")
        world.node.ip("netns", "set", pod.space.name, "auto")
        with world.driver() as driver:
            ref = driver.prepare(nic_attach.claim(1))
            assert world.call(ref, pod).code == 0
            driver.unprepare(ref)
        assert set(children(pod)) == {"net7"}


def test_without_its_memory_a_one_off_command_still_finds_the_interface(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        assert world.call(ref, pod).code == 0
    with world.driver(start=False) as once:
        once.unprepare(ref)
        assert not once.members()
    assert not children(pod)


@pytest.mark.parametrize("change", [("address", "02:aa:aa:aa:aa:aa"), ("alias", "mine")], ids=" ".join)
def test_what_a_pod_does_to_its_interface_does_not_keep_it(
    driver: nic_attach.Running, pod: nic_attach.Pod, change: tuple[str, ...]
) -> None:
    ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0"}))
    assert driver.world.call(ref, pod).code == 0
    pod.space.ip("link", "set", "fast0", "down")
    pod.space.ip("link", "set", "fast0", "name", "mine", *change)
    driver.unprepare(ref)
    assert not children(pod)


def test_a_nic_that_was_replaced_is_said_to_be(pod: nic_attach.Pod) -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_attach.world() as world, world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        world.node.ip("link", "delete", "nic0")
        world.node.make_nic("nic0", mac=nic_attach.NIC_MAC)
        said = world.call(ref, pod)
        assert (said.code, "the NIC nic0 was replaced" in said.stderr) == (1, True)
        driver.unprepare(ref)


def test_many_sandboxes_attach_at_once(driver: nic_attach.Running) -> None:
    ref = driver.prepare(nic_attach.claim(1))
    with contextlib.ExitStack() as stack:
        pods = [stack.enter_context(nic_attach.pod(f"s{number}")) for number in range(8)]
        said: list[nic_attach.Said] = []
        calls = [threading.Thread(target=lambda pod=one: said.append(driver.world.call(ref, pod))) for one in pods]
        for call in calls:
            call.start()
        for call in calls:
            call.join(waits.SECONDS)
        assert said == [nic_attach.Said(0, "")] * len(pods)
        assert len({member.mac for member in driver.members()}) == len(pods)
        driver.unprepare(ref)
        assert not any(children(one) for one in pods)


def test_a_repeated_prepare_names_the_same_client_also_after_an_upgrade(world: nic_attach.World, pod: nic_attach.Pod) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        assert world.call(ref, pod).code == 0
        (hook,) = world.hooks(ref)
    older = pathlib.Path(hook["path"]).with_name("attach-0000000000000000")
    with world.driver() as driver:
        assert driver.prepare(nic_attach.claim(1)) == ref
        assert world.hooks(ref) == [hook]
        assert children(pod), "the sandbox keeps what it has"
        driver.unprepare(ref)
    assert not older.exists()
