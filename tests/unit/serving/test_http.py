"""The driver's own HTTP answers three pages to anybody who may ask, and is not stopped by those who ask badly."""

import contextlib
import errno
import http.client
import pathlib
import select
import socket
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit.serving import accepting, checks, listener
from drakit.serving import http as serving
from fakes import exhaustion, log_lines, waits


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor of a server or client outlives its test."""
    with exhaustion.nothing_left():
        yield


@pytest.fixture
def readiness() -> checks.Checks:
    return checks.Checks()


@pytest.fixture
def server(readiness: checks.Checks) -> Iterator[serving.HttpServer]:
    def broken() -> serving.Page:
        raise RuntimeError("a bug")

    routes = {"/readyz": serving.checks_page(readiness), "/metrics": lambda: serving.Page(body=b"drakit_up 1\n"), "/broken": broken}
    made = serving.HttpServer(serving.Address(host="127.0.0.1", port=0), routes)
    made.start()
    yield made
    made.stop()


def ask(server: serving.HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=waits.SECONDS)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_healthy_is_200_and_each_failed_check_is_a_line_of_a_503(server: serving.HttpServer, readiness: checks.Checks) -> None:
    assert ask(server, "/readyz") == (200, "ok\n")
    readiness.add("registered", lambda: "the kubelet has not\nregistered the driver")
    readiness.add("published", lambda: "")
    assert ask(server, "/readyz") == (503, "registered: the kubelet has not registered the driver\n")


def test_a_check_with_a_bug_is_a_failed_check(readiness: checks.Checks) -> None:
    readiness.add("odd", lambda: str(1 // 0))
    assert readiness.failures() == {"odd": "ZeroDivisionError: integer division or modulo by zero"}
    assert readiness.names() == ("odd",)


def test_other_paths_other_methods_and_bugs_are_answered_and_change_nothing(server: serving.HttpServer) -> None:
    assert ask(server, "/etc/passwd") == (404, "no such page; there are /broken, /metrics, /readyz\n")
    assert ask(server, "/metrics", "POST")[0] == 501
    assert ask(server, "/broken") == (500, "internal error; see the log\n")
    assert ask(server, "/metrics?x=1") == (200, "drakit_up 1\n")
    assert ask(server, "/metrics", "HEAD") == (200, "")


def opened(server: serving.HttpServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.address.port), timeout=waits.SECONDS)
    connection.sendall(sent)
    return connection


@contextlib.contextmanager
def dribbling(server: serving.HttpServer, count: int) -> Iterator[None]:
    """That many connections that send a byte of a request now and then, and are made anew when they are dropped."""
    over = threading.Event()
    connections = [opened(server, b"G") for _ in range(count)]

    def dribble() -> None:
        while not over.wait(0.1):
            for place, connection in enumerate(connections):
                try:
                    connection.sendall(b"E")
                except OSError:
                    connection.close()
                    connections[place] = opened(server, b"G")

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("count", [8, 256])
def test_a_probe_is_answered_at_once_whatever_slow_clients_do(server: serving.HttpServer, count: int) -> None:
    with dribbling(server, count):
        seconds = []
        for _ in range(30):
            began = time.monotonic()
            assert ask(server, "/readyz") == (200, "ok\n")
            seconds.append(time.monotonic() - began)
            time.sleep(0.1)
    assert statistics.median(seconds) < listener.REQUEST_SECONDS / 2, "probes do not wait until a slow client's time is over"


def test_a_request_that_is_not_whole_in_time_loses_its_connection(server: serving.HttpServer) -> None:
    began, lines = time.monotonic(), 0
    connection = opened(server, b"GET /readyz HTTP/1.1\r\n")
    with contextlib.suppress(OSError):
        while not select.select([connection], [], [], 0.2)[0]:
            connection.sendall(b"X-A: 1\r\n")
            lines += 1
    assert time.monotonic() - began > listener.REQUEST_SECONDS - 1.0
    assert lines < 4 * listener.REQUEST_SECONDS / 0.2
    connection.close()


def test_a_client_that_reads_nothing_loses_its_connection() -> None:
    page = serving.Page(body=b"x" * (64 << 20))
    server = serving.HttpServer(serving.Address(host="127.0.0.1", port=0), {"/metrics": lambda: page})
    server.start()
    before = threading.active_count()
    connections = [opened(server, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(3)]
    assert waits.eventually(lambda: threading.active_count() > before)
    assert waits.eventually(lambda: threading.active_count() <= before)
    for connection in connections:
        connection.close()
    server.stop()


def test_connections_beyond_the_bound_cost_no_threads(server: serving.HttpServer) -> None:
    before = threading.active_count()
    connections = [opened(server) for _ in range(4 * serving.CONNECTIONS_MAX)]
    assert ask(server, "/readyz") == (200, "ok\n")
    assert waits.eventually(lambda: threading.active_count() <= before + serving.CONNECTIONS_MAX)
    for connection in connections:
        connection.close()


def test_stop_frees_the_port_and_can_be_repeated(readiness: checks.Checks) -> None:
    made = serving.HttpServer(serving.Address(host="::1", port=0), {"/readyz": serving.checks_page(readiness)})
    made.start()
    address = made.address
    assert str(address) == f"[::1]:{address.port}"
    made.stop()
    made.stop()
    again = serving.HttpServer(address, {})
    assert again.start()
    assert not serving.HttpServer(address, {}).start(), "whoever comes second is told so"
    again.stop()


def test_a_socket_path_that_is_too_long_is_named_with_its_length(readiness: checks.Checks, tmp_path: pathlib.Path) -> None:
    path = tmp_path / ("s" * 108)
    with pytest.raises(errors.SettingsError, match=rf"{path} has {len(str(path))} bytes and the kernel takes 107") as refused:
        serving.HttpServer(path, {"/readyz": serving.checks_page(readiness)}, key="serve.socket").start()
    assert refused.value.key == "serve.socket"


def test_an_address_that_is_not_this_machines_is_an_error() -> None:
    with pytest.raises(errors.SettingsError, match=r"serve\.address: cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
        serving.HttpServer(serving.Address(host="192.0.2.1", port=0), {}).start()


@pytest.mark.parametrize("text", ["", "8080", "localhost:80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:x", "::1:٣"])
def test_an_address_is_an_ip_and_a_port(text: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"serve\.address"):
        serving.Address.parse(text, key="serve.address")


def test_an_address_reads_as_it_is_written() -> None:
    for text in ("127.0.0.1:8080", "[::1]:0"):
        assert str(serving.Address.parse(text, key="k")) == text


def test_a_hanging_page_uses_few_threads_and_blocks_no_other_page(logged: log_lines.LogLines) -> None:
    over, overload = threading.Event(), accepting.Overload("test")

    def hang() -> serving.Page:
        over.wait(waits.SECONDS)
        return serving.Page(body=b"")

    routes = {"/metrics": hang, "/healthz": lambda: serving.Page(body=b"ok\n")}
    made = serving.HttpServer(serving.Address(host="127.0.0.1", port=0), routes, overload=overload)
    made.start()
    before = threading.active_count()
    scrapes = [opened(made, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(2 * serving.CONNECTIONS_MAX)]
    assert waits.eventually(lambda: overload.counts()[accepting.Cause.PAGE] == len(scrapes) - serving.PAGE_THREADS)
    assert ask(made, "/healthz") == (200, "ok\n")
    assert waits.eventually(lambda: threading.active_count() == before + serving.PAGE_THREADS)
    assert ask(made, "/metrics") == (503, "8 requests for this page are in progress; try again later\n")
    over.set()
    for scrape in scrapes:
        scrape.close()
    made.stop()
    assert [(record["event"], record["reason"]) for record in logged.lines] == [("connection refused", "page")]


def test_requests_that_hang_do_not_add_up_after_their_time() -> None:
    over, overload = threading.Event(), accepting.Overload("test")

    def hang(_: bytes) -> serving.Page:
        over.wait(waits.SECONDS)
        return serving.Page(body=b"")

    made = serving.HttpServer(
        serving.Address(host="127.0.0.1", port=0), {}, reviews={"/validate": hang}, connections_max=4, overload=overload
    )
    made.start()
    before = threading.active_count()
    posts = [opened(made, b"POST /validate HTTP/1.1\r\nContent-Length: 1\r\n\r\nx") for _ in range(4)]
    for post in posts:
        assert post.recv(1) == b"", "its time is over"
    late = opened(made)
    assert late.recv(1) == b"", "the four threads still run"
    assert threading.active_count() == before + 4
    assert overload.counts()[accepting.Cause.CONNECTIONS] == 1
    over.set()
    for connection in (*posts, late):
        connection.close()
    made.stop()


def test_a_server_without_descriptors_waits_and_answers_afterwards(server: serving.HttpServer) -> None:
    with socket.socket() as client, contextlib.ExitStack() as stack:
        client.settimeout(waits.SECONDS)
        with exhaustion.no_descriptors():
            client.connect(("127.0.0.1", server.address.port))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            began = time.process_time()
            time.sleep(1.0)
            assert time.process_time() - began < 0.5, "accepting does not spin"
        assert stack.enter_context(client.makefile("rb")).readline() == b"HTTP/1.0 200 OK\r\n"


def test_a_server_that_cannot_start_a_thread_answers_afterwards(server: serving.HttpServer) -> None:
    with exhaustion.no_threads(), pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(server, "/metrics")
    assert ask(server, "/metrics") == (200, "drakit_up 1\n")


def test_refusals_are_logged_once_a_period_and_counted(logged: log_lines.LogLines) -> None:
    now = [0.0]
    overload = accepting.Overload("test", monotonic=lambda: now[0])
    pauses: list[float] = []
    for _ in range(3):
        assert overload.failed(OSError(errno.EMFILE, "Too many open files"), pause=pauses.append) is accepting.Cause.DESCRIPTORS
    now[0] += accepting.LOG_SECONDS
    overload.refuse(accepting.Cause.DESCRIPTORS)
    assert overload.failed(OSError(errno.ECONNABORTED, "Software caused connection abort"), pause=pauses.append) is None
    assert [record["count"] for record in logged.lines] == [1, 4]
    assert pauses == [accepting.PAUSE_SECONDS] * 3
