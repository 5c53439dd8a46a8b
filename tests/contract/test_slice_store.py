"""What every ``ports.SliceStore`` promises: the fake, and the real one against the local cluster's API server over HTTPS."""

import collections.abc
import pathlib

import pytest

from drakit.core import errors, ports
from drakit.core.slices import resource_slice
from drakit.kube import client
from drakit.kube import slices as kube_slices
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import features, resources
from fakes import real_clock, slice_follower, slice_store
from fakes import slice_samples as samples


@pytest.fixture(scope="module")
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    gates = features.FeatureGates.of({"DRAResourceSliceMixins": True})
    with apiserver.ApiServer(registry.Registry(gates=gates)) as running:
        running.registry.create(resources.NODE, {"metadata": {"name": samples.NODE}})
        yield running


@pytest.fixture
def api_store(server: apiserver.ApiServer, tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[kube_slices.ApiSlices]:
    kubeconfig = tmp_path_factory.mktemp("kube") / "config"
    server.write_kubeconfig(kubeconfig)
    connection = client.connect(kubeconfig)
    yield kube_slices.ApiSlices(connection, driver=samples.DRIVER, node=samples.NODE, clock=real_clock.RealClock())
    server.registry.delete_collection(resources.SLICE)
    connection.close()


@pytest.fixture(params=["fake", "api server"])
def store(request: pytest.FixtureRequest) -> ports.SliceStore:
    if request.param == "fake":
        return slice_store.FakeSliceStore()
    found: ports.SliceStore = request.getfixturevalue("api_store")
    return found


@pytest.fixture
def other(store: ports.SliceStore, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> collections.abc.Iterator[ports.SliceStore]:
    """The same slices as another program writes them."""
    if not isinstance(store, kube_slices.ApiSlices):
        yield store
        return
    request.getfixturevalue("server").write_kubeconfig(tmp_path / "config")
    connection = client.connect(tmp_path / "config")
    yield kube_slices.ApiSlices(connection, driver=samples.DRIVER, node=samples.NODE, clock=real_clock.RealClock())
    connection.close()


def test_a_new_store_is_empty(store: ports.SliceStore) -> None:
    assert list(store.list()) == []


@pytest.mark.parametrize("page", samples.PAGES.values(), ids=samples.PAGES.keys())
def test_a_created_slice_is_returned_and_listed_complete(store: ports.SliceStore, page: resource_slice.Page) -> None:
    wanted = samples.create(page)
    made = store.create(wanted)
    assert made.name.startswith(wanted.prefix)
    assert made.uid
    assert made.version
    assert made.spec == wanted.spec
    assert list(store.list()) == [made]


def test_slices_of_one_prefix_get_names_of_their_own(store: ports.SliceStore) -> None:
    made = [store.create(samples.create(samples.plain_page("a"))) for _ in range(3)]
    assert len({one.name for one in made}) == len({one.uid for one in made}) == 3


def test_an_update_replaces_the_spec_under_the_same_name_and_uid(store: ports.SliceStore) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    spec = samples.spec_of(samples.rich_device_page(), generation=2)
    updated = store.update(resource_slice.Update(index=0, published=made, spec=spec))
    assert (updated.name, updated.uid, updated.spec) == (made.name, made.uid, spec)
    assert updated.version != made.version
    assert list(store.list()) == [updated]


def test_an_update_from_an_old_version_is_refused_and_changes_nothing(store: ports.SliceStore) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    updated = store.update(resource_slice.Update(index=0, published=made, spec=samples.spec_of(samples.plain_page("b"))))
    with pytest.raises(errors.ApiError) as raised:
        store.update(resource_slice.Update(index=0, published=made, spec=samples.spec_of(samples.plain_page("c"))))
    assert raised.value.status == 409
    assert list(store.list()) == [updated]


def test_an_update_of_a_slice_that_is_gone_is_refused(store: ports.SliceStore) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    store.delete(made)
    with pytest.raises(errors.ApiError) as raised:
        store.update(resource_slice.Update(index=0, published=made, spec=samples.spec_of(samples.plain_page("b"))))
    assert raised.value.status in (404, 409)
    assert list(store.list()) == []


def test_a_deleted_slice_is_gone_and_deleting_it_again_succeeds(store: ports.SliceStore) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    kept = store.create(samples.create(samples.plain_page("b"), index=1))
    store.delete(made)
    store.delete(made)
    assert list(store.list()) == [kept]


def test_a_slice_with_a_newer_version_is_not_deleted(store: ports.SliceStore) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    updated = store.update(resource_slice.Update(index=0, published=made, spec=samples.spec_of(samples.plain_page("b"))))
    with pytest.raises(errors.ApiError) as raised:
        store.delete(made)
    assert raised.value.status == 409
    assert list(store.list()) == [updated]


def test_a_watch_reports_its_start_and_every_kind_of_change(store: ports.SliceStore, other: ports.SliceStore) -> None:
    follower = slice_follower.Follower(store)
    assert follower.saw_one()
    made = other.create(samples.create(samples.plain_page("a")))
    assert follower.saw_one()
    updated = other.update(resource_slice.Update(index=0, published=made, spec=samples.spec_of(samples.plain_page("b"))))
    assert follower.saw_one()
    other.delete(updated)
    assert follower.saw_one()
    assert follower.end()


def test_version_and_missing_features_are_found_without_a_write(store: ports.SliceStore) -> None:
    described = store.server()
    assert described.version.startswith("v1.3")
    assert "DRAPartitionableDevices" not in described.lacks
    assert store.server() == described
    assert store.list() == []


def test_a_silent_watch_ends_when_it_is_stopped(store: ports.SliceStore) -> None:
    follower = slice_follower.Follower(store)
    assert follower.saw_one()
    assert follower.end()
