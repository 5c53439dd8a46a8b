"""Claims that lack or garble fields: the answer and the log name the field, the claim's event is recorded, and no other claim notices."""

import copy
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drakit.core import claim as claims
from drakit.core import claim_status, context, errors, names
from drakit.kube import api_objects, claim_codec, events, status
from drakit.kube import claims as kube_claims
from drakit.node import device_status
from drakit.telemetry import logs
from fakes import author, claim_source, crash_node, examples, fake_transport, manual_clock

DRIVER, POOL, NODE = author.FakeDriver.name, crash_node.POOL, "node-1"
BAD = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000001"), namespace="default", name="bad")
GOOD = claims.ClaimRef(uid=names.ClaimUid("00000000-0000-4000-8000-000000000002"), namespace="default", name="good")
SHARE = "00000000-0000-4000-8000-0000000000aa"
HOT = context.Event(reason="Throttled", message="the device is hot")


def stored(ref: claims.ClaimRef, device: str) -> dict[str, Any]:
    """A claim with a whole chip and a share of the pipe, as the API server has it, with statuses of this driver and another."""
    share = {"request": "p", "driver": DRIVER, "pool": POOL, "device": "pipe", "shareID": SHARE, "consumedCapacity": {"bandwidth": "1G"}}
    if ref is GOOD:
        share["shareID"] = "00000000-0000-4000-8000-0000000000bb"
    tuning = {"apiVersion": "fake.example.com/v1", "kind": "Tuning", "speed": 2}
    config = {"source": "FromClaim", "requests": ["c"], "opaque": {"driver": DRIVER, "parameters": tuning}}
    condition = {"type": "Ready", "status": "False", "reason": "DeviceGone", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    entry = {"driver": DRIVER, "pool": POOL, "device": device, "conditions": [condition], "data": {"speed": 2}}
    key = json.dumps({"device": device, "driver": DRIVER, "pool": POOL})
    fields: dict[str, object] = {"f:status": {"f:devices": {f"k:{key}": {"f:conditions": {'k:{"type":"Ready"}': {}}, "f:data": {}}}}}
    owner = {"manager": f"{DRIVER}/{NODE}", "operation": "Apply", "subresource": "status", "fieldsV1": fields}
    metadata = {
        "name": ref.name,
        "namespace": ref.namespace,
        "uid": str(ref.uid),
        "resourceVersion": "7",
        "generation": 1,
        "annotations": {claim_codec.POD_CLAIM_NAME: "devices"},
        "managedFields": [owner],
    }
    results = [{"request": "c", "driver": DRIVER, "pool": POOL, "device": device, "bindingConditions": ["ok"]}, share]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": {"results": results, "config": [config]}},
            "devices": [entry, {"driver": "other.example.com", "pool": "p", "device": "d"}],
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": "uid-of-pod"}],
        },
    }


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a JSON value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*path, key)
        yield from places(member, (*path, key))


class Absent:
    """The mutation that takes a member away."""


ABSENT = Absent()
JUNK: tuple[object, ...] = (
    *(None, True, False, 0, 7, -1, 1.5, 1e308, float("nan"), 10**30, "", "x", "7", "a/b", "../../etc", "\ud800", "x" * 100_000, "\x00\n"),
    *([], {}, [7], [None], [[]], {"a": 7}, {"type": ["x"]}, [{"type": ["x"]}], [{"type": {}}], {"": None}, ABSENT),
)
PLACES = tuple(places(stored(BAD, "chip-0")))


def has(owner: object, key: str | int) -> bool:
    """Whether an earlier change has left this member or element."""
    return key in owner if isinstance(owner, dict) else isinstance(owner, list) and isinstance(key, int) and key < len(owner)


def changed(claim: dict[str, Any], place: tuple[str | int, ...], junk: object) -> None:
    """Put junk at a place, if it is still there."""
    target: Any = claim
    for key in place[:-1]:
        if not has(target, key):
            return
        target = target[key]
    if not has(target, place[-1]):
        return
    if isinstance(junk, Absent):
        target.pop(place[-1])
    else:
        target[place[-1]] = copy.deepcopy(junk)


class Server:
    """An API server with two claims, over a transport; ``events`` are the objects that its events are about."""

    def __init__(self, bad: Any) -> None:
        self.claims: dict[str, Any] = {kube_claims.path(BAD): bad, kube_claims.path(GOOD): stored(GOOD, "chip-1")}
        self.events: list[tuple[str, str]] = []
        self.transport = fake_transport.FakeTransport(self.answer)

    def answer(self, request: fake_transport.Request) -> fake_transport.Answer:
        if request.method == "GET":
            found: dict[str, Any] = copy.deepcopy(self.claims[request.path])
            return found
        if request.path.endswith("/events"):
            assert request.body is not None
            subject: Any = request.body["involvedObject"]
            assert request.path == "/api/v1/namespaces/default/events"
            self.events.append((subject["kind"], subject["name"]))
        return {}


class ApiClaimSource(claim_source.FakeClaimSource):
    """The claims of the server."""

    def __init__(self, api: kube_claims.ApiClaims) -> None:
        super().__init__()
        self._api = api

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        return self._api.fetch(ref)


