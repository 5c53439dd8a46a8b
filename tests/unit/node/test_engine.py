"""What the engine answers, and what it leaves behind."""

import dataclasses
import threading
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import device, errors, lifecycle, names, quantity, records
from drakit.core.slices import node_selection
from drakit.node import engine
from fakes import author, crash_node, waits


@pytest.fixture
def node() -> crash_node.CrashNode:
    return crash_node.CrashNode()


def prepare(node: crash_node.CrashNode, started: engine.Engine, ref: claims.ClaimRef) -> claims.Outcome:
    return started.prepare([ref], node.caller)[ref.uid]


def unprepare(node: crash_node.CrashNode, started: engine.Engine, ref: claims.ClaimRef) -> str:
    return started.unprepare([ref], node.caller)[ref.uid]


def tuned(parameters: dict[str, object], *requests: str) -> tuple[claims.OpaqueConfig, ...]:
    body = records.freeze_record({"apiVersion": "fake.example.com/v1", "kind": "Tuning", **parameters})
    return (claims.OpaqueConfig(source=claims.ConfigSource.CLAIM, driver=author.FakeDriver.name, parameters=body, requests=requests),)


def test_a_prepared_claim_has_its_hardware_its_files_and_its_entry(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0-left", "chip-1")
    answer = prepare(node, started, ref)
    assert answer.error == ""
    assert [(item.request, item.device, item.cdi_ids) for item in answer.devices] == [
        ("r0", "chip-0-left", (f"fake.example.com/claim={ref.uid}-chip-0-left",)),
        ("r1", "chip-1", (f"fake.example.com/claim={ref.uid}-chip-1",)),
    ]
    assert node.hardware.made == {"chip-0-left": 1, "chip-1": 1}
    assert len(node.cdi.files) == 2
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED


def test_unprepare_leaves_nothing(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0-left", "chip-1")
    prepare(node, started, ref)
    assert unprepare(node, started, ref) == ""
    assert node.is_clean


def test_preparing_again_answers_the_same_and_touches_nothing(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")
    first = prepare(node, started, ref)
    steps: list[str] = []
    node.step = steps.append
    assert prepare(node, started, ref) == first
    assert [step for step in steps if "write" not in step] == []


def test_preparing_again_rewrites_a_lost_file(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")
    prepare(node, started, ref)
    before = dict(node.cdi.files)
    node.cdi.files.clear()
    prepare(node, started, ref)
    assert node.cdi.files == before


def test_another_process_prepares_again_with_the_same_answer(node: crash_node.CrashNode) -> None:
    ref = node.claim("chip-0")
    first = prepare(node, node.boot(), ref)
    assert prepare(node, node.boot(), ref) == first


def test_another_process_unprepares(node: crash_node.CrashNode) -> None:
    ref = node.claim("chip-0")
    prepare(node, node.boot(), ref)
    assert unprepare(node, node.boot(), ref) == ""
    assert node.is_clean


def test_unprepare_needs_no_api_server_and_accepts_unknown_claims(node: crash_node.CrashNode) -> None:
    started = node.boot()
    known = node.claim("chip-0")
    prepare(node, started, known)
    node.claims.failures = [errors.ApiError("gone")] * 4
    unknown = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000000"), namespace="x", name="y")
    assert started.unprepare([known, unknown], node.caller) == {known.uid: "", unknown.uid: ""}
    assert node.is_clean
    assert len(node.claims.failures) == 4


def test_after_a_reboot_prepare_creates_everything_again(node: crash_node.CrashNode) -> None:
    ref = node.claim("chip-0")
    prepare(node, node.boot(), ref)
    node.boot_id = "boot-2"
    node.hardware.made.clear()
    node.cdi.files.clear()
    assert prepare(node, node.boot(), ref).error == ""
    assert node.hardware.made == {"chip-0": 1}
    assert len(node.cdi.files) == 1
    assert [entry.boot_id for entry in node.journal.entries()] == ["boot-2"]


def test_removed_hardware_is_created_again_by_prepare(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")
    prepare(node, started, ref)
    node.hardware.made.clear()
    assert prepare(node, started, ref).error == ""
    assert node.hardware.made == {"chip-0": 1}


def test_a_reallocated_claim_releases_its_old_device(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")
    prepare(node, started, ref)
    result = claims.AllocationResult(request="r0", driver=author.FakeDriver.name, pool=crash_node.POOL, device="chip-1")
    node.claims.put(claims.Claim(ref=ref, results=(result,)))
    answer = prepare(node, started, ref)
    assert [item.device for item in answer.devices] == ["chip-1"]
    assert node.hardware.made == {"chip-1": 1}


def test_several_shares_of_one_device_are_prepared(node: crash_node.CrashNode) -> None:
    started = node.boot()
    first, second = node.claim("pipe", shared=True), node.claim("pipe", shared=True, name="other")
    one, two = prepare(node, started, first), prepare(node, started, second)
    assert one.devices[0].share_id != two.devices[0].share_id
    assert one.devices[0].cdi_ids != two.devices[0].cdi_ids
    assert len(node.hardware.made) == 2
    assert unprepare(node, started, first) == ""
    assert len(node.hardware.made) == len(node.cdi.files) == 1


def test_an_exclusive_device_is_never_prepared_for_two_claims(node: crash_node.CrashNode) -> None:
    started = node.boot()
    first, second = node.claim("chip-0", name="first"), node.claim("chip-0", name="second")
    prepare(node, started, first)
    assert "chip-0 is still held by claim default/first" in prepare(node, started, second).error
    unprepare(node, started, first)
    assert prepare(node, started, second).error == ""


def lying_claims(node: crash_node.CrashNode) -> dict[str, tuple[claims.ClaimRef, str]]:
    gone = node.claim("chip-0", name="gone")
    node.claims.remove(gone)
    waiting = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000001"), namespace="default", name="waiting")
    node.claims.put_unallocated(waiting)
    old = node.claim("chip-0", name="replaced")
    node.claim("chip-0", name="replaced")
    return {
        "gone": (gone, "no longer exists"),
        "not allocated": (waiting, "not allocated"),
        "wrong uid": (old, "another of its name"),
        "another driver's": (node.claim("chip-0", driver="other.example.com"), "no device of driver fake.example.com"),
        "unknown device": (node.claim("chip-9"), "status.allocation.devices.results[0].device: this node has no device 'chip-9'"),
        "another node's": (node.claim("chip-0", pool="node-2"), "results[0].pool: 'node-2' is not this node's pool"),
        "share without an id": (node.claim("pipe"), "results[0].shareID: a share of a shared device needs an id"),
        "id without a share": (node.claim("chip-0", shared=True), "results[0].shareID: the device is not shared"),
        "a device twice": (node.claim("chip-0", "chip-0"), "granted twice"),
        "unknown config field": (node.claim("chip-0", configs=tuned({"sped": 2})), "sped"),
        "bad config value": (node.claim("chip-0", configs=tuned({"speed": 0})), "speed: must be at least 1"),
        "second of two unknown": (node.claim("chip-0", "chip-9"), "results[1].device"),
    }


@pytest.mark.parametrize("case", sorted(lying_claims(crash_node.CrashNode())))
def test_an_inconsistent_claim_is_refused_by_field_and_leaves_nothing(node: crash_node.CrashNode, case: str) -> None:
    started = node.boot()
    ref, reason = lying_claims(node)[case]
    answer = prepare(node, started, ref)
    assert answer.devices == ()
    assert reason in answer.error
    assert node.is_clean
    good = node.claim("chip-1", name="good")
    assert prepare(node, started, good).error == ""


def test_configuration_reaches_the_driver(node: crash_node.CrashNode) -> None:
    started = node.boot()
    prepare(node, started, node.claim("chip-0", configs=tuned({"speed": 7}, "r0")))
    assert node.hardware.made == {"chip-0": 7}


@pytest.mark.parametrize("failure", [errors.DeviceBusyError("busy"), errors.RetryError("later", after=1), KeyError("a bug")])
def test_a_failing_driver_fails_that_claim_only_and_leaves_nothing(node: crash_node.CrashNode, failure: Exception) -> None:
    started = node.boot()
    node.driver.failure = failure
    bad = node.claim("chip-0")
    assert prepare(node, started, bad).error
    assert node.is_clean
    node.driver.failure = None
    assert prepare(node, started, bad).error == ""


def test_the_failure_of_one_claim_fails_no_other(node: crash_node.CrashNode) -> None:
    started = node.boot()
    good, bad = node.claim("chip-0"), node.claim("chip-9", name="bad")
    answers = started.prepare([bad, good], node.caller)
    assert set(answers) == {good.uid, bad.uid}
    assert answers[good.uid].error == ""
    assert answers[bad.uid].error


def test_an_author_bug_is_named_as_such(node: crash_node.CrashNode) -> None:
    started = node.boot()
    node.driver.failure = KeyError("speed")
    assert "internal error of driver fake.example.com: KeyError" in prepare(node, started, node.claim("chip-0")).error


def test_a_cancelled_call_starts_no_claim(node: crash_node.CrashNode) -> None:
    started = node.boot()
    node.caller.waits = False
    steps: list[str] = []
    node.step = steps.append
    assert "stopped waiting" in prepare(node, started, node.claim("chip-0")).error
    assert steps == []
    assert node.is_clean


def test_finished_work_is_committed_after_its_caller_cancelled(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")

    def leave(step: str) -> None:
        if step.startswith("after make"):
            node.caller.waits = False

    node.step = leave
    answer = prepare(node, started, ref)
    assert answer.error == ""
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED
    node.caller.waits = True
    assert prepare(node, started, ref) == answer
    assert unprepare(node, started, ref) == ""
    assert node.is_clean


def test_an_undo_that_fails_is_finished_by_the_next_call(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")
    prepare(node, started, ref)

    def break_down(step: str) -> None:
        if step.startswith("before unmake"):
            raise errors.HardwareError("unmake", "not now")

    node.step = break_down
    assert unprepare(node, started, ref) == "unmake: not now"
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.UNPREPARING
    node.step = lambda _: None
    assert unprepare(node, started, ref) == ""
    assert node.is_clean


def test_two_devices_are_prepared_at_the_same_time(node: crash_node.CrashNode) -> None:
    started = node.boot()
    both = threading.Barrier(2, timeout=waits.SECONDS)

    def meet(step: str) -> None:
        if step.startswith("before make"):
            both.wait()

    node.step = meet
    refs = [node.claim("chip-0", name="a"), node.claim("chip-1", name="b")]
    answers = run_together([lambda ref=ref: prepare(node, started, ref) for ref in refs])  # type: ignore[misc]
    assert [answer.error for answer in answers] == ["", ""]


def test_two_calls_for_one_claim_never_overlap(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0")
    answers = run_together([lambda: prepare(node, started, ref)] * 8)
    assert len(set(map(repr, answers))) == 1
    assert answers[0].error == ""
    assert node.hardware.made == {"chip-0": 1}


def run_together(calls: "list[Callable[[], claims.Outcome]]") -> list[claims.Outcome]:
    answers: list[claims.Outcome] = []
    threads = [threading.Thread(target=lambda call=call: answers.append(call())) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(waits.SECONDS)
    assert len(answers) == len(calls)
    return answers


@pytest.mark.parametrize("first,second", [("chip-0", "chip-0-left"), ("chip-0-left", "chip-0")])
def test_a_part_of_a_device_that_is_held_is_not_given_to_another_claim(node: crash_node.CrashNode, first: str, second: str) -> None:
    started = node.boot()
    holder = node.claim(first, name="holder")
    prepare(node, started, holder)
    answer = prepare(node, started, node.claim(second))
    assert "of chip-0 is used up by claim default/holder" in answer.error
    assert f"drakit unprepare {holder.uid}" in answer.error
    assert prepare(node, started, node.claim("chip-1-left")).error == ""


def test_a_claim_cannot_hold_a_whole_and_its_part(node: crash_node.CrashNode) -> None:
    assert "used up by the claim itself" in prepare(node, node.boot(), node.claim("chip-0", "chip-0-left")).error
    assert node.is_clean


def test_one_share_is_never_given_to_two_claims(node: crash_node.CrashNode) -> None:
    started = node.boot()
    first = node.claim("pipe", shared=True)
    for _ in range(3):
        prepare(node, started, node.claim("pipe", shared=True))
    prepare(node, started, first)
    result = node.claims.fetch(first).results[0]
    second = node.claim("pipe", shared=True)
    node.claims.put(claims.Claim(ref=second, results=(result,)))
    assert f"pipe is still held by claim {first}" in prepare(node, started, second).error


def test_an_error_without_a_message_fails_the_claim(node: crash_node.CrashNode) -> None:
    started = node.boot()
    node.driver.failure = errors.DeviceBusyError()
    assert prepare(node, started, node.claim("chip-0")).error == "DeviceBusyError"


def test_a_cancelled_call_does_not_wait_for_a_stuck_device(node: crash_node.CrashNode) -> None:
    started = node.boot()
    stuck, release = threading.Event(), threading.Event()

    def hang(step: str) -> None:
        if step == "before make chip-0":
            stuck.set()
            release.wait(waits.SECONDS)

    node.step = hang
    first = threading.Thread(target=prepare, args=(node, started, node.claim("chip-0")))
    first.start()
    assert stuck.wait(waits.SECONDS)
    impatient = crash_node.Waiting()
    answers: list[str] = []
    ref = node.claim("chip-0-left")
    second = threading.Thread(target=lambda: answers.append(started.prepare([ref], impatient)[ref.uid].error))
    second.start()
    impatient.waits = False
    second.join(waits.SECONDS)
    assert not second.is_alive()
    assert answers
    release.set()
    first.join(waits.SECONDS)


def test_an_allocation_with_another_capacity_is_prepared_again(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("pipe", shared=True)
    prepare(node, started, ref)
    before = node.journal.entry(ref.uid)
    assert before is not None
    result = node.claims.fetch(ref).results[0]
    more = dataclasses.replace(result, consumed_capacity={"bandwidth": quantity.Quantity.parse("2G")})
    node.claims.put(claims.Claim(ref=ref, results=(more,)))
    assert prepare(node, started, ref).error == ""
    after = node.journal.entry(ref.uid)
    assert after is not None
    assert after.grants[0].consumed_capacity == more.consumed_capacity


def test_a_new_process_waits_for_a_claim_that_another_is_preparing(node: crash_node.CrashNode) -> None:
    """A rolling update: what the old process is in the middle of is not undone by the new one's recovery."""
    old = node.boot()
    ref = node.claim("chip-0")
    inside, go_on = threading.Event(), threading.Event()

    def pause(step: str) -> None:
        if step == "after make chip-0":
            inside.set()
            go_on.wait(waits.SECONDS)

    node.step = pause
    answers: list[claims.Outcome] = []
    working = threading.Thread(target=lambda: answers.append(prepare(node, old, ref)))
    working.start()
    assert inside.wait(waits.SECONDS)
    starting = threading.Thread(target=node.boot)
    starting.start()
    go_on.set()
    working.join(waits.SECONDS)
    starting.join(waits.SECONDS)
    assert answers[0].error == ""
    assert node.hardware.made == {"chip-0": 1}
    entry = node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED


def test_an_upgrade_that_rejects_a_configuration_can_still_release_the_device(node: crash_node.CrashNode) -> None:
    started = node.boot()
    ref = node.claim("chip-0", configs=tuned({"speed": 7}))
    prepare(node, started, ref)

    class Stricter(author.FakeDriver):
        config_types = (Required,)

    node.driver_type = Stricter
    assert unprepare(node, node.boot(), ref) == ""
    assert node.is_clean


def test_missing_required_parameters_are_an_error(node: crash_node.CrashNode) -> None:
    class Stricter(author.FakeDriver):
        config_types = (Required,)

    node.driver_type = Stricter
    assert "needs parameters (Required)" in prepare(node, node.boot(), node.claim("chip-0")).error
    assert node.is_clean


@dataclasses.dataclass(frozen=True)
class Required:
    """A configuration without defaults."""

    color: str


class Member(author.FakeDriver):
    """A driver whose node has a part in one device of a pool that belongs to no node."""

    def cluster_device(self, pool: str, name: str) -> device.Device | None:
        return device.Device(name="chip-0", reach=node_selection.AllNodes()) if (pool, name) == ("fabric", "chip-0") else None


def test_a_cluster_pool_device_is_prepared_on_each_node_that_has_a_part_of_it(node: crash_node.CrashNode) -> None:
    node.driver_type = Member
    started = node.boot()
    ref = node.claim("chip-0", pool="fabric")
    answer = prepare(node, started, ref)
    assert [(item.pool, item.device) for item in answer.devices] == [("fabric", "chip-0")]
    other = prepare(node, started, node.claim("chip-0", pool="fabric"))
    assert "chip-0 is still held by" in other.error
    for pool, name in (("fabric", "chip-1"), ("other", "chip-0")):
        assert "is not this node's pool" in prepare(node, started, node.claim(name, pool=pool)).error
    assert prepare(node, node.boot(), ref) == answer
    assert unprepare(node, started, ref) == ""
    assert node.is_clean


def test_one_claim_cannot_have_two_devices_of_one_name_from_two_pools(node: crash_node.CrashNode) -> None:
    node.driver_type = Member
    started = node.boot()
    one, other = (
        claims.AllocationResult(request=f"r{number}", driver=author.FakeDriver.name, pool=pool, device="chip-0")
        for number, pool in enumerate((crash_node.POOL, "fabric"))
    )
    ref = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000077"), namespace="default", name="both")
    node.claims.put(claims.Claim(ref=ref, results=(one, other)))
    assert "chip-0 is granted twice" in prepare(node, started, ref).error
    assert node.is_clean


def test_without_the_sharing_feature_the_exclusive_form_is_prepared(node: crash_node.CrashNode) -> None:
    started = node.boot()
    first, second = node.claim("pipe"), node.claim("pipe")
    assert "a share of a shared device needs an id" in prepare(node, started, first).error
    node.offered.stores_sharing = lambda: False
    assert prepare(node, started, first).error == ""
    assert "pipe is still held" in prepare(node, started, second).error
    assert "the device is not shared" in prepare(node, started, node.claim("pipe", shared=True)).error
    node.offered.stores_sharing = lambda: True
    assert prepare(node, started, first).error == "", "what is prepared stays prepared when the server learns to store more"
    assert unprepare(node, started, first) == ""
    assert node.is_clean


def test_a_claim_is_prepared_as_allocated_while_stored_sharing_is_unknown(node: crash_node.CrashNode) -> None:
    started = node.boot()
    node.offered.stores_sharing = lambda: None
    share, whole = node.claim("pipe", shared=True), node.claim("pipe")
    assert prepare(node, started, share).error == ""
    assert "pipe is still held" in prepare(node, started, whole).error
    assert unprepare(node, started, share) == ""
    assert prepare(node, started, whole).error == ""
    assert unprepare(node, started, whole) == ""
    assert node.is_clean
