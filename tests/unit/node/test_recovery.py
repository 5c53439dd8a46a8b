"""What a start finds, mends and leaves alone."""

import dataclasses
from collections.abc import Callable

import pytest

from drakit.core import lifecycle, names
from drakit.node import recovery
from fakes import author, crash_node


def prepared(node: crash_node.CrashNode, *devices: str) -> names.ClaimUid:
    ref = node.claim(*devices)
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    return ref.uid


def test_a_lost_file_of_a_prepared_claim_is_rewritten() -> None:
    node = crash_node.CrashNode()
    prepared(node, "chip-0")
    before = dict(node.cdi.files)
    node.cdi.files.clear()
    node.boot()
    assert node.cdi.files == before


def test_a_file_without_a_claim_is_removed() -> None:
    node = crash_node.CrashNode()
    uid = prepared(node, "chip-0")
    orphan = next(iter(node.cdi.files)).replace(uid, "00000000-0000-4000-8000-000000000000")
    node.cdi.files[orphan] = b"{}"
    node.boot()
    assert orphan not in node.cdi.files
    assert len(node.cdi.files) == 1


def test_a_claim_of_an_earlier_boot_waits_for_the_kubelet() -> None:
    node = crash_node.CrashNode()
    prepared(node, "chip-0")
    node.boot_id, node.hardware.made = "boot-2", {}
    node.cdi.files.clear()
    node.boot()
    assert node.cdi.files == {}, "nothing promises hardware that the reboot took"
    assert len(node.journal.entries()) == 1


class VolatileDriver(author.FakeDriver):
    volatile = True


def test_a_volatile_driver_s_claim_of_an_earlier_boot_holds_no_device() -> None:
    node = crash_node.CrashNode()
    node.driver_type = VolatileDriver
    ended, other = prepared(node, "chip-0"), node.claim("chip-0")
    node.boot_id, node.hardware.made = "boot-2", {}
    started = node.boot()
    assert (node.journal.entries(), node.cdi.files) == ((), {}), f"the end of {ended} may have been lost in a power cut"
    assert started.prepare([other], node.caller)[other.uid].error == ""


def test_a_completion_lost_in_a_power_cut_is_undone_and_prepared_again() -> None:
    node = crash_node.CrashNode()
    uid = prepared(node, "chip-0")
    (entry,) = node.journal.entries()
    node.journal.begin_unprepare(uid)
    node.journal.finish_unprepare(uid)
    node.journal.begin(dataclasses.replace(entry, grants=tuple(dataclasses.replace(one, record={}, edits=None) for one in entry.grants)))
    node.boot_id = "boot-2"
    started = node.boot()
    assert (node.journal.entries(), node.hardware.made) == ((), {})
    assert started.prepare([entry.claim], node.caller)[uid].error == ""


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
def test_an_unprepare_lost_in_a_power_cut_is_done_by_the_next_call(verb: str) -> None:
    node = crash_node.CrashNode()
    uid = prepared(node, "chip-0")
    (entry,) = node.journal.entries()
    node.boot_id, node.hardware.made = "boot-2", {}
    node.cdi.files.clear()
    started = node.boot()
    if verb == "prepare":
        assert started.prepare([entry.claim], node.caller)[uid].error == ""
        assert [known.boot_id for known in node.journal.entries()] == ["boot-2"]
        assert len(node.hardware.made) == 1
    else:
        assert started.unprepare([entry.claim], node.caller)[uid] == ""
        assert (node.journal.entries(), node.hardware.made) == ((), {})


def test_one_claim_that_cannot_be_recovered_stops_no_other() -> None:
    node = crash_node.CrashNode()
    stuck, other = node.claim("chip-0"), node.claim("chip-1")
    started = node.boot()
    for ref in (stuck, other):
        started.prepare([ref], node.caller)
        node.journal.begin_unprepare(ref.uid)
    node.hardware.step = break_on("chip-0")
    again = node.boot(recover=False)
    report = recovery.recover(again, node.journal, node.cdi)
    assert report.failed == (stuck.uid,)
    assert report.undone == (other.uid,)
    entry = node.journal.entry(stuck.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.UNPREPARING


def break_on(identity: str) -> Callable[[str], None]:
    def step(what: str) -> None:
        if what == f"before unmake {identity}":
            raise OSError(what)

    return step
