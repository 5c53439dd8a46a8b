"""Names of sockets, and the removal of dead ones."""

import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import grpc
import pytest

from drakit.core import errors
from drakit.kubelet import server, sockets
from drakit.serving import unix_sockets
from fakes import waits

DRIVER = "gpu.drakit.dev"
LONGEST = "d" * 63
POD = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
START = "0123abcd"
REGISTRY = pathlib.Path("/var/lib/kubelet/plugins_registry")
PLUGINS = pathlib.Path("/var/lib/kubelet/plugins")
BYTES_MAX = 107
"""Linux' sockaddr_un holds 108 bytes, the last of which is a NUL."""


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="soc"))
    yield path
    shutil.rmtree(path)


def leave_stale(path: pathlib.Path) -> pathlib.Path:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    return path


def listen(path: pathlib.Path) -> server.SocketServer:
    def nothing(_server: grpc.Server) -> None:
        """Register no service."""

    made = server.SocketServer(path, nothing, threads=1)
    made.start()
    return made


def test_two_pods_have_sockets_of_their_own() -> None:
    assert sockets.service_path(PLUGINS / DRIVER).name == "dra.sock"
    assert sockets.service_path(PLUGINS / DRIVER, POD).name == f"dra-{POD}.sock"
    assert sockets.registration_path(REGISTRY, DRIVER, START).name == f"{DRIVER}-{START}-reg.sock"
    assert sockets.registration_path(REGISTRY, DRIVER, START, POD).name == f"{DRIVER}-{POD}-{START}-reg.sock"


@pytest.mark.parametrize("instance", ["", POD])
@pytest.mark.parametrize("driver", [DRIVER, LONGEST])
def test_every_driver_name_fits_below_the_kubelets_usual_folders(driver: str, instance: str) -> None:
    service = sockets.service_path(PLUGINS / driver, instance)
    assert len(str(service)) <= BYTES_MAX
    assert len(str(sockets.registration_path(REGISTRY, driver, START, instance))) <= BYTES_MAX


def test_hashed_names_differ_by_driver_and_pod() -> None:
    services = {sockets.service_path(PLUGINS / LONGEST, pod) for pod in (POD, OTHER)}
    registrations = {sockets.registration_path(REGISTRY, "d" * 62 + last, START, pod) for last in "ab" for pod in (POD, OTHER)}
    assert (len(services), len(registrations)) == (2, 4)


@pytest.mark.parametrize("bad", ["pod-1", "../x", POD.upper()])
def test_an_instance_is_the_uid_of_a_pod(bad: str) -> None:
    with pytest.raises(errors.SettingsError, match="downward API"):
        sockets.check_instance(bad)
    assert sockets.check_instance(POD) == POD
    assert sockets.check_instance("") == ""


@pytest.mark.parametrize("driver", [DRIVER, LONGEST])
@pytest.mark.parametrize("instance", ["", POD])
def test_dead_registration_sockets_of_every_name_are_found(folder: pathlib.Path, driver: str, instance: str) -> None:
    short = sockets.registration_path(folder, driver, START, instance)
    hashed = folder / sockets.registration_path(REGISTRY, LONGEST, START, instance).name
    for path in {short, hashed}:  # One path where the name is too long for any folder.
        leave_stale(path)
    sockets.clear_registry(folder, driver)
    assert not short.exists()
    assert hashed.exists() is (driver != LONGEST)


def test_only_dead_service_sockets_and_their_locks_are_removed(folder: pathlib.Path) -> None:
    living = listen(sockets.service_path(folder, POD))
    dead = leave_stale(sockets.service_path(folder, OTHER))
    unix_sockets.lock_path(dead).touch()
    lone = unix_sockets.lock_path(folder / "dra.sock")
    lone.touch()
    foreign = leave_stale(folder / "attach.sock")
    sockets.clear_services(folder)
    assert set(folder.iterdir()) == {living.path, unix_sockets.lock_path(living.path), foreign}
    living.stop(grace=0)
    assert set(folder.iterdir()) == {foreign}
    sockets.clear_services(folder / "missing")


def test_a_socket_under_a_held_lock_is_not_removed(folder: pathlib.Path) -> None:
    living = listen(folder / "dra.sock")
    living.path.unlink()
    leave_stale(living.path)
    sockets.clear_services(folder)
    assert living.path.exists()
    living.stop(grace=0)


