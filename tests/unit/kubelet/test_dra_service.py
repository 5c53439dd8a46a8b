"""The DRA service over a real socket, with a scripted engine behind it."""

import collections.abc
import io
import json
import pathlib
import shutil
import tempfile
import threading
from typing import Any

import grpc
import pytest

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.kubelet import codec, dra, server
from drakit.telemetry import logs
from fakes import channels, waits

UID = "11111111-2222-3333-4444-555555555555"
OTHER = "66666666-7777-8888-9999-000000000000"
SHARE = names.ShareId("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")

Prepare = collections.abc.Callable[
    [collections.abc.Sequence[claims.ClaimRef], ports.Caller], collections.abc.Mapping[names.ClaimUid, claims.Outcome]
]


class ScriptedEngine:
    """Answers by the function given; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[claims.ClaimRef] = []
        self.on_prepare: Prepare = lambda refs, caller: {ref.uid: claims.Outcome() for ref in refs}
        self.errors: dict[str, str] = {}

    def prepare(
        self, refs: collections.abc.Sequence[claims.ClaimRef], caller: ports.Caller
    ) -> collections.abc.Mapping[names.ClaimUid, claims.Outcome]:
        self.asked += refs
        return self.on_prepare(refs, caller)

    def unprepare(
        self, refs: collections.abc.Sequence[claims.ClaimRef], caller: ports.Caller
    ) -> collections.abc.Mapping[names.ClaimUid, str]:
        self.asked += refs
        return {ref.uid: self.errors.get(ref.uid, "") for ref in refs}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def stub(engine: ScriptedEngine) -> collections.abc.Iterator[services.DRAPluginStub]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dra"))
    served = server.SocketServer(folder / "dra.sock", dra.DraService(engine).register, threads=4)
    served.start()
    with channels.insecure(f"unix:{served.path}") as channel:
        yield services.DRAPluginStub(channel)
    served.stop(grace=0)
    shutil.rmtree(folder)


def claim(uid: str = UID, name: str = "c", namespace: str = "ns") -> wire.Claim:
    return wire.Claim(uid=uid, name=name, namespace=namespace)


def prepare(stub: services.DRAPluginStub, *claims: wire.Claim) -> dict[str, wire.NodePrepareResourceResponse]:
    return dict(stub.NodePrepareResources(wire.NodePrepareResourcesRequest(claims=claims), timeout=waits.SECONDS).claims)


def unprepare(stub: services.DRAPluginStub, *claims: wire.Claim) -> dict[str, str]:
    answer = stub.NodeUnprepareResources(wire.NodeUnprepareResourcesRequest(claims=claims), timeout=waits.SECONDS)
    return {uid: entry.error for uid, entry in answer.claims.items()}


def test_a_prepared_claim_is_answered_with_its_devices(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    shared = claims.PreparedDevice(request="nic/fast", pool="node-1", device="eth1", cdi_ids=("v/c=a", "v/c=b"), share_id=SHARE)
    whole = claims.PreparedDevice(request="gpu", pool="node-1", device="gpu-0")
    engine.on_prepare = lambda refs, caller: {ref.uid: claims.Outcome(devices=(shared, whole)) for ref in refs}
    first, second = prepare(stub, claim())[UID].devices
    assert (list(first.request_names), first.pool_name, first.device_name) == (["nic"], "node-1", "eth1")
    assert list(first.cdi_device_ids) == ["v/c=a", "v/c=b"]
    assert first.share_id == SHARE
    assert not second.HasField("share_id")
    assert not second.cdi_device_ids
    assert engine.asked == [claims.ClaimRef(uid=names.ClaimUid(UID), namespace="ns", name="c")]


def test_every_requested_uid_is_answered_and_no_other(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    engine.on_prepare = lambda refs, caller: {names.ClaimUid("somebody-else"): claims.Outcome()}
    answer = prepare(stub, claim(), claim(OTHER, "d"))
    assert {uid: entry.error for uid, entry in answer.items()} == {UID: codec.NO_ANSWER, OTHER: codec.NO_ANSWER}


def test_a_claim_with_no_device_and_no_error_still_has_its_entry(stub: services.DRAPluginStub) -> None:
    answer = prepare(stub, claim())
    assert (answer[UID].error, len(answer[UID].devices)) == ("", 0)


def test_an_empty_request_is_answered_without_the_engine(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    assert prepare(stub) == {}
    assert unprepare(stub) == {}
    assert engine.asked == []


def test_a_claim_listed_twice_is_prepared_once(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    assert list(prepare(stub, claim(), claim())) == [UID]
    assert len(engine.asked) == 1


@pytest.mark.parametrize(
    "bad, error",
    [
        (claim(uid="not-a-uuid"), "uid: 'not-a-uuid' is not a lower-case UUID"),
        (claim(uid=UID.replace("1", "A")), "is not a lower-case UUID"),
        (claim(uid=""), "uid: '' is not"),
        (claim(uid="../../etc/passwd"), "uid: '../../etc/passwd' is not"),
        (claim(OTHER, name=""), "name: '' is not a DNS subdomain"),
        (claim(OTHER, name="a/b"), "name: 'a/b' is not a DNS subdomain"),
        (claim(OTHER, namespace=""), "namespace: '' is not a DNS label"),
        (claim(OTHER, namespace=".."), "namespace: '..' is not a DNS label"),
    ],
)
def test_a_malformed_claim_fails_alone(stub: services.DRAPluginStub, engine: ScriptedEngine, bad: wire.Claim, error: str) -> None:
    answer = prepare(stub, bad, claim())
    assert error in answer[bad.uid].error
    assert answer[UID].error == ""
    assert error in unprepare(stub, bad, claim())[bad.uid]
    assert [ref.uid for ref in engine.asked] == [UID, UID]


def test_a_uid_with_a_valid_and_a_malformed_entry_is_refused(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    assert "name" in prepare(stub, claim(), claim(name="a/b"))[UID].error
    assert engine.asked == []


def test_an_exception_of_the_engine_fails_its_claims_and_not_the_service(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    def fail(refs: object, caller: ports.Caller) -> dict[names.ClaimUid, claims.Outcome]:
        raise errors.JournalError("disk full")

    def crash(refs: object, caller: ports.Caller) -> dict[names.ClaimUid, claims.Outcome]:
        raise ZeroDivisionError

    engine.on_prepare = fail
    assert prepare(stub, claim())[UID].error == "disk full"
    engine.on_prepare = crash
    assert prepare(stub, claim())[UID].error == "internal error (ZeroDivisionError); see the driver's log"
    assert unprepare(stub, claim()) == {UID: ""}


def test_unprepare_answers_each_claim_with_its_own_error(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    engine.errors = {OTHER: "still busy"}
    assert unprepare(stub, claim(), claim(OTHER, "d")) == {UID: "", OTHER: "still busy"}


@pytest.mark.parametrize("error", ["x" * 5000, "\udcff broken text"])
def test_an_error_always_fits_the_wire(stub: services.DRAPluginStub, engine: ScriptedEngine, error: str) -> None:
    engine.on_prepare = lambda refs, caller: {ref.uid: claims.Outcome(error=error) for ref in refs}
    result = prepare(stub, claim())[UID].error
    assert 0 < len(result) <= codec.ERROR_MAX


def test_the_engine_detects_that_its_caller_cancelled(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    waiting: list[bool] = []
    entered, cancelled, done = threading.Event(), threading.Event(), threading.Event()

    def slow(refs: object, caller: ports.Caller) -> dict[names.ClaimUid, claims.Outcome]:
        waiting.append(caller.is_waiting())
        entered.set()
        cancelled.wait(waits.SECONDS)
        waiting.append(caller.is_waiting())
        done.set()
        return {}

    engine.on_prepare = slow
    pending = threading.Thread(target=lambda: expect(grpc.StatusCode.DEADLINE_EXCEEDED, stub, 0.3), daemon=True)
    pending.start()
    assert entered.wait(waits.SECONDS)
    pending.join(waits.SECONDS)
    cancelled.set()
    assert done.wait(waits.SECONDS)
    assert waiting == [True, False]
    engine.on_prepare = lambda refs, caller: {ref.uid: claims.Outcome() for ref in refs}
    assert prepare(stub, claim())[UID].error == ""


def test_the_engine_detects_a_caller_that_disconnects_early(stub: services.DRAPluginStub, engine: ScriptedEngine) -> None:
    waiting: list[bool] = []
    entered, gone, done = threading.Event(), threading.Event(), threading.Event()

    def slow(refs: object, caller: ports.Caller) -> dict[names.ClaimUid, claims.Outcome]:
        waiting.append(caller.is_waiting())
        entered.set()
        for _ in range(1000):
            if not caller.is_waiting() or gone.wait(0.01):
                break
        waiting.append(caller.is_waiting())
        done.set()
        return {}

    engine.on_prepare = slow
    method: Any = stub.NodePrepareResources  # The generated types know of calls that are waited for only.
    pending = method.future(wire.NodePrepareResourcesRequest(claims=[claim()]), timeout=waits.SECONDS)
    assert entered.wait(waits.SECONDS)
    assert pending.cancel()
    assert done.wait(waits.SECONDS)
    assert waiting == [True, False]


def expect(code: grpc.StatusCode, stub: services.DRAPluginStub, timeout: float) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        stub.NodePrepareResources(wire.NodePrepareResourcesRequest(claims=[claim()]), timeout=timeout)
    assert raised.value.code() is code


def test_each_call_has_a_number_in_the_log(stub: services.DRAPluginStub) -> None:
    stream = io.StringIO()
    logs.setup(stream=stream)
    try:
        prepare(stub, claim())
        unprepare(stub, claim())
    finally:
        logs.setup(level=logs.Level.WARNING, style=logs.Style.CONSOLE)
    answered = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "claim answered"]
    assert [line["method"] for line in answered] == ["NodePrepareResources", "NodeUnprepareResources"]
    assert len({line["request_id"] for line in answered}) == 2
