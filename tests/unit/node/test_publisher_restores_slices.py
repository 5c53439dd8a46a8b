"""The publisher restores its slices whatever changes them, with no more requests than it must make."""

import dataclasses
import datetime
import threading
from collections.abc import Callable, Sequence

import pytest

from drakit.core import backoff, device, errors, inventory, quantity
from drakit.core.slices import resource_slice
from drakit.node.publishing import publisher
from fakes import manual_clock, real_clock, slice_store, waits

TARGET = publisher.Target(driver="fake.example.com", node="node-1", pool="node-1")
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
LATER = NOON + datetime.timedelta(hours=1)
HOT = device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_EXECUTE)


def plain(*names: str) -> inventory.Inventory:
    return inventory.Inventory.of(device.Device(name=name) for name in names)


def hot(*names: str, taint: device.Taint = HOT) -> inventory.Inventory:
    return inventory.Inventory.of(device.Device(name=name, taints=(taint,)) for name in names)


def counted() -> inventory.Inventory:
    """Devices and counters, so two slices."""
    drawn = device.CounterConsumption(counter_set="set", counters={"units": quantity.ONE})
    held = device.CounterSet(name="set", counters={"units": quantity.ONE})
    return inventory.Inventory(devices=(device.Device(name="a", consumes=(drawn,)),), counter_sets=(held,))


def publish(store: slice_store.FakeSliceStore, offered: inventory.Inventory) -> publisher.Publisher:
    made = publisher.Publisher(TARGET, store=store, clock=real_clock.RealClock())
    made.offer(offered)
    made.reconcile()
    return made


def by_name(store: slice_store.FakeSliceStore) -> Sequence[resource_slice.Published]:
    return sorted(store.list(), key=lambda one: one.name)


def specs(store: slice_store.FakeSliceStore) -> list[resource_slice.SliceSpec]:
    return [one.spec for one in by_name(store)]


