"""Registration over real sockets, the test in the kubelet's place."""

import collections.abc
import datetime
import hashlib
import pathlib
import shutil
import socket
import tempfile
import threading

import grpc
import pytest

from drakit._proto import pluginregistration_v1_pb2 as wire
from drakit._proto import pluginregistration_v1_pb2_grpc as services
from drakit.core import errors
from drakit.kubelet import dra, registration, server, sockets
from drakit.serving import unix_sockets
from fakes import channels, waits

DRIVER = "gpu.drakit.dev"
ENDPOINT = pathlib.Path("/var/lib/kubelet/plugins/gpu.drakit.dev/dra.sock")
START = "0123abcd"


class Moments:
    """A clock on which the time is what the test says."""

    seconds = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(tz=datetime.UTC)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        raise AssertionError("a registrar has no thread that could wait")


@pytest.fixture
def folder() -> collections.abc.Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="reg"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def make(folder: pathlib.Path, clock: Moments | None = None) -> registration.Registrar:
    plugin = registration.Plugin(name=DRIVER, endpoint=ENDPOINT, services=(dra.SERVICE_V1,))
    return registration.Registrar(plugin, folder, clock or Moments())


@pytest.fixture
def registrar(folder: pathlib.Path) -> collections.abc.Iterator[registration.Registrar]:
    made = make(folder)
    made.start()
    yield made
    made.stop()


def get_info(path: pathlib.Path) -> wire.PluginInfo:
    with channels.insecure(f"unix:{path}") as channel:
        return services.RegistrationStub(channel).GetInfo(wire.InfoRequest(), timeout=1)


def notify(path: pathlib.Path, *, registered: bool, error: str = "") -> None:
    with channels.insecure(f"unix:{path}") as channel:
        services.RegistrationStub(channel).NotifyRegistrationStatus(
            wire.RegistrationStatus(plugin_registered=registered, error=error), timeout=1
        )


def leave_stale(path: pathlib.Path) -> pathlib.Path:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    return path


def test_registration_has_type_name_endpoint_and_services(registrar: registration.Registrar) -> None:
    result = get_info(registrar.socket)
    assert (result.type, result.name, result.endpoint) == ("DRAPlugin", DRIVER, str(ENDPOINT))
    assert list(result.supported_versions) == ["v1.DRAPlugin"]


def test_a_wait_for_registration_ends_with_its_success(registrar: registration.Registrar) -> None:
    assert not registrar.wait_registered(0)
    notify(registrar.socket, registered=True)
    assert registrar.wait_registered(5)
    assert registrar.status == registration.Status(state=registration.State.REGISTERED)


def test_a_refusal_is_stored_with_its_reason(registrar: registration.Registrar) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        notify(registrar.socket, registered=False, error="no such version")
    assert raised.value.code() is grpc.StatusCode.UNKNOWN
    assert "no such version" in raised.value.details()
    assert registrar.status == registration.Status(state=registration.State.REFUSED, error="no such version")
    assert not registrar.wait_registered(0)
    notify(registrar.socket, registered=True)
    assert registrar.wait_registered(5)


def test_every_start_uses_a_new_socket_name(folder: pathlib.Path) -> None:
    paths = {make(folder).socket for _ in range(20)}
    assert len(paths) == 20
    assert all(path.name.startswith(f"{DRIVER}-") and path.name.endswith("-reg.sock") for path in paths)


def test_stop_removes_its_socket_only(folder: pathlib.Path) -> None:
    foreign = leave_stale(folder / "csi.example.com-reg.sock")
    made = make(folder)
    made.start()
    made.stop()
    made.stop()
    assert list(folder.iterdir()) == [foreign]


def test_a_deleted_socket_is_recreated_under_a_new_name(registrar: registration.Registrar) -> None:
    notify(registrar.socket, registered=True)
    first = registrar.socket
    registrar.check()
    assert registrar.socket == first
    first.unlink()
    registrar.check()
    assert registrar.socket != first
    assert registrar.status.state is registration.State.UNKNOWN
    assert get_info(registrar.socket).name == DRIVER


def test_a_recreated_registry_folder_is_used_again(registrar: registration.Registrar, folder: pathlib.Path) -> None:
    shutil.rmtree(folder)
    registrar.check()
    assert not folder.exists(), "the kubelet makes its folder, the driver never"
    folder.mkdir()
    registrar.check()
    assert get_info(registrar.socket).name == DRIVER


def test_a_stopped_registrar_recreates_no_socket(folder: pathlib.Path) -> None:
    made = make(folder)
    made.start()
    made.stop()
    made.check()
    assert list(folder.iterdir()) == []


