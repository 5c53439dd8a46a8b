"""Watches: nothing is missed, nothing comes twice, and a lost history is said."""

import contextlib
import threading

import pytest

from drakit_cluster.api import registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage import store, watching
from drakit_cluster.api.storage.watching import EventType
from drakit_cluster.client import client
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLASS, POD, SLICE
from fakes import waits
from unit.cluster import samples


def named(event: watching.Event) -> tuple[str, str]:
    return event.type.value, json_types.text(event.object, "metadata", "name")


def test_a_watch_from_a_list_sees_what_came_after_it(api: Api) -> None:
    api.create(SLICE, samples.slice_("s0"))
    since = api.list(SLICE).resource_version
    api.create(SLICE, samples.slice_("s1"))
    with contextlib.closing(api.watch(SLICE, since=since)) as watch:
        assert named(next(watch)) == ("ADDED", "s1")
        api.update(SLICE, samples.slice_("s0", count=2))
        assert named(next(watch)) == ("MODIFIED", "s0")
        gone = api.delete(SLICE, "s1")
        last = next(watch)
        assert named(last) == ("DELETED", "s1")
        assert last.object == gone


def test_a_watch_without_a_version_begins_with_existing_objects(api: Api) -> None:
    api.create(SLICE, samples.slice_("s0"))
    for since in ("", "0"):
        with contextlib.closing(api.watch(SLICE, since=since)) as watch:
            assert named(next(watch)) == ("ADDED", "s0")


def test_an_object_that_leaves_the_selection_is_deleted_for_the_watcher(api: Api) -> None:
    api.create(POD, samples.pod())
    with contextlib.closing(api.watch(POD, since="", field_selector="spec.nodeName=")) as watch:
        assert named(next(watch)) == ("ADDED", "p1")
        bound = api.patch(POD, "p1", {"spec": {"nodeName": "n1"}}, namespace="default", kind=PatchKind.MERGE)
        left = next(watch)
        assert named(left) == ("DELETED", "p1")
        assert "nodeName" not in json_types.mapping(left.object, "spec")
        assert json_types.text(left.object, "metadata", "resourceVersion") == json_types.text(bound, "metadata", "resourceVersion")


def test_a_lost_history_ends_a_watch_with_410(memory: registry.Registry, https: client.ApiClient) -> None:
    since = memory.list(SLICE).resource_version
    memory.create(SLICE, samples.slice_("s0"))
    memory.store.forget_history()
    with pytest.raises(errors.GoneError):
        memory.watch(SLICE, since=since)
    with contextlib.closing(https.watch(SLICE, since=since)) as watch:
        event = next(watch)
        assert event.type is EventType.ERROR
        assert isinstance(errors.from_status(event.object), errors.GoneError)
        assert json_types.number(event.object, "code") == 410
        with pytest.raises(StopIteration):
            next(watch)


def test_history_is_bounded_and_a_fresh_list_always_works() -> None:
    small = registry.Registry(store.Store(history=3))
    since = small.list(SLICE).resource_version
    for index in range(5):
        small.create(SLICE, samples.slice_(f"s{index}"))
    with pytest.raises(errors.GoneError):
        small.watch(SLICE, since=since)
    assert len(small.list(SLICE).items) == 5
    with contextlib.closing(small.watch(SLICE, since=str(small.store.version - 1), timeout=5)) as watch:
        assert named(next(watch)) == ("ADDED", "s4")


@pytest.mark.parametrize("seconds", [0.2, 1.0])
def test_a_watch_ends_at_its_timeout(memory: registry.Registry, seconds: float) -> None:
    assert list(memory.watch(SLICE, since="", timeout=seconds)) == []


def test_close_wakes_a_waiting_reader(api: Api) -> None:
    watch = api.watch(SLICE, since="")
    seen: list[watching.Event] = []
    reader = threading.Thread(target=lambda: seen.extend(watch))
    reader.start()
    api.create(SLICE, samples.slice_())
    while not seen:
        reader.join(0.01)
    watch.close()
    reader.join(waits.SECONDS)
    assert not reader.is_alive()
    assert [event.type for event in seen] == [EventType.ADDED]


def test_many_writers_and_a_watcher_agree_on_one_order(memory: registry.Registry) -> None:
    watch = memory.watch(CLASS, since="", timeout=30)

    def write(worker: int) -> None:
        for index in range(25):
            memory.create(CLASS, {"metadata": {"name": f"c-{worker}-{index}"}, "spec": {}})

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for one in workers:
        one.start()
    versions = [int(json_types.text(next(watch).object, "metadata", "resourceVersion")) for _ in range(200)]
    for one in workers:
        one.join()
    watch.close()
    assert versions == sorted(set(versions))


def test_changing_a_returned_object_does_not_change_the_store(memory: registry.Registry) -> None:
    made = memory.create(SLICE, samples.slice_())
    listed: Object = memory.list(SLICE).items[0]
    for obj in (made, listed):
        json_types.mapping(obj, "spec")["driver"] = "changed"
    assert json_types.text(memory.get(SLICE, "0-n1-aaaaa"), "spec", "driver") == "gpu.drakit.dev"
