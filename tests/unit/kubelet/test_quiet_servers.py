"""Servers on the shared event loop: what their callers get, and that nothing of them is left when they have stopped."""

import collections.abc
import concurrent.futures
import gc
import logging
import os
import pathlib
import shutil
import tempfile
import threading
import time

import grpc
import pytest

from drakit.kubelet import kinds

PATIENCE = 30.0


class Service:
    """Answers with what was asked, refuses, aborts, breaks, or waits for ``release``."""

    def __init__(self) -> None:
        self.release, self.reached = threading.Event(), threading.Event()

    def register(self, grpc_server: grpc.Server) -> None:
        methods = {"Echo": self.echo, "Refuse": self.refuse, "Abort": self.abort, "Break": self.broken, "Wait": self.wait}
        made = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", made),))

    def echo(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return request

    def refuse(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details("refused, and why")
        return b"not for the caller"

    def abort(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNKNOWN, "aborted, and why")
        raise AssertionError("abort raises")

    def broken(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        raise KeyError("a bug")

    def wait(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.reached.set()
        self.release.wait(PATIENCE)
        return request


@pytest.fixture
def folder() -> collections.abc.Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="quiet"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def pool() -> collections.abc.Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="test-pool") as made:
        yield made


def call(path: pathlib.Path, method: str, request: bytes = b"x") -> bytes:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        return bytes(channel.unary_unary(f"/t.T/{method}")(request, timeout=PATIENCE))


def refusal(path: pathlib.Path, method: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call(path, method)
    return raised.value.code(), raised.value.details()


def ours() -> set[str]:
    """Threads of the loop and of gRPC's poller for it."""
    return {thread.name for thread in threading.enumerate() if thread.name == "quiet-servers" or "_poll_wrapper" in thread.name}


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers are enough


def eventually(holds: collections.abc.Callable[[], bool]) -> bool:
    waiting, end = threading.Event(), time.monotonic() + 2 * PATIENCE
    while not (held := holds()) and time.monotonic() < end:
        waiting.wait(0.02)
    return held


def none_left() -> bool:
    """Whether they are gone: gRPC's poller ends by itself, a moment after the last server."""
    return eventually(lambda: not ours())


def test_plain_functions_answer_and_what_they_refuse_reaches_the_caller(
    folder: pathlib.Path, pool: concurrent.futures.ThreadPoolExecutor, service: Service
) -> None:
    one = kinds.quiet(pool, service.register, folder / "s")
    one.start()
    assert call(folder / "s", "Echo", b"hello") == b"hello"
    assert refusal(folder / "s", "Refuse") == (grpc.StatusCode.UNKNOWN, "refused, and why")
    assert refusal(folder / "s", "Abort") == (grpc.StatusCode.UNKNOWN, "aborted, and why")
    assert refusal(folder / "s", "Missing")[0] is grpc.StatusCode.UNIMPLEMENTED
    one.stop(0).wait()
    assert none_left()


def test_all_servers_share_one_thread_and_the_last_takes_it_along(
    folder: pathlib.Path, pool: concurrent.futures.ThreadPoolExecutor, service: Service
) -> None:
    several = [kinds.quiet(pool, service.register, folder / str(number)) for number in range(5)]
    for one in several:
        one.start()
    assert len(ours()) == 2, "the loop and gRPC's poller"
    for left, one in enumerate(several[:-1], start=1):
        one.stop(0).wait()
        assert all(call(folder / str(number), "Echo") == b"x" for number in range(left, 5))
    several[-1].stop(0).wait()
    assert none_left()


@pytest.mark.parametrize("method", ["", "Echo", "Refuse", "Abort", "Break", "Missing"])
def test_nothing_is_left_however_calls_ended(
    folder: pathlib.Path, pool: concurrent.futures.ThreadPoolExecutor, service: Service, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A record of the log holds on to the exception, and so to the server, for as long as it is kept.
    caplog.set_level(logging.CRITICAL, "grpc._cython.cygrpc")
    gc.collect()
    before = descriptors()
    gc.disable()
    try:
        for _ in range(10):
            one = kinds.quiet(pool, service.register, folder / "s")
            one.start()
            if method == "Echo":
                call(folder / "s", method)
            elif method:
                refusal(folder / "s", method)
            one.stop(0).wait()
            assert none_left()
    finally:
        gc.enable()
    assert eventually(lambda: len(descriptors()) == len(before))
    assert [record for record in caplog.records if record.name == "asyncio" and record.levelno > logging.DEBUG] == []


def test_a_path_that_cannot_be_bound_is_an_error_and_leaves_nothing(
    folder: pathlib.Path, pool: concurrent.futures.ThreadPoolExecutor, service: Service
) -> None:
    with pytest.raises(RuntimeError):
        kinds.quiet(pool, service.register, folder / "missing" / "s")
    assert none_left()
    one = kinds.quiet(pool, service.register, folder / "s")
    one.stop(0).wait()
    assert none_left()


def test_a_running_call_ends_within_the_grace_and_is_ended_after_it(
    folder: pathlib.Path, pool: concurrent.futures.ThreadPoolExecutor, service: Service
) -> None:
    with grpc.insecure_channel(f"unix:{folder / 's'}") as channel:
        one = kinds.quiet(pool, service.register, folder / "s")
        one.start()
        waiting = channel.unary_unary("/t.T/Wait").future(b"late", timeout=PATIENCE)
        assert service.reached.wait(PATIENCE)
        ending = one.stop(PATIENCE)
        service.release.set()
        assert waiting.result() == b"late"
        ending.wait()
    service.release.clear()
    service.reached.clear()
    with grpc.insecure_channel(f"unix:{folder / 't'}") as channel:
        other = kinds.quiet(pool, service.register, folder / "t")
        other.start()
        waiting = channel.unary_unary("/t.T/Wait").future(b"late", timeout=PATIENCE)
        assert service.reached.wait(PATIENCE)
        other.stop(PATIENCE)
        other.stop(0).wait()
        assert waiting.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
        service.release.set()
    assert none_left(), "a call's thread keeps its server until it returns"


def test_many_start_and_stop_at_once(folder: pathlib.Path, service: Service, pool: concurrent.futures.ThreadPoolExecutor) -> None:
    def live(number: int) -> bytes:
        one = kinds.quiet(pool, service.register, folder / f"{number}")
        one.start()
        answer = call(folder / f"{number}", "Echo", b"%d" % number)
        one.stop(0.5).wait()
        return answer

    with concurrent.futures.ThreadPoolExecutor(8) as callers:
        assert list(callers.map(live, range(40))) == [b"%d" % number for number in range(40)]
    assert none_left()