def test_only_dead_sockets_of_the_driver_are_removed(folder: pathlib.Path) -> None:
    dead = leave_stale(folder / f"{DRIVER}-{START}-reg.sock")
    foreign = leave_stale(folder / f"other.{DRIVER}-{START}-reg.sock")
    fixed = leave_stale(folder / f"{DRIVER}-reg.sock")
    living = make(folder)
    living.start()
    sockets.clear_registry(folder, DRIVER)
    assert set(folder.iterdir()) == {foreign, fixed, living.socket}
    assert not dead.exists()
    living.stop()


def test_dead_sockets_are_gone_before_the_new_one_is_there(folder: pathlib.Path) -> None:
    """A start that cannot make its socket has removed the dead ones already."""
    dead = leave_stale(folder / f"{DRIVER}-{START}-reg.sock")
    folder.chmod(0o777)
    with pytest.raises(errors.SettingsError, match="chmod o-w"):
        make(folder).start()
    assert not dead.exists()


def test_a_missing_registry_is_a_clear_error(folder: pathlib.Path) -> None:
    with pytest.raises(errors.SettingsError, match="check that the kubelet runs"):
        make(folder / "missing").start()


def test_a_driver_name_that_is_too_long_for_a_socket_gives_way_to_its_hash() -> None:
    registry = pathlib.Path("/var/lib/kubelet/plugins_registry")
    assert sockets.registration_path(registry, DRIVER, START).name == f"{DRIVER}-{START}-reg.sock"
    one, two = (sockets.registration_path(registry, "d" * 62 + last, START) for last in "ab")
    assert len(str(one)) <= unix_sockets.PATH_MAX_BYTES
    assert one.name.startswith("dra-")
    assert one != two


def test_dead_sockets_under_a_hashed_name_are_removed_too(folder: pathlib.Path) -> None:
    dead = leave_stale(folder / f"dra-{hashlib.sha256(DRIVER.encode()).hexdigest()[:8]}-{START}-reg.sock")
    sockets.clear_registry(folder, DRIVER)
    assert not dead.exists()


def test_registration_is_answered_while_every_thread_of_the_driver_is_busy(registrar: registration.Registrar, folder: pathlib.Path) -> None:
    release = threading.Event()

    def block(request: bytes, context: grpc.ServicerContext) -> bytes:
        release.wait(waits.SECONDS)
        return request

    blocked = grpc.unary_unary_rpc_method_handler(block)

    def register(grpc_server: grpc.Server) -> None:
        grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("busy.Busy", {"Wait": blocked}),))

    busy = server.SocketServer(folder / "dra.sock", register, threads=1)
    busy.start()
    with channels.insecure(f"unix:{busy.path}") as channel:
        calls = [channel.unary_unary("/busy.Busy/Wait").future(b"") for _ in range(4)]
        assert get_info(registrar.socket).name == DRIVER
        release.set()
        assert [call.result(10) for call in calls] == [b""] * 4
    busy.stop(grace=0)


def test_how_long_the_kubelet_has_not_known_the_driver_is_reported(folder: pathlib.Path) -> None:
    moments = Moments()
    made = make(folder, moments)
    made.start()
    moments.seconds = 20.0
    assert made.unregistered_for() == 20.0
    notify(made.socket, registered=True)
    assert made.unregistered_for() == 0.0
    moments.seconds = 50.0
    assert made.unregistered_for() == 0.0
    with pytest.raises(grpc.RpcError):
        notify(made.socket, registered=False, error="no")
    moments.seconds = 60.0
    assert made.unregistered_for() == 10.0
    notify(made.socket, registered=True)
    made.socket.unlink()
    assert made.unregistered_for() == 0.0
    made.check()
    moments.seconds = 65.0
    assert made.unregistered_for() == 5.0
    made.stop()


def test_a_driver_is_registered_through_its_other_living_instance(folder: pathlib.Path) -> None:
    moments = Moments()
    one, other = make(folder, moments), make(folder)
    one.start()
    other.start()
    moments.seconds = 100.0
    assert one.unregistered_for() == 0.0
    other.stop()
    moments.seconds = 130.0
    assert one.unregistered_for() == 30.0
    one.stop()


def test_sockets_of_instances_that_die_later_are_removed_too(folder: pathlib.Path) -> None:
    made = make(folder)
    made.start()
    dead = leave_stale(folder / f"{DRIVER}-{START}-reg.sock")
    for _ in range(registration.CHECKS_PER_SWEEP):
        made.check()
    assert not dead.exists()
    assert made.socket.exists()
    made.stop()


def test_the_pods_uid_is_in_the_sockets_name(folder: pathlib.Path) -> None:
    pod = "0f8fad5b-d9cb-469f-a165-70867728950e"
    plugin = registration.Plugin(name=DRIVER, endpoint=ENDPOINT, services=(dra.SERVICE_V1,), instance=pod)
    assert registration.Registrar(plugin, folder, Moments()).socket.name.startswith(f"{DRIVER}-{pod}-")
