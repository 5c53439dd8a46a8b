"""What the publisher writes, and when it does not."""

import dataclasses
import io
import json
import threading
from collections.abc import Callable

import pytest

from drakit.core import capacity, device, errors, inventory, node_resources, ports
from drakit.core.slices import feature_gates, resource_slice
from drakit.node.publishing import publisher, slice_pages
from drakit.telemetry import logs
from fakes import author, real_clock, slice_store, waits

TARGET = publisher.Target(driver="fake.example.com", node="node-1", pool="node-1")


def offered(*absent: str) -> inventory.Inventory:
    hardware = author.Hardware()
    hardware.present -= set(absent)
    return author.FakeDriver(hardware).discover()


def start(
    store: slice_store.FakeSliceStore, what: inventory.Inventory | None = None, form: publisher.FormChoice = publisher.FormChoice.AUTO
) -> publisher.Publisher:
    made = publisher.Publisher(TARGET, store=store, clock=real_clock.RealClock(), form=form)
    made.offer(offered() if what is None else what)
    return made


def devices(store: slice_store.FakeSliceStore) -> list[str]:
    return [item.name for one in sorted(store.list(), key=lambda one: one.name) for item in one.spec.page.devices]


def on_page(change: Callable[[resource_slice.Page], resource_slice.Page]) -> Callable[[resource_slice.SliceSpec], resource_slice.SliceSpec]:
    return lambda spec: dataclasses.replace(spec, page=change(spec.page))


def without_counters(page: resource_slice.Page) -> resource_slice.Page:
    kept = tuple(dataclasses.replace(item, consumes=()) for item in page.devices)
    return dataclasses.replace(page, counter_sets=(), devices=kept, mixins=dataclasses.replace(page.mixins, counter_set=(), consumption=()))


def without_sharing(page: resource_slice.Page) -> resource_slice.Page:
    def plain(item: device.Device) -> device.Device:
        capacity = {name: dataclasses.replace(entry, policy=None) for name, entry in item.capacity.items()}
        return dataclasses.replace(item, allow_multiple_allocations=False, capacity=capacity)

    return dataclasses.replace(page, devices=tuple(map(plain, page.devices)))


def without_mixins(page: resource_slice.Page) -> resource_slice.Page:
    sets = tuple(dataclasses.replace(item, includes=()) for item in page.counter_sets)
    drawn = tuple(
        dataclasses.replace(item, includes=(), consumes=tuple(dataclasses.replace(part, includes=()) for part in item.consumes))
        for item in page.devices
    )
    return resource_slice.Page(devices=drawn, counter_sets=sets, mixins=inventory.Mixins())


def test_everything_offered_is_published_in_order() -> None:
    store = slice_store.FakeSliceStore()
    start(store).reconcile()
    assert devices(store) == ["chip-0-left", "chip-0-right", "chip-1-left", "chip-1-right", "chip-0", "chip-1", "pipe"]


def test_counter_sets_and_devices_are_in_slices_of_one_generation() -> None:
    store = slice_store.FakeSliceStore()
    start(store).reconcile()
    pools = {one.spec.pool for one in store.list()}
    assert pools == {resource_slice.Pool(name="node-1", generation=1, count=2)}
    assert all(not (one.spec.page.devices and one.spec.page.counter_sets) for one in store.list())


def test_a_thousand_idle_rounds_write_nothing() -> None:
    store = slice_store.FakeSliceStore()
    idle = start(store)
    idle.reconcile()
    before = store.writes
    for _ in range(1000):
        assert idle.reconcile() == 0
    assert store.writes == before


def test_dozens_of_slices_are_written_once_each() -> None:
    store = slice_store.FakeSliceStore()
    many = inventory.Inventory(devices=tuple(device.Device(name=f"d-{number:05}") for number in range(128 * 30)))
    made = start(store, many)
    assert made.reconcile() == 30
    assert made.reconcile() == 0
    assert {one.spec.pool for one in store.list()} == {resource_slice.Pool(name="node-1", generation=1, count=30)}


def test_another_process_with_the_same_offer_writes_only_its_probe() -> None:
    store = slice_store.FakeSliceStore()
    start(store).reconcile()
    assert start(store).reconcile() == 0


def test_slices_wiped_by_the_kubelet_are_published_again() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store)
    made.reconcile()
    store.wipe()
    made.reconcile()
    assert len(devices(store)) == 7