class World:
    """A driver on a node, with the reporter and the adapters of a real one."""

    def __init__(self, bad: Any) -> None:
        self.server, clock = Server(bad), manual_clock.ManualClock()
        statuses = status.ApiStatuses(self.server.transport, status.Writer(driver=DRIVER, node=NODE, pool=POOL), clock)
        recorder = events.ApiEvents(self.server.transport, component=DRIVER, host=NODE)
        self.reporter = device_status.StatusReporter(statuses, recorder, clock, pool=POOL, conditions=device_status.Conditions.ALWAYS)
        node = crash_node.CrashNode()
        node.claims = ApiClaimSource(kube_claims.ApiClaims(self.server.transport, seen=statuses.seen))
        self.caller, self.engine = node.caller, node.boot()
        self.engine.reporter = self.reporter

    def prepare(self) -> tuple[str, str]:
        """Prepare both claims in one call, and report; return the errors of the bad one and of the good one."""
        outcomes = self.engine.prepare([BAD, GOOD], self.caller)
        self.reporter.event(BAD, HOT)
        stop = threading.Event()
        stop.set()
        for _, loop in self.reporter.loops():
            loop(stop)
        return outcomes[BAD.uid].error, outcomes[GOOD.uid].error


def check(bad: Any) -> str:
    """Prepare a bad claim beside a good one, and return its error."""
    written = io.StringIO()
    logs.setup(stream=written)
    try:
        world = World(bad)
        error, error_of_good = world.prepare()
    finally:
        logs.setup()
    text = written.getvalue()
    assert error_of_good == ""
    assert "internal error" not in error
    assert "Traceback" not in text
    assert all("exception" not in json.loads(line) for line in text.splitlines())
    is_replaced = isinstance(bad, dict) and api_objects.metadata_text(bad, "uid") not in ("", BAD.uid)
    assert is_replaced or world.server.events
    return error


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_a_malformed_claim_is_an_error_and_an_event_and_never_a_traceback(mutations: list[tuple[tuple[str | int, ...], object]]) -> None:
    bad = stored(BAD, "chip-0")
    for place, junk in mutations:
        changed(bad, place, junk)
    check(bad)


@pytest.mark.parametrize("junk", [*JUNK, "x" * 3_900_000], ids=range(len(JUNK) + 1))
def test_each_field_of_a_claim_may_hold_anything(junk: object) -> None:
    for place in examples.sample(ascii(junk)[:20], PLACES):
        if isinstance(junk, str) and len(junk) > 1000 and place[0] != "status":
            continue
        bad = stored(BAD, "chip-0")
        changed(bad, place, junk)
        check(bad)


@pytest.mark.parametrize("claim", [None, 7, [], "x", {}])
def test_a_claim_that_is_not_an_object_is_an_error_of_that_claim_only(claim: object) -> None:
    assert check(claim)


@pytest.mark.parametrize(
    "place, junk, field",
    [
        (("metadata",), None, "metadata.uid: is required"),
        (("metadata",), [], "metadata: must be an object, not a list"),
        (("metadata", "uid"), 7, "metadata.uid: must be text, not 7"),
        (("status",), "x", 'status: must be an object, not "x"'),
        (("status", "allocation"), 7, "status.allocation: must be an object, not 7"),
        (("status", "allocation", "devices", "results"), {}, "status.allocation.devices.results: must be a list, not an object"),
        (
            ("status", "allocation", "devices", "results", 1, "shareID"),
            7,
            "status.allocation.devices.results[1].shareID: must be text, not 7",
        ),
        (("status", "allocation", "devices", "config", 0), None, "status.allocation.devices.config[0]: must be an object, not null"),
    ],
)
def test_the_error_of_a_malformed_claim_names_the_field(place: tuple[str | int, ...], junk: object, field: str) -> None:
    bad = stored(BAD, "chip-0")
    changed(bad, place, junk)
    assert check(bad) == field


@pytest.mark.parametrize(
    "reserved, expected",
    [
        (7, ("ResourceClaim", "bad")),
        ([7, {"resource": "pods", "name": "../x", "uid": "u"}], ("ResourceClaim", "bad")),
        ([{"resource": "pods"}, {"resource": "pods", "name": "pod", "uid": "u"}], ("Pod", "pod")),
    ],
)
def test_an_event_reaches_the_readable_users_of_a_claim_or_the_claim(reserved: object, expected: tuple[str, str]) -> None:
    server = Server(stored(BAD, "chip-0") | {"metadata": None, "status": {"reservedFor": reserved}})
    recorder = events.ApiEvents(server.transport, component=DRIVER, host=NODE)
    recorder.record(BAD, HOT, 1, manual_clock.START)
    assert server.events == [expected]


def test_a_malformed_condition_of_the_driver_is_an_error_that_names_it() -> None:
    bad = stored(BAD, "chip-0")
    changed(bad, ("status", "devices", 0, "conditions", 0, "type"), ["x"])
    statuses = status.ApiStatuses(Server(bad).transport, status.Writer(driver=DRIVER, node=NODE, pool=POOL), manual_clock.ManualClock())
    ready = claim_status.Condition(type=claim_status.READY, status=True, reason="Prepared", message="")
    with pytest.raises(errors.ConfigError, match=r"status.devices.conditions.type: must be text"):
        statuses.write(BAD, claim_status.StatusChange(ready=ready))
