"""All services of a driver on one socket: both versions of DRA, both of health, and what no version knows."""

import pathlib
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence

import grpc
import pytest

from drakit._proto import dra_health_v1_pb2 as health_wire
from drakit._proto import dra_health_v1_pb2_grpc as health_services
from drakit._proto import dra_health_v1alpha1_pb2 as alpha_wire
from drakit._proto import dra_health_v1alpha1_pb2_grpc as alpha_services
from drakit._proto import dra_v1_pb2 as v1
from drakit._proto import dra_v1_pb2_grpc as v1_services
from drakit.core import claim as claims
from drakit.core import context, names, ports
from drakit.kubelet import dra, health, health_client, health_service, server
from drakit.node import node, timing
from fakes import channels, waits

UID = "11111111-2222-3333-4444-555555555555"
SHARE = names.ShareId("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
SHARED = claims.PreparedDevice(request="nic", pool="node-1", device="eth1", cdi_ids=("v/c=a",), share_id=SHARE)


class Engine:
    """Prepares one share of a device; waits where the test says so."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, claims.Outcome]:
        self.entered.release()
        self.go.wait(waits.SECONDS)
        return {ref.uid: claims.Outcome(devices=(SHARED,)) for ref in refs}

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        return {ref.uid: "busy" for ref in refs}


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def board() -> health.HealthBoard:
    made = health.HealthBoard("node-1", timing.SystemClock())
    made.discovered(dict.fromkeys(["eth1"], "node-1"))
    return made


@pytest.fixture
def served(engine: Engine, board: health.HealthBoard) -> Iterator[server.SocketServer]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dra"))
    started = server.SocketServer(folder / "dra.sock", dra.register(engine, board), threads=12)
    started.start()
    yield started
    board.close()
    started.stop(grace=0)
    shutil.rmtree(folder)


@pytest.fixture
def channel(served: server.SocketServer) -> Iterator[grpc.Channel]:
    with channels.insecure(f"unix:{served.path}") as made:
        yield made


def test_advertised_services_are_served_and_sorted_newest_first() -> None:
    assert dra.ADVERTISED == ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_health_is_sent_completely_at_once_and_at_every_change(channel: grpc.Channel, board: health.HealthBoard, version: str) -> None:
    stream = open_stream(channel, version)
    assert next(stream) == [("node-1", "eth1", 1, 30, "")]
    board.report("eth1", context.Health.UNHEALTHY, "no link")
    assert next(stream) == [("node-1", "eth1", 2, 30, "no link")]


def test_a_command_reads_the_health_of_a_driver_that_runs(served: server.SocketServer, board: health.HealthBoard) -> None:
    board.report("eth1", context.Health.UNHEALTHY, "no link")
    read = health_client.read(served.path.parent)
    assert {device: (entry.health, entry.message) for device, entry in read.items()} == {"eth1": (context.Health.UNHEALTHY, "no link")}


def test_a_command_reads_the_health_of_more_devices_than_one_message_has(served: server.SocketServer, board: health.HealthBoard) -> None:
    names = [f"eth{number}" for number in range(2 * health_service.DEVICES_PER_MESSAGE + 1)]
    board.discovered(dict.fromkeys(names, "node-1"))
    assert health_client.read(served.path.parent).keys() == set(names)


def test_no_health_is_known_where_no_driver_answers(served: server.SocketServer, tmp_path: pathlib.Path) -> None:
    assert health_client.read(tmp_path / "missing") == {}
    served.stop(grace=0)
    (served.path.parent / "dra.sock").touch()
    assert health_client.read(served.path.parent) == {}


def open_stream(channel: grpc.Channel, version: str) -> Iterator[list[tuple[str, str, int, int, str]]]:
    call = (
        health_services.DRAResourceHealthStub(channel).NodeWatchResources(health_wire.NodeWatchResourcesRequest(), timeout=waits.SECONDS)
        if version == "v1"
        else alpha_services.DRAResourceHealthStub(channel).NodeWatchResources(alpha_wire.NodeWatchResourcesRequest(), timeout=waits.SECONDS)
    )
    for answer in call:
        yield [
            (one.device.pool_name, one.device.device_name, one.health, one.health_check_timeout_seconds, one.message)
            for one in answer.devices
        ]


def test_several_watchers_get_the_same_health_until_shutdown(channel: grpc.Channel, board: health.HealthBoard) -> None:
    streams = [open_stream(channel, version) for version in ("v1", "v1alpha1", "v1")]
    assert all(next(stream) == [("node-1", "eth1", 1, 30, "")] for stream in streams)
    board.close()
    assert [list(stream) for stream in streams] == [[], [], []]


def test_a_disconnected_watcher_frees_its_place(served: server.SocketServer, board: health.HealthBoard) -> None:
    with channels.insecure(f"unix:{served.path}") as leaving:
        streams = [open_stream(leaving, "v1") for _ in range(health.WATCHERS_MAX)]
        assert all(next(stream) for stream in streams)
        with pytest.raises(grpc.RpcError) as refused:
            next(open_stream(leaving, "v1"))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with channels.insecure(f"unix:{served.path}") as again:
        assert waits.eventually(lambda: can_watch(again))


def can_watch(channel: grpc.Channel) -> bool:
    try:
        return bool(next(open_stream(channel, "v1")))
    except grpc.RpcError:
        return False


def test_open_health_streams_do_not_block_claims(channel: grpc.Channel) -> None:
    streams = [open_stream(channel, "v1") for _ in range(health.WATCHERS_MAX)]
    assert all(next(stream) for stream in streams)
    request = v1.NodePrepareResourcesRequest(claims=[v1.Claim(uid=UID, name="c", namespace="ns")])
    assert v1_services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID].devices[0].share_id == SHARE


def test_with_every_stream_open_claims_still_have_threads() -> None:
    assert node.SERVICE_THREADS >= 2 * health.WATCHERS_MAX, "claims are prepared beside the streams of kubelets and whoever else watches"


def test_a_long_list_is_cut_into_messages_that_the_kubelet_takes() -> None:
    longest = "x" * health.MESSAGE_MAX_BYTES
    snapshot = [
        health.DeviceHealth(
            device=f"{'d' * 58}{number:05}", pool="p" * 253, health=context.Health.UNHEALTHY, message=longest, updated_at=2**40
        )
        for number in range(2 * health_service.DEVICES_PER_MESSAGE + 1)
    ]
    answers = list(health_service.encode(snapshot))
    assert [len(answer.devices) for answer in answers] == [health_service.DEVICES_PER_MESSAGE, health_service.DEVICES_PER_MESSAGE, 1]
    assert max(answer.ByteSize() for answer in answers) < 4 << 20
    assert [len(answer.devices) for answer in health_service.encode([])] == [0]


@pytest.mark.parametrize(
    "method, body, code",
    [
        ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeGuessResources", b"", grpc.StatusCode.UNIMPLEMENTED),
        ("/k8s.io.kubelet.pkg.apis.dra.v9.DRAPlugin/NodePrepareResources", b"", grpc.StatusCode.UNIMPLEMENTED),
        ("/", b"", grpc.StatusCode.UNIMPLEMENTED),
        ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", b"\xff\xff\xff", grpc.StatusCode.INTERNAL),
        ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", b"\0" * (5 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_a_garbage_message_is_refused_and_the_service_continues(
    channel: grpc.Channel, method: str, body: bytes, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(method)(body, timeout=waits.SECONDS)
    assert refused.value.code() is code
    request = v1.NodePrepareResourcesRequest(claims=[v1.Claim(uid=UID, name="c", namespace="ns")])
    assert v1_services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID].error == ""


def test_a_call_in_flight_finishes_when_its_socket_is_recreated(served: server.SocketServer, engine: Engine) -> None:
    request = v1.NodePrepareResourcesRequest(claims=[v1.Claim(uid=UID, name="c", namespace="ns")])
    engine.go.clear()
    with channels.insecure(f"unix:{served.path}") as channel:
        pending = v1_services.DRAPluginStub(channel).NodePrepareResources.future(request, timeout=waits.SECONDS)  # type: ignore[attr-defined] # gRPC adds it
        assert engine.entered.acquire(timeout=waits.SECONDS)
        served.path.unlink()
        assert not served.is_at_path()
        served.renew(grace=30)
        assert served.is_at_path()
        engine.go.set()
        assert pending.result().claims[UID].error == ""
    with channels.insecure(f"unix:{served.path}") as channel:
        assert v1_services.DRAPluginStub(channel).NodePrepareResources(request, timeout=waits.SECONDS).claims[UID].error == ""


def test_stopping_waits_for_calls_in_flight_also_on_a_socket_that_was_deleted(served: server.SocketServer, engine: Engine) -> None:
    request = v1.NodePrepareResourcesRequest(claims=[v1.Claim(uid=UID, name="c", namespace="ns")])
    engine.go.clear()
    with channels.insecure(f"unix:{served.path}") as channel:
        pending = v1_services.DRAPluginStub(channel).NodePrepareResources.future(request, timeout=waits.SECONDS)  # type: ignore[attr-defined] # gRPC adds it
        assert engine.entered.acquire(timeout=waits.SECONDS)
        served.path.unlink()
        served.renew(grace=30)
        stopping = threading.Thread(target=served.stop, kwargs={"grace": 30})
        stopping.start()
        assert waits.eventually(lambda: not served.path.exists())
        engine.go.set()
        stopping.join(waits.SECONDS)
        assert pending.result().claims[UID].error == ""
