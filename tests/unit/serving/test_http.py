"""The driver's own HTTP answers three pages to anybody who may ask, and is not stopped by those who ask badly."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit.serving import checks
from drakit.serving import http as serving


@pytest.fixture
def readiness() -> checks.Checks:
    return checks.Checks()


@pytest.fixture
def server(readiness: checks.Checks) -> Iterator[serving.HttpServer]:
    def broken() -> serving.Page:
        raise RuntimeError("a bug")

    routes = {"/readyz": serving.told(readiness), "/metrics": lambda: serving.Page(body=b"drakit_up 1\n"), "/broken": broken}
    made = serving.HttpServer(serving.Address(host="127.0.0.1", port=0), routes)
    made.start()
    yield made
    made.stop()


def ask(server: serving.HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_all_well_is_200_and_what_is_wrong_is_503_with_a_line_each(server: serving.HttpServer, readiness: checks.Checks) -> None:
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


def test_clients_that_say_nothing_do_not_keep_others_waiting_for_ever(server: serving.HttpServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.address.port)) for _ in range(serving.CONNECTIONS_MAX)]
    assert ask(server, "/metrics") == (200, "drakit_up 1\n")
    for one in silent:
        one.close()


def test_stop_frees_the_port_and_twice_is_fine(readiness: checks.Checks) -> None:
    made = serving.HttpServer(serving.Address(host="::1", port=0), {"/readyz": serving.told(readiness)})
    made.start()
    address = made.address
    assert str(address) == f"[::1]:{address.port}"
    made.stop()
    made.stop()
    again = serving.HttpServer(address, {})
    again.start()
    with pytest.raises(errors.SettingsError, match=r"serve\.address: cannot listen on \[::1\]:\d+: Address already in use"):
        serving.HttpServer(address, {}).start()
    again.stop()


@pytest.mark.parametrize("text", ["", "8080", "localhost:80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:x", "::1:٣"])
def test_an_address_is_an_ip_and_a_port(text: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"serve\.address"):
        serving.Address.parse(text, key="serve.address")


def test_an_address_reads_as_it_is_written() -> None:
    for text in ("127.0.0.1:8080", "[::1]:0"):
        assert str(serving.Address.parse(text, key="k")) == text