def test_another_instance_is_seen_while_it_lives(folder: pathlib.Path) -> None:
    mine = sockets.registration_path(folder, DRIVER, START, POD)
    assert not sockets.has_living(folder, DRIVER, besides=mine)
    leave_stale(sockets.registration_path(folder, DRIVER, "ffffffff", OTHER))
    assert not sockets.has_living(folder, DRIVER, besides=mine)
    other = listen(sockets.registration_path(folder, DRIVER, "eeeeeeee", OTHER))
    assert sockets.has_living(folder, DRIVER, besides=mine)
    assert not sockets.has_living(folder, "other.example.com", besides=mine)
    other.stop(grace=0)
    assert not sockets.has_living(folder / "missing", DRIVER, besides=mine)


KILLED = """
import os, pathlib, signal, sys
from drakit.kubelet import server

def killed(event, arguments):
    if event == "os.chmod":  # What a server does next to a socket that it has bound.
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(killed)
server.SocketServer(pathlib.Path(sys.argv[1]), lambda made: None, threads=1, label=sys.argv[2]).start()
"""


def kill_while_binding(path: pathlib.Path, label: str) -> pathlib.Path:
    """The hidden socket that a process leaves which is killed between binding and renaming."""
    before = set(path.parent.iterdir())
    assert subprocess.run([sys.executable, "-c", KILLED, str(path), label], check=False, timeout=waits.SECONDS).returncode == -9
    (left,) = (new for new in set(path.parent.iterdir()) - before if new.is_socket())
    return left


def test_sockets_of_a_driver_killed_while_binding_are_removed_at_start(folder: pathlib.Path) -> None:
    foreign = leave_stale(folder / ".other")
    left = kill_while_binding(sockets.service_path(folder), "")
    sockets.clear_services(folder)
    assert not left.exists()
    assert set(folder.iterdir()) == {foreign}


def test_hidden_dead_sockets_are_removed_except_those_of_other_drivers(folder: pathlib.Path) -> None:
    path = sockets.registration_path(folder, DRIVER, START)
    own = kill_while_binding(path, sockets.label(DRIVER))
    other = kill_while_binding(path, sockets.label("nic.drakit.dev"))
    nobodys = leave_stale(folder / ".293fd81a")
    sockets.clear_registry(folder, DRIVER)
    assert not own.exists()
    assert other.exists()
    assert nobodys.exists()


def test_a_hidden_socket_of_a_living_process_stays_before_it_listens(folder: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as binding, socket.socket(socket.AF_UNIX) as serving:
        binding.bind(str(folder / ".00000001"))
        serving.bind(str(folder / ".00000002"))
        serving.listen()
        soon = threading.Timer(0.3, binding.listen)
        soon.start()
        sockets.clear_services(folder)
        soon.join()
        assert len(list(folder.iterdir())) == 2


@pytest.fixture
def linked(folder: pathlib.Path) -> pathlib.Path:
    """A short link to a kubelet's folder whose real path leaves 30 bytes for the name of a socket, which only a hashed name has."""
    real = folder / ("k" * (BYTES_MAX - 30 - len(str(folder)) - 2))
    real.mkdir()
    link = folder / "l"
    link.symlink_to(real)
    return link


def test_a_name_fits_the_folders_real_path_too(linked: pathlib.Path) -> None:
    """A kubelet whose root directory is the real path connects by that."""
    path = sockets.registration_path(linked, DRIVER, START)
    assert path.name.startswith("dra-")
    assert path.parent == linked
    assert len(str(path.resolve())) == BYTES_MAX
    assert unix_sockets.real_path_problem(path) == ""


def test_a_real_path_that_no_name_fits_is_named_with_its_length(linked: pathlib.Path) -> None:
    path = sockets.registration_path(linked, DRIVER, START, POD).with_name("dra-0123abcd-0123abcd-reg-12.sock")
    problem = unix_sockets.real_path_problem(path)
    assert str(path.resolve()) in problem
    assert f"a path of {len(str(path.resolve()))} bytes, of which the kernel takes 107" in problem


def test_a_socket_whose_real_path_is_too_long_is_served_and_recognized(linked: pathlib.Path) -> None:
    path = linked / ("s" * 31)
    served = listen(path)
    try:
        assert len(str(path.resolve())) > BYTES_MAX
        assert unix_sockets.occupant(path) is unix_sockets.Occupant.LISTENER
        assert unix_sockets.occupant(path.resolve()) is unix_sockets.Occupant.LISTENER
    finally:
        served.stop(grace=0)
