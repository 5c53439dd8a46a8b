"""Laws of reconciliation, on a model of the API server."""

import dataclasses
import datetime

import hypothesis.strategies as st
from hypothesis import given

from drakit.core import device
from drakit.core.slices import reconcile, resource_slice

WHO = {"driver": "gpu.example.com", "node": "node1", "pool": "node1"}
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TAINTS = st.just(()) | st.just((device.Taint(key="example.com/bad"),))


@st.composite
def contents(draw: st.DrawFn) -> list[resource_slice.Page]:
    """Pages of a few devices with distinct names."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True))
    items = [device.Device(name=name, attributes={"x": draw(st.integers(0, 2))}, taints=draw(TAINTS)) for name in names]
    cuts = sorted(draw(st.lists(st.integers(0, len(items)), max_size=4)))
    bounds = zip([0, *cuts], [*cuts, len(items)], strict=True)
    return [resource_slice.Page(devices=tuple(items[start:end])) for start, end in bounds]


class Server:
    """Stores slices as the API server does: new names, optimistic locking, times added to taints."""

    def __init__(self, stored: list[resource_slice.Published]) -> None:
        self.stored = {item.name: item for item in stored}
        self.writes = 0

    def apply(self, changes: resource_slice.Changes) -> None:
        for gone in changes.deletes:
            assert self.stored.pop(gone.name) == gone
        for update in changes.updates:
            assert self.stored[update.published.name] == update.published
            self._store(update.published.name, update.spec)
        for create in changes.creates:
            assert len(create.prefix) <= 58
            self._store(f"{create.prefix}x{self.writes:04d}", create.spec)

    def _store(self, name: str, spec: resource_slice.SliceSpec) -> None:
        self.writes += 1
        page = dataclasses.replace(spec.page, devices=tuple(map(_timed, spec.page.devices)))
        spec = dataclasses.replace(spec, page=page)
        self.stored[name] = resource_slice.Published(name=name, uid=name, version=str(self.writes), spec=spec)

    def plan(self, pages: list[resource_slice.Page]) -> resource_slice.Changes:
        return reconcile.plan(pages, self.stored.values(), driver=WHO["driver"], node=WHO["node"], pool=WHO["pool"])


def _timed(item: device.Device) -> device.Device:
    return dataclasses.replace(item, taints=tuple(dataclasses.replace(taint, time_added=taint.time_added or NOW) for taint in item.taints))


@st.composite
def worlds(draw: st.DrawFn) -> Server:
    """Whatever may lie in a pool: own slices of any generation, duplicates, strangers' names."""
    pages = draw(contents())
    stored = []
    for number, page in enumerate(pages * draw(st.integers(0, 2))):
        name = draw(st.sampled_from((f"{number:05x}-own", f"{draw(st.integers(0, 6)):05x}-other", "stranger"))) + f"-{number}"
        pool = resource_slice.Pool(name=WHO["pool"], generation=draw(st.integers(0, 3)), count=draw(st.integers(1, 5)))
        spec = resource_slice.SliceSpec(driver=WHO["driver"], node=WHO["node"], pool=pool, page=page)
        stored.append(resource_slice.Published(name=name, uid=name, version="0", spec=spec))
    return Server(stored)


@given(worlds(), contents())
def test_one_round_makes_the_pool_as_wanted_and_the_next_writes_nothing(server: Server, pages: list[resource_slice.Page]) -> None:
    before = max((item.spec.pool.generation for item in server.stored.values()), default=0)
    server.apply(server.plan(pages))
    published = sorted(server.stored.values(), key=lambda item: item.name)
    assert [reconcile.index_of(item.name, 5) for item in published] == list(range(len(pages)))
    assert all(reconcile.same(page, item.spec.page) for page, item in zip(pages, published, strict=True))
    (pool,) = {item.spec.pool for item in published}
    assert pool.count == len(pages)
    assert before <= pool.generation <= before + 1
    assert not server.plan(pages)


@given(contents(), st.data())
def test_one_changed_page_is_written_once_without_a_new_generation(pages: list[resource_slice.Page], data: st.DataObject) -> None:
    server = Server([])
    server.apply(server.plan(pages))
    index = data.draw(st.integers(0, len(pages) - 1))
    changed = [*pages]
    changed[index] = dataclasses.replace(pages[index], devices=(*pages[index].devices, device.Device(name="new")))
    changes = server.plan(changed)
    assert (len(changes.updates), changes.creates, changes.deletes) == (1, (), ())
    assert changes.updates[0].spec.pool.generation == 1


@given(contents(), contents())
def test_a_taint_keeps_its_time_as_long_as_its_device_is_published(
    first: list[resource_slice.Page], second: list[resource_slice.Page]
) -> None:
    server = Server([])
    server.apply(server.plan(first))
    tainted = {item.name for page in first for item in page.devices if item.taints}
    changes = server.plan(second)
    specs = [update.spec for update in changes.updates] + [create.spec for create in changes.creates]
    for item in (item for spec in specs for item in spec.page.devices):
        for taint in item.taints:
            assert (taint.time_added == NOW) == (item.name in tainted)


@given(worlds())
def test_withdrawing_leaves_nothing(server: Server) -> None:
    server.apply(server.plan([]))
    assert not server.stored