class Wiping(slice_store.FakeSliceStore):
    """A store whose slices are gone, or another's, when the first replacement arrives; ``left`` times."""

    left = 1
    is_edit = False

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        if self.left:
            self.left -= 1
            if self.is_edit:
                self.edit(wanted.published.name, wanted.published.spec)
            else:
                self.wipe()
        return super().update(wanted)


@pytest.mark.parametrize("is_edit", [False, True], ids=["wiped", "edited"])
def test_slices_that_change_during_a_replacement_are_republished_without_a_warning(*, is_edit: bool) -> None:
    store = Wiping()
    made = start(store, offered("pipe"))
    made.reconcile()
    made.offer(offered("chip-1"))
    store.is_edit = is_edit
    stream = io.StringIO()
    logs.setup(stream=stream)
    made.reconcile()
    assert store.left == 0
    assert sorted(devices(store)) == sorted(item.name for item in offered("chip-1").devices)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert "slice update conflict: publishing again" in [line["event"] for line in lines]


def test_slices_that_somebody_changes_at_every_write_are_an_error() -> None:
    store = Wiping()
    made = start(store, offered("pipe"))
    made.reconcile()
    made.offer(offered("chip-1"))
    store.is_edit, store.left = True, 1000
    with pytest.raises(errors.ApiError, match="5 times in a row"):
        made.reconcile()


def test_one_change_is_one_write() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store)
    made.reconcile()
    made.offer(offered("pipe"))
    assert made.reconcile() == 1
    assert "pipe" not in devices(store)
    assert {one.spec.pool.generation for one in store.list()} == {1}


def test_a_probe_left_by_a_crash_is_removed() -> None:
    store = slice_store.FakeSliceStore()
    pool = resource_slice.Pool(name="node-1/probe", generation=1, count=1)
    spec = resource_slice.SliceSpec(driver=TARGET.driver, node=TARGET.node, pool=pool, page=resource_slice.Page())
    store.create(resource_slice.Create(index=0, prefix="probe-", spec=spec))
    start(store).reconcile()
    assert {one.spec.pool.name for one in store.list()} == {"node-1"}


class KeepingSliceStore(slice_store.FakeSliceStore):
    """A store that lets nobody delete."""

    def delete(self, published: resource_slice.Published) -> None:
        raise errors.ApiError("the API server answered 403: cannot delete", status=403, reason="Forbidden")


def test_a_driver_that_may_not_delete_leaves_one_probe_slice_however_often_it_tries() -> None:
    store = KeepingSliceStore()
    publishing = start(store)
    for _ in range(5):
        with pytest.raises(errors.ApiError, match="cannot delete"):
            publishing.reconcile()
    assert len(store.list()) == 1


def test_without_counters_only_whole_devices_are_ever_offered() -> None:
    seen: list[str] = []

    def store_page(page: resource_slice.Page) -> resource_slice.Page:
        kept = without_counters(page)
        seen.extend(item.name for item in kept.devices)
        return kept

    store = slice_store.FakeSliceStore(on_page(store_page))
    start(store).reconcile()
    assert devices(store) == ["chip-0", "chip-1", "pipe"]
    assert set(seen) == {"chip-0", "chip-1", "pipe", "probe"}, "no partition went out, not even for a moment"


def test_without_sharing_the_exclusive_form_is_offered() -> None:
    store = slice_store.FakeSliceStore(on_page(without_sharing))
    made = start(store)
    made.reconcile()
    pipe = next(item for one in store.list() for item in one.spec.page.devices if item.name == "pipe")
    assert not pipe.allow_multiple_allocations
    assert not made.stores_sharing
    assert made.reconcile() == 0, "what the server cannot store is not sent again and again"


def test_mixins_are_written_only_where_they_come_back_whole() -> None:
    authored = with_mixins()
    whole, lossy = slice_store.FakeSliceStore(), slice_store.FakeSliceStore(on_page(without_mixins))
    start(whole, authored).reconcile()
    start(lossy, authored).reconcile()
    assert any(one.spec.page.mixins for one in whole.list())
    assert not any(one.spec.page.mixins for one in lossy.list())
    flat = [item for one in sorted(lossy.list(), key=lambda one: one.name) for item in one.spec.page.devices]
    assert flat == list(authored.flat().devices)


