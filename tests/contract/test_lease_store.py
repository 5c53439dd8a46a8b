"""What every ``ports.LeaseStore`` promises: the fake, and the real one against the local cluster's API server over HTTPS."""

import collections.abc
import dataclasses
import datetime
import pathlib

import pytest

from drakit.core import errors, ports
from drakit.core.slices import leader_election
from drakit.kube import client, leases
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources
from fakes import lease_store

NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=datetime.UTC)
MINE = leader_election.Lease(holder="me", duration=15.0, acquired=NOON, renewed=NOON)
NAMESPACE, NAME = "default", "tpu.drakit.dev"


@pytest.fixture
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        yield running


@pytest.fixture
def api_lease(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> collections.abc.Iterator[leases.ApiLease]:
    server.write_kubeconfig(tmp_path / "config")
    connection = client.connect(tmp_path / "config")
    yield leases.ApiLease(connection, namespace=NAMESPACE, name=NAME, timeout=5.0)
    connection.close()


@pytest.fixture(params=["fake", "api server"])
def store(request: pytest.FixtureRequest) -> ports.LeaseStore:
    if request.param == "fake":
        return lease_store.FakeLeaseStore()
    found: ports.LeaseStore = request.getfixturevalue("api_lease")
    return found


def test_a_new_store_has_no_lease(store: ports.LeaseStore) -> None:
    assert store.read() is None
    made = store.write(MINE)
    assert made.version
    assert dataclasses.replace(made, version="") == MINE
    assert store.read() == made


def test_only_one_of_two_creators_gets_the_lease(store: ports.LeaseStore) -> None:
    made = store.write(MINE)
    with pytest.raises(errors.ApiError) as raised:
        store.write(dataclasses.replace(MINE, holder="other"))
    assert raised.value.status == 409
    assert store.read() == made


def test_only_one_of_two_replacers_gets_the_lease(store: ports.LeaseStore) -> None:
    made = store.write(MINE)
    taken = store.write(dataclasses.replace(made, holder="other", transitions=1))
    with pytest.raises(errors.ApiError) as raised:
        store.write(dataclasses.replace(made, renewed=NOON + datetime.timedelta(seconds=2)))
    assert raised.value.status == 409
    assert store.read() == taken


def test_a_released_lease_is_read_as_released(store: ports.LeaseStore) -> None:
    made = store.write(MINE)
    store.write(leader_election.released(made, NOON))
    found = store.read()
    assert found is not None
    assert found.holder == ""


def test_a_lease_is_stored_in_the_format_of_kubernetes(server: apiserver.ApiServer, api_lease: leases.ApiLease) -> None:
    api_lease.write(MINE)
    stored = server.registry.get(resources.LEASE, NAME, NAMESPACE)
    assert stored["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T12:00:00.123456Z",
        "renewTime": "2026-01-02T12:00:00.123456Z",
        "leaseTransitions": 0,
    }


def test_a_lease_without_holder_is_free(server: apiserver.ApiServer, api_lease: leases.ApiLease) -> None:
    server.registry.create(resources.LEASE, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {}})
    found = api_lease.read()
    assert found is not None
    assert leader_election.decide(leader_election.ObservedLease(lease=found, since=0.0), "me", 0.0) is leader_election.Step.TAKE


def test_an_unreachable_server_is_an_api_error_without_status(server: apiserver.ApiServer, api_lease: leases.ApiLease) -> None:
    server.stop()
    with pytest.raises(errors.ApiError) as raised:
        api_lease.read()
    assert raised.value.status == 0
