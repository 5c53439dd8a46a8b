"""Real unix sockets, real gRPC servers and a real gRPC client."""

import collections.abc
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

import grpc
import pytest

from drakit.core import errors
from drakit.kubelet import server
from drakit.serving import unix_sockets
from fakes import channels, waits


@pytest.fixture
def folder() -> collections.abc.Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="dra"))
    yield path
    shutil.rmtree(path)


def nothing(_server: grpc.Server) -> None:
    """Register no service: every call is answered UNIMPLEMENTED, which is an answer."""


def make(path: pathlib.Path) -> server.SocketServer:
    return server.SocketServer(path, nothing, threads=2)


def answers(path: pathlib.Path) -> bool:
    with channels.insecure(f"unix:{path}") as channel:
        try:
            channel.unary_unary("/any/Method")(b"", timeout=waits.SECONDS)
        except grpc.RpcError as error:
            return bool(error.code() is grpc.StatusCode.UNIMPLEMENTED)
    return False


def leave_stale(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))


def test_a_server_answers_and_leaves_no_socket_after_stop(folder: pathlib.Path) -> None:
    one = make(folder / "dra.sock")
    one.start()
    assert answers(one.path)
    one.stop(grace=0)
    one.stop(grace=0)
    assert list(folder.iterdir()) == []


def test_the_socket_is_private_and_its_new_folder_too(folder: pathlib.Path) -> None:
    one = make(folder / "new" / "deep" / "dra.sock")
    one.start()
    assert one.path.stat().st_mode & 0o777 == 0o600
    assert one.path.parent.stat().st_mode & 0o027 == 0
    one.stop(grace=0)


def test_a_deleted_socket_is_not_recreated_after_stop(folder: pathlib.Path) -> None:
    one = make(folder / "dra.sock")
    one.start()
    one.stop(grace=0)
    one.renew(grace=0)
    assert list(folder.iterdir()) == []


def test_a_stale_socket_is_replaced(folder: pathlib.Path) -> None:
    path = folder / "dra.sock"
    leave_stale(path)
    assert unix_sockets.occupant(path) is unix_sockets.Occupant.STALE
    one = make(path)
    one.start()
    assert answers(path)
    one.stop(grace=0)


def test_a_second_server_on_one_path_is_refused_and_the_first_lives_on(folder: pathlib.Path) -> None:
    one = make(folder / "dra.sock")
    one.start()
    with pytest.raises(errors.SettingsError, match="another drakit process serves"):
        make(one.path).start()
    assert answers(one.path)
    one.stop(grace=0)


def test_a_path_served_by_another_program_is_refused_and_kept(folder: pathlib.Path) -> None:
    path = folder / "dra.sock"
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()
        with pytest.raises(errors.SettingsError, match="another process serves"):
            make(path).start()
        assert unix_sockets.occupant(path) is unix_sockets.Occupant.LISTENER


def test_an_existing_file_at_the_path_is_refused_and_kept(folder: pathlib.Path) -> None:
    path = folder / "dra.sock"
    path.write_text("precious")
    with pytest.raises(errors.SettingsError, match="is not a socket"):
        make(path).start()
    assert path.read_text() == "precious"


def test_a_refused_start_leaves_the_path_free_for_the_next(folder: pathlib.Path) -> None:
    path = folder / "dra.sock"
    path.write_text("in the way")
    with pytest.raises(errors.SettingsError):
        make(path).start()
    path.unlink()
    one = make(path)
    one.start()
    assert answers(path)
    one.stop(grace=0)


def test_stop_leaves_a_socket_that_someone_else_put_there(folder: pathlib.Path) -> None:
    one = make(folder / "dra.sock")
    one.start()
    one.path.unlink()
    leave_stale(one.path)
    assert not one.is_at_path()
    one.stop(grace=0)
    assert one.path.is_socket()


def test_a_server_that_is_killed_leaves_a_path_that_the_next_can_use(folder: pathlib.Path) -> None:
    path = folder / "dra.sock"
    code = (
        "import os, pathlib, signal; from drakit.kubelet import server\n"
        f"server.SocketServer(pathlib.Path({str(path)!r}), lambda s: None, threads=1).start()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=waits.SECONDS).returncode == -9
    assert unix_sockets.occupant(path) is unix_sockets.Occupant.STALE
    one = make(path)
    one.start()
    assert answers(path)
    one.stop(grace=0)


def test_the_longest_path_the_kernel_takes_is_served_and_one_byte_more_is_refused(folder: pathlib.Path) -> None:
    name = "n" * (unix_sockets.PATH_MAX_BYTES - len(str(folder)) - 1)
    one = make(folder / name)
    one.start()
    assert answers(one.path)
    one.stop(grace=0)
    with pytest.raises(
        errors.SettingsError, match=f"has {unix_sockets.PATH_MAX_BYTES + 1} bytes and the kernel takes {unix_sockets.PATH_MAX_BYTES}"
    ):
        make(folder / f"{name}n").start()


def test_a_folder_that_anybody_may_write_to_is_refused(folder: pathlib.Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(errors.SettingsError, match="chmod o-w"):
        make(folder / "dra.sock").start()


def test_a_missing_folder_is_an_error_where_it_is_not_ours_to_make(folder: pathlib.Path) -> None:
    one = server.SocketServer(folder / "missing" / "reg.sock", nothing, threads=1, make_folder=False)
    with pytest.raises(errors.SettingsError, match=r"cannot use folder .*No such file"):
        one.start()
    assert not (folder / "missing").exists()


def test_only_a_deleted_socket_is_recreated(folder: pathlib.Path) -> None:
    one = make(folder / "dra.sock")
    one.start()
    with pytest.raises(errors.SettingsError, match="another process serves"):
        one.renew(grace=0)
    assert answers(one.path)
    one.path.unlink()
    one.renew(grace=0)
    assert one.is_at_path()
    assert answers(one.path)
    assert one.path.stat().st_mode & 0o777 == 0o600
    one.stop(grace=0)
    assert list(folder.iterdir()) == []


def test_a_socket_is_not_recreated_in_a_replaced_folder(folder: pathlib.Path) -> None:
    one = make(folder / "d" / "dra.sock")
    one.start()
    shutil.rmtree(folder / "d")
    (folder / "d").mkdir()
    with pytest.raises(errors.SettingsError, match="was emptied or replaced"):
        one.renew(grace=0)
    one.stop(grace=0)
    assert list((folder / "d").iterdir()) == []


def test_a_lock_that_was_removed_by_hand_does_not_let_two_serve(folder: pathlib.Path) -> None:
    one, two = make(folder / "dra.sock"), make(folder / "dra.sock")
    one.start()
    unix_sockets.lock_path(one.path).unlink()
    with pytest.raises(errors.SettingsError, match="another process serves"):
        two.start()
    assert answers(one.path)
    one.stop(grace=0)
    assert not unix_sockets.clear_stale(folder / "dra.sock")
    assert list(folder.iterdir()) == []