def test_the_flat_form_can_be_configured() -> None:
    store = slice_store.FakeSliceStore()
    start(store, with_mixins(), form=publisher.FormChoice.FLAT).reconcile()
    assert not any(one.spec.page.mixins for one in store.list())


def with_mixins() -> inventory.Inventory:
    plain = offered()
    shared = inventory.Mixins(device=(inventory.DeviceMixin(name="common", attributes={"vendor": "example"}),))
    return dataclasses.replace(
        plain, devices=tuple(dataclasses.replace(item, includes=("common",)) for item in plain.devices), mixins=shared
    )


def test_changes_by_a_webhook_are_kept_until_the_offer_changes() -> None:
    def relabel(page: resource_slice.Page) -> resource_slice.Page:
        return dataclasses.replace(page, devices=tuple(dataclasses.replace(item, attributes={"x": 1}) for item in page.devices))

    store = slice_store.FakeSliceStore(on_page(relabel))
    made = start(store)
    made.reconcile()
    assert made.published.is_set()
    writes = store.writes
    for _ in range(100):
        assert made.reconcile() == 0
    assert store.writes == writes
    made.offer(offered("pipe"))
    assert made.reconcile() > 0


def tainted() -> inventory.Inventory:
    plain = offered()
    sick = dataclasses.replace(plain.devices[-1], taints=(device.Taint(key="example.com/hot"),))
    return dataclasses.replace(plain, devices=(*plain.devices[:-1], sick))


def test_where_taints_are_dropped_a_tainted_device_never_goes_out_without_its_taint() -> None:
    seen: list[str] = []

    def store_page(page: resource_slice.Page) -> resource_slice.Page:
        kept = dataclasses.replace(page, devices=tuple(dataclasses.replace(item, taints=()) for item in page.devices))
        seen.extend(item.name for item in kept.devices)
        return kept

    store = slice_store.FakeSliceStore(on_page(store_page))
    start(store, tainted()).reconcile()
    assert "pipe" not in seen
    assert "chip-0" in seen


