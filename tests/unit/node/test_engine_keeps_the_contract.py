"""What the engine owes the kubelet beyond the plain course of things (contract 10.13, 10.17, 10.19, 10.27, 10.67)."""

import threading
import uuid
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import names
from drakit.node import engine
from fakes import author, claim_source, crash_node, waits


class ForAdmins(author.FakeDriver):
    """Changes nothing for admins, neither hardware nor containers."""

    def prepare(self, grant: drivers.Grant[author.Tuning]) -> drivers.Prepared:
        return drivers.Prepared() if grant.admin_access else super().prepare(grant)

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        if not grant.admin_access:
            super().unprepare(grant)


class Meanwhile(claim_source.FakeClaimSource):
    """Something happens while a claim is on its way."""

    def __init__(self, event: Callable[[], None]) -> None:
        super().__init__()
        self._event = event

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        found = super().fetch(ref)
        self._event()
        return found


@pytest.fixture
def node() -> crash_node.CrashNode:
    return crash_node.CrashNode()


def prepare(node: crash_node.CrashNode, started: engine.Engine, ref: claims.ClaimRef) -> claims.Outcome:
    return started.prepare([ref], node.caller)[ref.uid]


def admins(node: crash_node.CrashNode, device: str) -> claims.ClaimRef:
    """A claim by which an admin looks at a device. Kubernetes 1.36 allocates none of a device in use that draws counters."""
    result = claims.AllocationResult(request="look", driver=author.FakeDriver.name, pool=crash_node.POOL, device=device, admin_access=True)
    ref = claims.ClaimRef(uid=names.ClaimUid(str(uuid.uuid4())), namespace="default", name="admin")
    return node.claims.put(claims.Claim(ref=ref, results=(result,)))


def test_a_prepare_that_fetched_its_claim_before_an_unprepare_changes_nothing(node: crash_node.CrashNode) -> None:
    steps: list[str] = []

    def unprepared_meanwhile() -> None:
        node.caller.waits = False
        assert started.unprepare([ref], crash_node.Waiting()) == {ref.uid: ""}

    node.claims = Meanwhile(unprepared_meanwhile)
    started = node.boot()
    ref = node.claim("chip-0")
    node.step = steps.append
    assert "stopped waiting" in prepare(node, started, ref).error
    assert [step for step in steps if "make" in step or "begin" in step] == []
    assert node.is_clean


def test_calls_during_a_prepare_return_the_result_of_that_prepare(node: crash_node.CrashNode) -> None:
    calls, pause = 6, threading.Event()

    def let_the_others_come(step: str) -> None:
        if step == "before begin":
            while len(node.claims.fetched) < calls:
                pause.wait(0.001)
            pause.wait(0.05)

    started = node.boot()
    ref = node.claim("chip-0")
    node.step = let_the_others_come
    answers: list[claims.Outcome] = []
    threads = [threading.Thread(target=lambda: answers.append(prepare(node, started, ref))) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(waits.SECONDS)
    assert [answer.error for answer in answers] == [""] * calls
    assert len(set(map(repr, answers))) == 1
    assert node.hardware.made == {"chip-0": 1}


@pytest.mark.parametrize("first,left", [(0, "chip-1"), (1, "chip-0")])
def test_a_deleted_claim_and_the_next_of_its_name_have_nothing_in_common(node: crash_node.CrashNode, first: int, left: str) -> None:
    started = node.boot()
    refs = []
    for device in ("chip-0", "chip-1"):
        refs.append(node.claim(device, name="same"))
        assert prepare(node, started, refs[-1]).error == ""
    going, staying = refs[first], refs[1 - first]
    assert started.unprepare([going], node.caller) == {going.uid: ""}
    assert node.hardware.made == {left: 1}
    assert [entry.claim for entry in node.journal.entries()] == [staying]
    assert node.cdi.claims() == {staying.uid}
    assert started.unprepare([staying], node.caller) == {staying.uid: ""}
    assert node.is_clean


def test_a_grant_without_edits_has_no_cdi_id_and_no_file(node: crash_node.CrashNode) -> None:
    node.driver_type = ForAdmins
    started = node.boot()
    answer = prepare(node, started, admins(node, "chip-0"))
    assert [(item.device, item.cdi_ids) for item in answer.devices] == [("chip-0", ())]
    assert answer.error == ""
    assert node.cdi.files == {}


def test_a_device_that_an_admin_looks_at_is_free_for_its_owner(node: crash_node.CrashNode) -> None:
    node.driver_type = ForAdmins
    started = node.boot()
    admin = admins(node, "chip-0")
    prepare(node, started, admin)
    assert prepare(node, started, node.claim("chip-0")).error == ""
    assert started.unprepare([admin], node.caller) == {admin.uid: ""}
    assert node.hardware.made == {"chip-0": 1}
