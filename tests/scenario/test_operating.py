"""``drakit run`` tells operators how it is: ready only once the kubelet knows it and its devices are published, metrics of what it did."""

import contextlib
import pathlib
import signal
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from drakit import testing
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import resources
from fakes import driver_process, forked_cli, waits


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=waits.SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.fixture
def cluster() -> Iterator[clusters.LocalCluster]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as made:
        yield made


@pytest.fixture
def port() -> int:
    return free_port()


def command(cluster: clusters.LocalCluster, port: int) -> list[str]:
    folder = cluster.node("node-1").folder.root
    result = driver_process.drakit("run", "--mock", "dgx-a100-40gb-2gpu", "--node", "node-1", "--folder", str(folder))
    result += ["--family", "gpu", "--kubeconfig", str(cluster.driver_kubeconfig("node-1"))]
    return [*result, "--set", f"serve.address=127.0.0.1:{port}"]


@pytest.fixture
def driver(cluster: clusters.LocalCluster, port: int, commands: forked_cli.Commands) -> Iterator[driver_process.Process]:
    with serving(cluster, port, commands=commands) as started:
        yield started


def serving(
    cluster: clusters.LocalCluster, port: int, *words: str, commands: forked_cli.Commands | None = None
) -> contextlib.AbstractContextManager[driver_process.Process]:
    """A driver that runs."""
    log = cluster.node("node-1").folder.root / "log"
    return driver_process.running([*command(cluster, port), *words], log, commands=commands)


def test_the_driver_is_ready_once_registered_and_published_with_metrics(
    cluster: clusters.LocalCluster, port: int, driver: driver_process.Process
) -> None:
    assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)
    assert cluster.api.list(resources.SLICE).items
    assert page(port, "/healthz") == (200, "ok\n")
    for item in (
        testing.device_class("gpu", driver="gpu.drakit.dev"),
        testing.claim("mine", device_class="gpu"),
        testing.pod("p", claims=["mine"]),
    ):
        kind = next(one for one in resources.ALL if (one.api_version, one.kind) == (item["apiVersion"], item["kind"]))
        cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")
    assert waits.eventually(
        lambda: 'drakit_claim_seconds_count{driver="gpu.drakit.dev",outcome="ok",verb="prepare"} 1.0' in page(port, "/metrics")[1]
    )
    result = page(port, "/metrics")[1]
    for line in (
        'drakit_claims{driver="gpu.drakit.dev",state="prepared"} 1.0',
        'drakit_registered{driver="gpu.drakit.dev"} 1.0',
        'drakit_published{driver="gpu.drakit.dev"} 1.0',
        'drakit_devices{driver="gpu.drakit.dev",tainted="true"} 0.0',
        'drakit_claim_phase_seconds_count{driver="gpu.drakit.dev",outcome="ok",phase="fetch"} 1.0',
        'drakit_claim_phase_seconds_count{driver="gpu.drakit.dev",outcome="ok",phase="device_prepare"} 1.0',
    ):
        assert line in result
    assert "drakit_slice_writes_total" in result
    assert driver.status is None


@pytest.fixture
def kubelet_away(cluster: clusters.LocalCluster) -> Callable[[], None]:
    """A node whose kubelet has not started yet; what starts it."""
    cluster.node("node-1").stop_kubelet()
    return cluster.node("node-1").start_kubelet


@pytest.mark.usefixtures("kubelet_away", "driver")
def test_the_driver_is_alive_and_not_ready_before_registration(
    cluster: clusters.LocalCluster, port: int, kubelet_away: Callable[[], None]
) -> None:
    assert waits.eventually(lambda: 'drakit_published{driver="gpu.drakit.dev"} 1.0' in page(port, "/metrics")[1])
    assert page(port, "/readyz") == (503, "gpu.drakit.dev registered: the kubelet has not registered the driver\n")
    assert page(port, "/healthz") == (200, "ok\n")
    assert 'drakit_registered{driver="gpu.drakit.dev"} 0.0' in page(port, "/metrics")[1]
    kubelet_away()
    assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)


@pytest.mark.usefixtures("driver")
def test_the_driver_is_ready_again_after_its_registration_was_deleted(cluster: clusters.LocalCluster, port: int) -> None:
    assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)
    (socket_path,) = cluster.node("node-1").folder.registry.glob("*.sock")
    socket_path.unlink()
    # How long it is not ready meanwhile is up to the kubelet, and may be too short to be seen from here.
    assert waits.eventually(lambda: any(cluster.node("node-1").folder.registry.glob("*.sock")))
    assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)


def test_a_taken_metrics_address_does_not_stop_the_driver(cluster: clusters.LocalCluster, port: int, commands: forked_cli.Commands) -> None:
    probes = cluster.node("node-1").folder.root / "health.sock"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with serving(cluster, port, "--set", f"serve.socket={probes}", commands=commands) as started:
            assert waits.eventually(lambda: answer(probes, "/readyz").startswith(b"HTTP/1.0 200"))
            assert f'drakit_listening{{address="127.0.0.1:{port}"}} 0.0'.encode() in answer(probes, "/metrics")
            taken.close()
            assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)
            assert started.stop() == 0
    assert sum("address held by another process" in line for line in started.said().splitlines()) == 1


def answer(path: pathlib.Path, page: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as asking:
        if asking.connect_ex(str(path)):
            return b""
        asking.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: asking.recv(65536), b""))


def test_readiness_names_a_foreign_folder_at_the_socket_until_it_is_gone(
    cluster: clusters.LocalCluster, port: int, commands: forked_cli.Commands
) -> None:
    service = cluster.node("node-1").folder.plugins / "gpu.drakit.dev" / "dra.sock"
    with serving(cluster, port, commands=commands):
        assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)
        service.unlink()
        service.mkdir()
        assert waits.eventually(lambda: page(port, "/readyz")[0] == 503 and str(service) in page(port, "/readyz")[1])
        service.rmdir()
        assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_driver_without_warnings(
    cluster: clusters.LocalCluster, port: int, commands: forked_cli.Commands, number: signal.Signals
) -> None:
    with serving(cluster, port, commands=None if number == signal.SIGTERM else commands) as started:
        assert waits.eventually(lambda: page(port, "/readyz")[0] == 200)
        assert started.stop(number) == 0
    assert not any(word in started.said() for word in ("Traceback", "Exception", "Warning", "error"))