def test_a_probe_of_devices_is_never_complete_so_nothing_of_it_can_be_allocated() -> None:
    pools: list[tuple[resource_slice.Pool, int]] = []

    def note(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        pools.append((spec.pool, len(spec.page.devices)))
        return spec

    store = slice_store.FakeSliceStore(note)
    start(store).reconcile()
    probes = [(pool.count, devices) for pool, devices in pools if pool.name != TARGET.pool]
    assert sorted(probes) == [(1, 0), (2, 1)]


def test_partitions_that_appear_later_are_probed_before_publishing() -> None:
    seen: list[str] = []

    def store_page(page: resource_slice.Page) -> resource_slice.Page:
        kept = without_counters(page)
        seen.extend(item.name for item in kept.devices)
        return kept

    store = slice_store.FakeSliceStore(on_page(store_page))
    whole = inventory.Inventory.of(
        dataclasses.replace(item, consumes=()) for item in offered().devices if item.attributes["kind"] == "whole"
    )
    made = start(store, whole, form=publisher.FormChoice.FLAT)
    made.reconcile()
    made.offer(offered())
    made.reconcile()
    assert not any("left" in name or "right" in name for name in seen)


def upgrade(store: slice_store.FakeSliceStore, version: str, *lacks: str) -> None:
    store.described = ports.ApiServer(version=version, lacks=frozenset(lacks))


def test_a_feature_is_probed_again_when_the_servers_version_changes() -> None:
    store = slice_store.FakeSliceStore(on_page(without_counters))
    made = start(store)
    made.reconcile()
    store.stored_as = slice_store.keep_all
    made.reconcile()
    assert devices(store) == ["chip-0", "chip-1", "pipe"]
    upgrade(store, "v1.38.0")
    made.reconcile()
    assert len(devices(store)) == 7


def test_a_feature_that_an_upgrade_takes_away_is_found_before_anything_else_goes_out() -> None:
    store = slice_store.FakeSliceStore()
    made = start(store)
    made.reconcile()
    seen: list[str] = []

    def store_page(page: resource_slice.Page) -> resource_slice.Page:
        seen.extend(item.name for item in page.devices)
        return without_counters(page)

    store.stored_as = on_page(store_page)
    upgrade(store, "v1.38.0")
    made.offer(offered("pipe"))
    made.reconcile()
    assert devices(store) == ["chip-0", "chip-1"]
    assert not any("left" in name or "right" in name for name in seen)


@pytest.mark.parametrize("stored_as", [slice_store.keep_all, on_page(without_counters), on_page(without_sharing)])
def test_an_idle_node_writes_nothing_for_weeks_whatever_the_server_drops(
    stored_as: Callable[[resource_slice.SliceSpec], resource_slice.SliceSpec],
) -> None:
    store, clock = slice_store.FakeSliceStore(stored_as), Ticking()
    made = publisher.Publisher(TARGET, store=store, clock=clock)
    made.offer(offered())
    made.reconcile()
    made.reconcile()
    writes = store.writes
    for _ in range(24 * 28):
        clock.seconds += 3600
        assert made.reconcile() == 0
    assert store.writes == writes


class Ticking(real_clock.RealClock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_facts_about_a_server_stay_known_during_a_refresh_and_when_it_fails() -> None:
    store = slice_store.FakeSliceStore(on_page(without_sharing))
    made = start(store)
    meanwhile: list[bool | None] = [made.stores_sharing]
    store.failures = [errors.ApiError("no answer")]
    with pytest.raises(errors.ApiError):
        made.reconcile()
    meanwhile.append(made.stores_sharing)
    made.reconcile()
    meanwhile.append(made.stores_sharing)
    assert meanwhile == [None, None, False], "nothing is made up before the first answer"
    upgrade(store, "v1.38.0")
    meanwhile.clear()

    def store_page(page: resource_slice.Page) -> resource_slice.Page:
        meanwhile.append(made.stores_sharing)
        return without_sharing(page)

    store.stored_as = on_page(store_page)
    store.failures = [errors.ApiError("webhook refuses", status=500)] * 2
    made.reconcile()
    meanwhile.append(made.stores_sharing)
    assert set(meanwhile) == {False}, "a question that failed takes back nothing"
    made.reconcile()
    assert len(meanwhile) > 1, "it was asked again"
    assert set(meanwhile) == {False}


def test_a_server_without_mixins_in_its_schema_is_never_sent_any() -> None:
    pages: list[resource_slice.Page] = []

    def note(page: resource_slice.Page) -> resource_slice.Page:
        pages.append(page)
        return page

    store = slice_store.FakeSliceStore(on_page(note))
    upgrade(store, "v1.36.2", "DRAResourceSliceMixins")
    start(store, with_mixins()).reconcile()
    assert len(devices(store)) == 7
    assert not any(page.mixins or any(item.includes for item in page.devices) for page in pages)
    assert not any(item.includes for page in pages for item in page.counter_sets)


@pytest.mark.parametrize("version, together", [("v1.34.3+k3s1", True), ("v1.35.0", False)])
def test_counters_are_beside_their_devices_on_1_34_which_stores_them_alone_too(version: str, *, together: bool) -> None:
    store = slice_store.FakeSliceStore()
    upgrade(store, version, "DRAResourceSliceMixins")
    start(store, with_mixins()).reconcile()
    pages = [one.spec.page for one in store.list()]
    assert any(page.counter_sets for page in pages)
    assert all(bool(page.devices) for page in pages if page.counter_sets) is together


def without_lists(page: resource_slice.Page) -> resource_slice.Page:
    """Refuse a list attribute, as a server does that drops the list and then finds no value."""
    if any(isinstance(value, tuple) for item in page.devices for value in item.attributes.values()):
        raise errors.ApiError("spec.devices[0].attributes: exactly one value must be specified", status=422)
    return page


def test_a_gate_that_is_off_is_logged_once_with_its_effect_and_the_fix() -> None:
    radio = device.Device(name="radio", attributes={"bands": ("am", "fm")})
    store, stream = slice_store.FakeSliceStore(on_page(without_lists)), io.StringIO()
    logs.setup(stream=stream)
    try:
        made = start(store, inventory.Inventory.of([radio]))
        made.reconcile()
        made.reconcile()
    finally:
        logs.setup(level=logs.Level.WARNING)
    (line,) = [entry for entry in map(json.loads, stream.getvalue().splitlines()) if entry["event"] == "API server drops fields"]
    assert line["features"] == ["DRAListTypeAttributes"]
    assert line["effect"] == "devices are offered without their list attributes"
    assert line["fix"] == "enable these feature gates in the API server and the scheduler, then restart the driver"
    [page] = [one.spec.page for one in store.list()]
    assert dict(page.devices[0].attributes) == {}


def test_every_gate_that_is_probed_has_an_effect_to_log() -> None:
    assert feature_gates.EFFECTS.keys() >= slice_pages.GATES


def test_devices_without_gated_fields_are_published_without_a_probe() -> None:
    store = slice_store.FakeSliceStore()
    upgrade(store, "v1.36.2", "DRAResourceSliceMixins")
    start(store, inventory.Inventory.of([device.Device(name="a"), device.Device(name="b")])).reconcile()
    assert store.writes == 1


@pytest.mark.parametrize(
    "lacks,kept",
    [
        ("DRAPartitionableDevices", ["chip-0", "chip-1", "pipe"]),
        ("DRADeviceTaints", ["chip-0-left", "chip-0-right", "chip-1-left", "chip-1-right", "chip-0", "chip-1"]),
    ],
)
def test_a_field_that_the_schema_lacks_is_never_sent(lacks: str, kept: list[str]) -> None:
    store = slice_store.FakeSliceStore()
    upgrade(store, "v1.33.0", lacks)
    start(store, tainted()).reconcile()
    assert devices(store) == kept


def test_a_refusal_that_is_not_about_counters_changes_no_layout() -> None:
    store = slice_store.FakeSliceStore()
    store.failures = [errors.ApiError("denied by policy: pool name", status=422)]
    made = start(store)
    with pytest.raises(errors.ApiError, match="denied by policy"):
        made.reconcile()
    made.reconcile()
    assert all(not (one.spec.page.devices and one.spec.page.counter_sets) for one in store.list())


def test_two_publishers_with_different_offers_slow_down() -> None:
    store, stop = slice_store.FakeSliceStore(), threading.Event()
    rivals = [publisher.Publisher(TARGET, store=store, clock=CountedClock()) for _ in range(2)]
    rivals[0].offer(offered())
    rivals[1].offer(offered("pipe"))
    workers = [threading.Thread(target=work, args=(stop,)) for rival in rivals for work in (rival.run, rival.follow)]
    for worker in workers:
        worker.start()
    stop.wait(3)
    stop.set()
    for rival in rivals:
        rival.wake()
    for worker in workers:
        worker.join(waits.SECONDS)
    assert store.writes < 40


class CountedClock(real_clock.RealClock):
    """Waits as long as it is told, up to a second."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(min(seconds, 1.0))


def test_publishing_continues_after_an_outage_of_the_api_server() -> None:
    store = slice_store.FakeSliceStore()
    store.failures = [errors.ApiError("no answer")] * 3
    made = start(store)
    stop = threading.Event()
    worker = threading.Thread(target=made.run, args=(stop,))
    worker.start()
    assert made.published.wait(waits.SECONDS)
    stop.set()
    made.wake()
    worker.join(waits.SECONDS)
    assert len(devices(store)) == 7


def without_conditions(page: resource_slice.Page) -> resource_slice.Page:
    plain = (dataclasses.replace(item, binding_conditions=(), binding_failure_conditions=()) for item in page.devices)
    return dataclasses.replace(page, devices=tuple(plain))


def renamed(page: resource_slice.Page) -> resource_slice.Page:
    return dataclasses.replace(page, devices=tuple(dataclasses.replace(item, name=f"{item.name}-x") for item in page.devices))


@pytest.mark.parametrize(
    "change,said,unsaid",
    [(without_conditions, "slice fields dropped", "altered by"), (renamed, "slice altered by", "fields dropped")],
)
def test_a_slice_kept_as_stored_is_logged_with_the_reason(
    change: Callable[[resource_slice.Page], resource_slice.Page], said: str, unsaid: str
) -> None:
    waiting = device.Device(name="a", binding_conditions=("Ready",), binding_failure_conditions=("Failed",))
    store = slice_store.FakeSliceStore(on_page(change))
    made = start(store, inventory.Inventory(devices=(waiting,)), publisher.FormChoice.FLAT)
    stream = io.StringIO()
    logs.setup(stream=stream)
    try:
        made.reconcile()
    finally:
        logs.setup(level=logs.Level.WARNING)
    assert said in stream.getvalue()
    assert unsaid not in stream.getvalue()


FRACTION = capacity.Capacity(value=3, policy=capacity.RequestPolicy(default="500m", valid_values=("500m", "1")))


def test_an_upgrade_publishes_fractions_that_the_older_server_refused() -> None:
    def refuse(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        policies = [entry.policy for item in spec.page.devices for entry in item.capacity.values() if entry.policy]
        if any(policy.in_whole_units() != policy for policy in policies):
            raise errors.ApiError("spec.devices[0].capacity[x].requestPolicy: Invalid value", status=422)
        return spec

    store = slice_store.FakeSliceStore(refuse)
    shared = device.Device(name="a", allow_multiple_allocations=True, capacity={"cores": FRACTION})
    made = start(store, inventory.Inventory.of([shared]))
    made.reconcile()
    assert [policy_of(store), made.reconcile()] == [capacity.RequestPolicy(default="500m", valid_values=("500m",)), 0]
    store.stored_as = slice_store.keep_all
    upgrade(store, "v1.38.0")
    made.reconcile()
    assert policy_of(store) == FRACTION.policy


def policy_of(store: slice_store.FakeSliceStore) -> capacity.RequestPolicy | None:
    (stored,) = [one for one in store.list() if one.spec.page.devices]
    return stored.spec.page.devices[0].capacity["cores"].policy


@pytest.mark.parametrize(
    "offered_device, gate, level",
    [
        (device.Device(name="a", attributes={"peers": (1, 2)}), "DRAListTypeAttributes", "info"),
        (
            device.Device(name="a", node_resources={"cpu": node_resources.NodeResource(per_pod=1)}),
            "nodeAllocatableResources",
            "warning",
        ),
        (
            device.Device(name="a", node_resources={"cpu": node_resources.NodeResource(per_device=1)}),
            "DRANodeAllocatableResources",
            "warning",
        ),
    ],
)
def test_a_field_that_the_schema_lacks_is_logged_once_if_the_inventory_has_it(offered_device: device.Device, gate: str, level: str) -> None:
    store = slice_store.FakeSliceStore()
    upgrade(store, "v1.35.0", "DRAListTypeAttributes", gate, "DRADeviceCompatibilityGroups")
    stream = io.StringIO()
    logs.setup(stream=stream)
    made = start(store, inventory.Inventory.of([device.Device(name="b")]))
    made.reconcile()
    made.offer(inventory.Inventory.of([offered_device]))
    made.reconcile()
    made.offer(inventory.Inventory.of([offered_device, device.Device(name="b")]))
    made.reconcile()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (dropped,) = [line for line in lines if line["event"] == "API server drops fields"]
    assert (dropped["features"], dropped["level"]) == ([gate], level)
    assert dropped["fix"] == "update the API server to Kubernetes 1.37, or leave these fields out"


def test_node_resources_change_their_form_with_an_upgrade() -> None:
    def store_1_36(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        return spec if all(map(is_mapping, taken_by(spec.page))) else on_page(without_node_resources)(spec)

    def store_1_37(spec: resource_slice.SliceSpec) -> resource_slice.SliceSpec:
        return on_page(without_node_resources)(spec) if any(map(is_mapping, taken_by(spec.page))) else spec

    store = slice_store.FakeSliceStore(store_1_36)
    upgrade(store, "v1.36.2", "nodeAllocatableResources")
    taken = node_resources.NodeResource(per_device=2)
    made = start(store, inventory.Inventory.of([device.Device(name="a", node_resources={"cpu": taken})]))
    made.reconcile()
    assert [found for one in store.list() for found in taken_by(one.spec.page)] == [node_resources.as_mapping(taken)]
    store.stored_as = store_1_37
    upgrade(store, "v1.37.0")
    made.reconcile()
    assert [found for one in store.list() for found in taken_by(one.spec.page)] == [taken]


def taken_by(page: resource_slice.Page) -> list[node_resources.NodeResource]:
    return [taken for item in page.devices for taken in item.node_resources.values()]


def is_mapping(taken: node_resources.NodeResource) -> bool:
    return isinstance(taken, node_resources.NodeResourceMapping)


def without_node_resources(page: resource_slice.Page) -> resource_slice.Page:
    return dataclasses.replace(page, devices=tuple(dataclasses.replace(item, node_resources={}) for item in page.devices))
