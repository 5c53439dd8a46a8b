"""The API server's switches do the real thing on the real socket, to whom they are meant for, until they are cleared."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from drakit.core import errors, records
from drakit.kube import api_objects, client
from drakit_cluster.api.apiserver import ApiServer
from drakit_cluster.api.registry import Registry
from drakit_cluster.faults import ApiFault, FaultKind
from fakes import waits

NODES = "/api/v1/nodes"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(Registry()) as running:
        yield running


@pytest.fixture
def driver(server: ApiServer, tmp_path: pathlib.Path) -> Iterator[client.Client]:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    connected = client.connect(tmp_path / "kubeconfig", seconds=waits.SECONDS)
    yield connected
    connected.close()


def create(driver: client.Client, name: str) -> None:
    driver.request("POST", NODES, body=records.freeze_record({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))


def names(driver: client.Client) -> list[str]:
    return [
        api_objects.metadata_text(node, "name")
        for node in api_objects.FORMAT.decode(api_objects.ObjectList, driver.request("GET", NODES)).items
    ]


@pytest.mark.parametrize("status", [401, 403, 409, 410, 422, 429, 500, 503])
def test_an_injected_refusal_has_its_status_and_stores_nothing(server: ApiServer, driver: client.Client, status: int) -> None:
    server.faults.add(ApiFault(kind=FaultKind.REFUSE, status=status, methods=frozenset({"POST"})))
    with pytest.raises(errors.ApiError, match="refused on purpose") as caught:
        create(driver, "a")
    assert caught.value.status == status
    assert names(driver) == []
    server.faults.clear()
    create(driver, "a")
    # The client reads its configuration again after a 401, and repeats the request once.
    assert (names(driver), server.faults.hits) == (["a"], 2 if status == 401 else 1)


def test_a_truncated_response_is_an_error_though_the_write_was_stored(server: ApiServer, driver: client.Client) -> None:
    fault = ApiFault(kind=FaultKind.CUT, methods=frozenset({"POST"}))
    server.faults.add(fault)
    with pytest.raises(errors.ApiError, match="no answer") as caught:
        create(driver, "a")
    assert caught.value.status == 0
    server.faults.clear(fault)
    assert names(driver) == ["a"]


def test_a_response_that_is_not_json_is_an_api_error(server: ApiServer, driver: client.Client) -> None:
    server.faults.add(ApiFault(kind=FaultKind.NONSENSE))
    with pytest.raises(errors.ApiError, match="not JSON"):
        names(driver)


def test_a_delay_ends_when_it_is_cleared(server: ApiServer, driver: client.Client) -> None:
    server.faults.add(ApiFault(kind=FaultKind.DELAY, seconds=3600.0))
    answered = threading.Event()

    def ask() -> None:
        names(driver)
        answered.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert not answered.wait(0.2)
    server.faults.clear()
    assert answered.wait(waits.SECONDS)
    asking.join()


def test_other_clients_are_served_during_a_fault(server: ApiServer, driver: client.Client) -> None:
    server.faults.add(ApiFault(kind=FaultKind.REFUSE, agent="kubectl"))
    assert names(driver) == []
    server.faults.add(ApiFault(kind=FaultKind.REFUSE, agent="drakit"))
    with pytest.raises(errors.ApiError):
        names(driver)


def test_a_dropped_connection_ends_a_watch_and_the_next_one_works(server: ApiServer, driver: client.Client) -> None:
    broken = threading.Event()
    watch = driver.stream(NODES, query={"watch": "true"}, timeout=60.0)

    def follow() -> None:
        try:
            list(watch)
        except errors.ApiError:
            pass
        finally:
            broken.set()

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    server.hang_up()
    assert broken.wait(waits.SECONDS)
    following.join()
    assert names(driver) == []
