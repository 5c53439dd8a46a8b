"""What every ``ports.DriverState`` keeps: records as long as their grant is prepared, taints as long as the boot. Fake and real journal."""

import datetime
import pathlib
from collections.abc import Iterator
from typing import Protocol

import pytest

from drakit.core import device, errors, lifecycle, ports
from drakit.journal import journal as real
from fakes import journal as fake
from fakes import journal_samples as samples

NOON = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)
LATER = NOON + datetime.timedelta(hours=1)
HOT = device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_EXECUTE)


class Memory(ports.Journal, ports.DriverState, Protocol):
    """A journal with the driver's state and taints."""


@pytest.fixture(params=["fake", "real"])
def memory(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Memory]:
    if request.param == "fake":
        yield fake.MemoryJournal()
        return
    with real.Journal.open(tmp_path / "data", driver="gpu.example.com", boot_id=samples.BOOT) as opened:
        yield opened


def prepared(memory: Memory, number: int, *grants: lifecycle.GrantEntry) -> lifecycle.GrantEntry:
    entry = samples.entry(number, *grants)
    memory.begin(entry)
    memory.complete(samples.uid(number), entry.grants, samples.BOOT)
    return entry.grants[0]


def test_a_state_value_is_stored_by_grant_and_key_and_replaced(memory: Memory) -> None:
    one, other = samples.grant("a", "gpu-0"), samples.grant("b", "gpu-1")
    prepared(memory, 1, one, other)
    memory.set_state(samples.uid(1), one.key, "address", {"mac": "02:00:00:00:00:01", "tries": [1, 2]})
    memory.set_state(samples.uid(1), one.key, "seen", {})
    memory.set_state(samples.uid(1), one.key, "address", {"mac": "02:00:00:00:00:02"})
    assert memory.state(samples.uid(1), one.key) == {"address": {"mac": "02:00:00:00:00:02"}, "seen": {}}
    assert memory.state(samples.uid(1), other.key) == {}


def test_setting_a_value_to_none_removes_it_and_a_missing_one_is_no_error(memory: Memory) -> None:
    grant = prepared(memory, 1)
    memory.set_state(samples.uid(1), grant.key, "a", {"x": 1})
    memory.set_state(samples.uid(1), grant.key, "a", None)
    memory.set_state(samples.uid(1), grant.key, "never", None)
    assert memory.state(samples.uid(1), grant.key) == {}


def test_values_end_with_their_claim_and_the_next_claim_has_none(memory: Memory) -> None:
    grant = prepared(memory, 1)
    memory.set_state(samples.uid(1), grant.key, "a", {"x": 1})
    memory.begin_unprepare(samples.uid(1))
    memory.finish_unprepare(samples.uid(1))
    assert memory.state(samples.uid(1), grant.key) == {}
    prepared(memory, 1)
    prepared(memory, 2)
    assert memory.state(samples.uid(1), grant.key) == memory.state(samples.uid(2), grant.key) == {}


def test_a_claim_that_is_not_prepared_stores_no_value(memory: Memory) -> None:
    grant = samples.grant()
    for step in ("absent", "preparing", "unpreparing"):
        if step == "preparing":
            memory.begin(samples.entry(1, grant))
        elif step == "unpreparing":
            memory.begin_unprepare(samples.uid(1))
        with pytest.raises(errors.ClaimError) as raised:
            memory.set_state(samples.uid(1), grant.key, "a", {"x": 1})
        assert raised.value.fault is errors.ClaimFault.NOT_FOUND
    prepared(memory, 2)
    with pytest.raises(errors.ClaimError):
        memory.set_state(samples.uid(2), ("other", "p", "gpu-7", ""), "a", {"x": 1})


def test_a_taint_that_says_the_same_keeps_its_time(memory: Memory) -> None:
    memory.taint("gpu-0", HOT, since=NOON)
    memory.taint("gpu-0", HOT, since=LATER)
    (kept,) = memory.taints()["gpu-0"]
    assert kept.time_added == NOON


def test_a_taint_with_a_new_value_gets_a_new_time_unless_one_is_given(memory: Memory) -> None:
    memory.taint("gpu-0", HOT, since=NOON)
    memory.taint("gpu-0", device.Taint(key=HOT.key, value="very", effect=HOT.effect), since=LATER)
    (kept,) = memory.taints()["gpu-0"]
    assert (kept.value, kept.time_added) == ("very", LATER)
    memory.taint("gpu-0", device.Taint(key=HOT.key, value="very", effect=HOT.effect, time_added=NOON), since=LATER)
    (kept,) = memory.taints()["gpu-0"]
    assert kept.time_added == NOON


def test_effects_of_one_taint_key_are_kept_and_removed_together(memory: Memory) -> None:
    memory.taint("gpu-0", HOT, since=NOON)
    memory.taint("gpu-0", device.Taint(key=HOT.key, effect=device.TaintEffect.NO_SCHEDULE), since=NOON)
    memory.taint("gpu-0", device.Taint(key="example.com/old"), since=NOON)
    memory.taint("gpu-1", HOT, since=NOON)
    assert len(memory.taints()["gpu-0"]) == 3
    memory.untaint("gpu-0", HOT.key)
    memory.untaint("gpu-0", HOT.key)
    assert {name: [one.key for one in kept] for name, kept in memory.taints().items()} == {
        "gpu-0": ["example.com/old"],
        "gpu-1": [HOT.key],
    }


def test_the_real_journal_keeps_taints_for_the_boot_alone(tmp_path: pathlib.Path) -> None:
    kept = []
    for boot in ("one", "one", "two", "one"):
        with real.Journal.open(tmp_path, driver="gpu.example.com", boot_id=boot) as opened:
            kept.append({name: taints[0].time_added for name, taints in opened.taints().items()})
            if not kept[1:]:
                opened.taint("gpu-0", HOT, since=NOON)
    assert kept == [{}, {"gpu-0": NOON}, {}, {}]


def test_values_and_taints_survive_setting_aside_a_damaged_journal(tmp_path: pathlib.Path) -> None:
    import contextlib
    import sqlite3

    with real.Journal.open(tmp_path, driver="gpu.example.com", boot_id=samples.BOOT) as opened:
        grant = prepared(opened, 1)
        prepared(opened, 2)
        for number in (1, 2):
            opened.set_state(samples.uid(number), grant.key, "a", {"of": number})
        opened.taint("gpu-0", HOT, since=NOON)
        path = opened.path
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE notes SET record = 'nonsense' WHERE claim = 1")
    with real.Journal.open(tmp_path, driver="gpu.example.com", boot_id=samples.BOOT) as opened:
        assert opened.quarantine is not None
        assert "notes[a]" in opened.quarantine.reason
        assert opened.quarantine.kept == 2
        assert (opened.state(samples.uid(1), grant.key), opened.state(samples.uid(2), grant.key)) == ({}, {"a": {"of": 2}})
        assert opened.taints()["gpu-0"][0].time_added == NOON