def other_devices(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
    return dataclasses.replace(spec, page=resource_slice.Page(devices=(device.Device(name="z"),)))


def other_count(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
    return dataclasses.replace(spec, pool=dataclasses.replace(spec.pool, count=7))


@pytest.mark.parametrize("change", [other_devices, other_count])
def test_a_slice_edited_by_hand_is_restored_by_one_write_in_its_generation(
    change: Callable[[resource_slice.SliceSpec], resource_slice.SliceSpec],
) -> None:
    store = slice_store.FakeSliceStore()
    made = publish(store, counted())
    before = specs(store)
    edited = by_name(store)[1]
    store.edit(edited.name, change(edited.spec))
    assert made.reconcile() == 1
    assert specs(store) == before


def test_a_slice_deleted_by_hand_comes_back_in_the_next_generation_of_all() -> None:
    store = slice_store.FakeSliceStore()
    made = publish(store, counted())
    store.delete(by_name(store)[1])
    assert made.reconcile() == 2
    assert {(one.pool.generation, one.pool.count) for one in specs(store)} == {(2, 2)}
    assert [item.name for one in specs(store) for item in one.page.devices] == ["a"]


def test_a_pool_of_another_name_is_deleted_and_never_renamed() -> None:
    store = slice_store.FakeSliceStore()
    old = publisher.Publisher(dataclasses.replace(TARGET, pool="old"), store=store, clock=real_clock.RealClock())
    old.offer(plain("a"))
    old.reconcile()
    [before] = store.list()
    publish(store, plain("a"))
    [after] = store.list()
    assert after.spec.pool == resource_slice.Pool(name="node-1", generation=1, count=1)
    assert after.uid != before.uid


class Busy(slice_store.FakeSliceStore):
    """A store in which somebody changes a slice after each of the next ``edits`` lists."""

    edits = 0

    def list(self) -> Sequence[resource_slice.Published]:
        found = super().list()
        if self.edits and found:
            self.edits -= 1
            self.edit(found[0].name, found[0].spec)
        return found


def test_what_somebody_wrote_meanwhile_is_read_again_before_it_is_overwritten() -> None:
    store = Busy()
    made = publish(store, plain("a"))
    store.edits = 1
    made.offer(plain("a", "b"))
    assert made.reconcile() == 1, "the store refuses a write that does not name the version it has"
    assert store.edits == 0
    assert [item.name for one in specs(store) for item in one.page.devices] == ["a", "b"]


@pytest.mark.parametrize("status", [0, 401, 403, 404, 409, 410, 422, 429, 500, 503])
def test_retry_pauses_grow_to_a_minute_and_reset_on_the_first_success(status: int) -> None:
    store, stop, clock = slice_store.FakeSliceStore(), threading.Event(), manual_clock.ManualClock(last=30)
    made = publisher.Publisher(TARGET, store=store, clock=clock, form=publisher.FormChoice.FLAT)
    store.failures = [errors.ApiError("no", status=status)] * 8
    made.offer(plain("a"))
    made.run(stop)
    pauses = [seconds for seconds in clock.waits if seconds < publisher.RESYNC / 2]
    assert all(abs(pause / wanted - 1) <= backoff.JITTER for pause, wanted in zip(pauses[:8], [1, 2, 4, 8, 16, 32, 60, 60], strict=True))
    assert pauses[8] <= 2 * publisher.SETTLE
    assert [item.name for one in specs(store) for item in one.page.devices] == ["a"]


class Patient(real_clock.RealClock):
    """A clock by which the next look without a wake is far away."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(60) if seconds > publisher.RESYNC / 2 else super().wait(event, seconds)


def test_a_wipe_is_repaired_by_the_watch_and_not_only_by_the_next_poll() -> None:
    store, stop, came_back = slice_store.FakeSliceStore(), threading.Event(), threading.Event()
    made = publisher.Publisher(TARGET, store=store, clock=Patient())
    made.offer(plain("a"))
    workers = [threading.Thread(target=work, args=(stop,), daemon=True) for work in (made.run, made.follow)]
    for worker in workers:
        worker.start()
    assert made.published.wait(waits.SECONDS)
    store.wipe()
    threading.Thread(target=_wait_for, args=(store, came_back), daemon=True).start()
    assert came_back.wait(waits.SECONDS)
    stop.set()
    made.wake()
    for worker in workers:
        worker.join(waits.SECONDS)
        assert not worker.is_alive()


def _wait_for(store: slice_store.FakeSliceStore, seen: threading.Event) -> None:
    """Set ``seen`` as soon as there is a device."""
    for _ in store.watch(seen):
        if any(one.spec.page.devices for one in store.list()):
            seen.set()


class Stamping:
    """What the API server does to taints that name no time: it gives them that of the moment."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self, spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        def stamped(item: device.Device) -> device.Device:
            taints = tuple(dataclasses.replace(one, time_added=one.time_added or self.now) for one in item.taints)
            return dataclasses.replace(item, taints=taints)

        return dataclasses.replace(spec, page=dataclasses.replace(spec.page, devices=tuple(map(stamped, spec.page.devices))))


def times(store: slice_store.FakeSliceStore) -> dict[str, datetime.datetime | None]:
    return {item.name: taint.time_added for one in specs(store) for item in one.page.devices for taint in item.taints}


def tainted_at_noon() -> tuple[slice_store.FakeSliceStore, publisher.Publisher]:
    """A publisher whose tainted device the server stamped with noon; an hour later is the server's time now."""
    server = Stamping()
    store = slice_store.FakeSliceStore(server)
    made = publish(store, hot("a"))
    assert times(store) == {"a": NOON}
    server.now = LATER
    return store, made


def test_a_wipe_does_not_restart_the_clock_of_evictions() -> None:
    store, made = tainted_at_noon()
    store.wipe()
    made.reconcile()
    assert times(store) == {"a": NOON}
    assert made.reconcile() == 0


def test_a_wipe_and_a_change_at_once_keep_the_times_of_what_stayed() -> None:
    store, made = tainted_at_noon()
    store.wipe()
    made.offer(hot("b", "a"))
    made.reconcile()
    assert times(store) == {"a": NOON, "b": LATER}


def test_devices_withdrawn_for_a_while_come_back_with_the_times_of_their_taints() -> None:
    store, made = tainted_at_noon()
    made.offer(inventory.Inventory())
    made.reconcile()
    assert times(store) == {}
    made.offer(hot("a"))
    made.reconcile()
    assert times(store) == {"a": NOON}


@pytest.mark.parametrize("between", [plain("a"), hot("a", taint=dataclasses.replace(HOT, value="worse"))])
def test_a_taint_that_was_gone_in_between_gets_a_new_time(between: inventory.Inventory) -> None:
    store, made = tainted_at_noon()
    for offered in (between, hot("a")):
        made.offer(offered)
        made.reconcile()
    assert times(store) == {"a": LATER}


def test_the_time_that_is_stored_counts_more_than_one_that_is_remembered() -> None:
    store, made = tainted_at_noon()
    store.wipe()
    other = publish(store, hot("a"))
    assert times(store) == {"a": LATER}
    assert made.reconcile() == other.reconcile() == 0, "two processes do not fight about a time"


def test_a_taint_on_one_of_100_devices_splits_their_slice_and_keeps_their_order() -> None:
    store, names = slice_store.FakeSliceStore(), [f"d{number:03d}" for number in range(100)]
    made = publish(store, plain(*names))
    assert len(store.list()) == 1
    devices = plain(*names).devices
    made.offer(inventory.Inventory(devices=(*devices[:50], *hot(names[50]).devices, *devices[51:])))
    made.reconcile()
    assert [len(one.page.devices) for one in specs(store)] == [64, 36]
    assert [item.name for one in specs(store) for item in one.page.devices] == names
    assert {(one.pool.generation, one.pool.count) for one in specs(store)} == {(2, 2)}
