"""Following a kind through lost history and a server that goes away."""

import contextlib
import queue
import threading
from collections.abc import Iterator

import pytest

from drakit_cluster.api.apiserver import ApiServer
from drakit_cluster.api.registry import Registry
from drakit_cluster.client.client import ApiClient
from drakit_cluster.client.informer import Change, Informer, Loop, Selection
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import NODE
from fakes import waits

Seen = list[tuple[str, str]]


class Inbox:
    """Collects changes as (type, name)."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def put(self, change: Change) -> None:
        self._queue.put((change.type.value, json_types.text(change.object, "metadata", "name")))

    def take(self, count: int) -> Seen:
        """Return exactly so many changes; more of them at that moment are an error."""
        found = [self._queue.get(timeout=waits.SECONDS) for _ in range(count)]
        assert self._queue.empty()
        return found


def _node(name: str) -> json_types.Object:
    return {"metadata": {"name": name}}


def _follow(api: Registry | ApiClient, inbox: Inbox) -> Loop:
    loop = Loop(api, "test", [Selection(resource=NODE)], inbox.put, lambda: None)
    loop.start()
    return loop


@contextlib.contextmanager
def _client(registry: Registry) -> Iterator[tuple[ApiServer, ApiClient]]:
    with (
        ApiServer(registry) as server,
        ApiClient(server=server.url, ca_pem=server.ca_pem, token=server.issue_token("t", ("system:masters",))) as client,
    ):
        yield server, client


@pytest.fixture(params=["registry", "https"])
def loop(request: pytest.FixtureRequest, registry: Registry, inbox: Inbox) -> Iterator[Loop]:
    """What follows the registry in this process, and over the wire."""
    with contextlib.ExitStack() as stack:
        api = registry if request.param == "registry" else stack.enter_context(_client(registry))[1]
        following = _follow(api, inbox)
        stack.callback(following.stop)
        yield following


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.create(NODE, _node("a"))
    return made


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.mark.usefixtures("loop")
def test_existing_and_new_objects_are_sent_in_order(registry: Registry, inbox: Inbox) -> None:
    assert inbox.take(1) == [("ADDED", "a")]
    registry.create(NODE, _node("b"))
    registry.delete(NODE, "a")
    assert inbox.take(2) == [("ADDED", "b"), ("DELETED", "a")]


def test_after_the_end_of_its_watches_a_loop_gets_the_differences(loop: Loop, registry: Registry, inbox: Inbox) -> None:
    assert inbox.take(1) == [("ADDED", "a")]
    with registry.store.lock:
        registry.store.end_watches()
        registry.delete(NODE, "a")
        registry.create(NODE, _node("a"))
        registry.create(NODE, _node("b"))
        registry.store.forget_history()
    assert inbox.take(3) == [("DELETED", "a"), ("ADDED", "a"), ("ADDED", "b")]
    registry.delete(NODE, "b")
    assert inbox.take(1) == [("DELETED", "b")]
    loop.stop()
    registry.delete(NODE, "a")
    assert inbox.take(0) == []


def test_changes_during_an_outage_that_lost_history_arrive_as_differences(registry: Registry, inbox: Inbox) -> None:
    for name in ("b", "c"):
        registry.create(NODE, _node(name))
    with _client(registry) as (server, client):
        loop = _follow(client, inbox)
        assert inbox.take(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        server.stop()
        registry.delete(NODE, "a")
        registry.delete(NODE, "b")
        registry.create(NODE, _node("b"))
        registry.update(NODE, registry.get(NODE, "c") | {"spec": {"unschedulable": True}})
        registry.create(NODE, _node("d"))
        registry.store.forget_history()
        server.start()
        assert inbox.take(5) == [("DELETED", "a"), ("DELETED", "b"), ("ADDED", "b"), ("MODIFIED", "c"), ("ADDED", "d")]
        loop.stop()


def test_an_informer_stops_while_it_waits(registry: Registry) -> None:
    with _client(registry) as (_server, client):
        sent: queue.SimpleQueue[object] = queue.SimpleQueue()
        informer = Informer(client, Selection(resource=NODE), sent.put)
        informer.start()
        assert sent.get(timeout=waits.SECONDS)
        informer.stop()
        assert not informer._thread.is_alive()


def test_a_loop_acts_once_for_a_burst_and_only_after_the_first_list() -> None:
    registry = Registry()
    for index in range(50):
        registry.create(NODE, _node(f"n{index}"))
    known: set[str] = set()
    sizes: list[int] = []
    acted = threading.Event()

    def act() -> None:
        sizes.append(len(known))
        acted.set()

    def observe(change: Change) -> None:
        known.add(json_types.text(change.object, "metadata", "name"))

    loop = Loop(registry, "test", [Selection(resource=NODE)], observe, act)
    loop.start()
    assert acted.wait(waits.SECONDS)
    loop.stop()
    assert sizes[0] == 50


def test_a_loop_continues_after_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []
    second = threading.Event()

    def act() -> float | None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        second.set()
        return None

    loop = Loop(Registry(), "test", [Selection(resource=NODE)], lambda _change: None, act)
    loop.start()
    assert second.wait(waits.SECONDS)
    loop.stop()
    assert "a bug" in capsys.readouterr().err


def test_a_loop_reports_the_versions_it_has_observed() -> None:
    registry, go, observed = Registry(), threading.Event(), threading.Event()

    def observe(_change: Change) -> None:
        assert go.wait(waits.SECONDS)
        observed.set()

    loop = Loop(registry, "test", [Selection(resource=NODE)], observe, lambda: None)
    node = registry.create(NODE, _node("a"))
    loop.start()
    assert not loop.has_observed(NODE, node)
    go.set()
    assert observed.wait(waits.SECONDS)
    loop.stop()
    assert loop.has_observed(NODE, node)
    later = registry.create(NODE, _node("b"))
    assert not loop.has_observed(NODE, later)
