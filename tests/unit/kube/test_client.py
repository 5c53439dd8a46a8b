"""The client against a small HTTP server that answers what a test tells it to, well or badly."""

import collections.abc
import contextlib
import gc
import http.server
import json
import pathlib
import queue
import socketserver
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
import yaml

from drakit.core import errors
from drakit.kube import client
from fakes import waits

BEARER = "letters-and-digits"


class Answering(http.server.BaseHTTPRequestHandler):
    """Remembers each request and answers by the server's ``answer``."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        assert isinstance(self.server, Server)
        self.server.asked.append((self.command, self.path, dict(self.headers), self.rfile.read(size)))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.server.answer(self)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server uses
        """Say nothing."""


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: collections.abc.Callable[[Answering], None] = answer_with(200, b"{}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def answer_with(code: int, body: bytes, **headers: str) -> collections.abc.Callable[[Answering], None]:
    def answer(request: Answering) -> None:
        request.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def status(code: int, reason: str, message: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}).encode()


@pytest.fixture
def server() -> collections.abc.Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def connection(server: Server, tmp_path: pathlib.Path) -> collections.abc.Iterator[client.Client]:
    made = client.connect(write_kubeconfig(tmp_path, server.url))
    yield made
    made.close()


def write_kubeconfig(folder: pathlib.Path, url: str, **user: object) -> pathlib.Path:
    path = folder / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user or {"token": BEARER}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def refusal(connection: client.Client, **options: Any) -> errors.ApiError:
    with pytest.raises(errors.ApiError) as raised:
        connection.request("GET", "/thing", **options)
    return raised.value


def test_a_request_carries_method_path_query_body_and_identity(server: Server, connection: client.Client) -> None:
    server.answer = answer_with(201, b'{"a": [1]}')
    answer = connection.request(
        "PATCH",
        "/apis/x",
        query={"fieldSelector": "spec.driver=a,spec.nodeName=b"},
        body={"z": ("ü", None)},
        content_type="application/merge-patch+json",
    )
    assert answer == {"a": [1]}
    ((method, path, headers, body),) = server.asked
    assert (method, path) == ("PATCH", "/apis/x?fieldSelector=spec.driver%3Da%2Cspec.nodeName%3Db")
    assert json.loads(body) == {"z": ["ü", None]}
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["Authorization" if "Authorization" in headers else "authorization"] == f"Bearer {BEARER}"
    assert headers["User-Agent"] == "drakit"


def accepting(token: str) -> collections.abc.Callable[[Answering], None]:
    def answer(request: Answering) -> None:
        is_known = request.headers.get("Authorization") == f"Bearer {token}"
        answer_with(*((200, b"{}") if is_known else (401, status(401, "Unauthorized", "Unauthorized"))))(request)

    return answer


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("kind", ["token", "tokenFile", "exec"])
def test_replaced_credentials_are_read_again_when_the_old_ones_are_refused(
    server: Server, tmp_path: pathlib.Path, kind: str, method: str
) -> None:
    file, login = tmp_path / "token", {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never"}
    script = f"""printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"%s"}}}}' "$(cat {file})\""""

    def write(token: str) -> None:
        file.write_text(token)
        users: dict[str, dict[str, object]] = {
            "token": {"token": token},
            "tokenFile": {"tokenFile": str(file)},
            "exec": {"exec": {**login, "args": ["-c", script]}},
        }
        write_kubeconfig(tmp_path, server.url, **users[kind])

    write("first")
    server.answer = accepting("first")
    with contextlib.closing(client.connect(tmp_path / "config")) as connection:
        connection.request(method, "/thing")
        write("second")
        server.answer = accepting("second")
        connection.request(method, "/thing")
        assert len(server.asked) == 3
        server.answer = accepting("third")
        assert refusal(connection).status == 401
        assert len(server.asked) == 4, "a login program does not run for every refused request"


def test_a_request_is_not_repeated_on_another_server(server: Server, tmp_path: pathlib.Path) -> None:
    server.answer = accepting("another")
    with contextlib.closing(client.connect(write_kubeconfig(tmp_path, server.url))) as connection:
        (tmp_path / "token").write_text("another")
        write_kubeconfig(tmp_path, server.url.replace("127.0.0.1", "localhost"), tokenFile=str(tmp_path / "token"))
        assert refusal(connection).status == 401
    assert len(server.asked) == 1


def test_a_configuration_that_cannot_be_read_again_is_logged(
    server: Server, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = accepting("another")
    with contextlib.closing(client.connect(write_kubeconfig(tmp_path, server.url))) as connection:
        (tmp_path / "config").write_text("[")
        assert refusal(connection).status == 401
    assert "configuration not read again after a refusal" in capsys.readouterr().err


def test_a_refusal_keeps_status_reason_and_message(server: Server, connection: client.Client) -> None:
    server.answer = answer_with(409, status(409, "Conflict", "the object\nhas been modified"))
    error = refusal(connection)
    assert (error.status, error.reason, str(error)) == (409, "Conflict", "the API server answered 409: the object has been modified")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[1]", b"\xff\xfe", b'{"message": null}'])
def test_a_refusal_that_is_no_status_object_is_still_an_error(server: Server, connection: client.Client, body: bytes) -> None:
    server.answer = answer_with(502, body)
    error = refusal(connection)
    assert (error.status, error.reason) == (502, "")
    assert str(error).startswith("the API server answered 502: ")


def test_a_long_message_is_cut(server: Server, connection: client.Client) -> None:
    server.answer = answer_with(422, status(422, "Invalid", "x" * 10_000))
    assert len(str(refusal(connection))) < 600


def test_a_redirect_is_refused_so_that_the_token_stays_here(server: Server, connection: client.Client) -> None:
    server.answer = answer_with(307, b"", Location="http://192.0.2.1/")
    assert refusal(connection).status == 307


@pytest.mark.parametrize("body", [b"", b"not json", b"[1, 2]", b'"text"'])
def test_an_answer_that_is_no_json_object_is_an_error(server: Server, connection: client.Client, body: bytes) -> None:
    server.answer = answer_with(200, body)
    assert "JSON" in str(refusal(connection))


def test_a_server_that_does_not_answer_in_time_is_an_error(server: Server, connection: client.Client) -> None:
    release = threading.Event()

    def answer(request: Answering) -> None:
        release.wait(waits.SECONDS)

    server.answer = answer
    error = refusal(connection, timeout=0.1)
    release.set()
    assert error.status == 0
    assert "no answer from the API server" in str(error)


def test_an_answer_that_breaks_off_is_an_error(server: Server, connection: client.Client) -> None:
    def answer(request: Answering) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b'{"a"')
        request.close_connection = True

    server.answer = answer
    assert refusal(connection).status == 0


def test_a_write_is_sent_once_even_if_the_connection_breaks(server: Server, connection: client.Client) -> None:
    def answer(request: Answering) -> None:
        request.close_connection = True

    server.answer = answer
    with pytest.raises(errors.ApiError):
        connection.request("POST", "/thing", body={})
    assert len(server.asked) == 1


def test_nobody_listening_is_an_error(tmp_path: pathlib.Path) -> None:
    assert refusal(client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))).status == 0


class Streaming:
    """A chunked answer that goes on for as long as the test puts pieces; None ends it, an exception breaks it off."""

    def __init__(self) -> None:
        self.pieces: queue.Queue[bytes | None] = queue.Queue()

    def __call__(self, request: Answering) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        while piece := self.pieces.get(timeout=waits.SECONDS):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if piece is None:
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True


def test_events_come_one_by_one_however_they_are_cut(server: Server, connection: client.Client) -> None:
    server.answer = streaming = Streaming()
    for piece in (b'{"n": 1}\n{"n"', b": 2}", b"\n\n", b'{"n": 3}\n', None):
        streaming.pieces.put(piece)
    assert [event["n"] for event in connection.stream("/things", query={"watch": "true"}, timeout=waits.SECONDS)] == [1, 2, 3]


def test_an_event_is_given_while_the_answer_is_still_open(server: Server, connection: client.Client) -> None:
    server.answer = streaming = Streaming()
    events = iter(connection.stream("/things", query={}, timeout=waits.SECONDS))
    streaming.pieces.put(b'{"n": 1}\n')
    assert next(events) == {"n": 1}
    streaming.pieces.put(None)
    assert list(events) == []


def test_a_silent_stream_is_ended_from_another_thread(server: Server, connection: client.Client) -> None:
    server.answer = streaming = Streaming()
    stream = connection.stream("/things", query={}, timeout=waits.SECONDS)
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.extend(stream), daemon=True)
    reader.start()
    stream.close()
    stream.close()
    reader.join(waits.SECONDS)
    streaming.pieces.put(None)
    assert not reader.is_alive()
    assert seen == []


def test_a_stream_that_is_closed_before_it_is_read_leaves_no_connection_behind(server: Server, connection: client.Client) -> None:
    server.answer = streaming = Streaming()
    stream = connection.stream("/things", query={}, timeout=waits.SECONDS)
    stream.close()
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        assert list(stream) == []
        del stream
        connection.close()
        gc.collect()
    assert [str(one.message) for one in result if one.category is ResourceWarning] == []
    streaming.pieces.put(None)


def test_a_stream_that_nobody_reads_leaves_no_connection_behind(server: Server, connection: client.Client) -> None:
    server.answer = streaming = Streaming()
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        connection.stream("/things", query={}, timeout=waits.SECONDS).close()
        connection.close()
        gc.collect()
    assert [str(one.message) for one in result if one.category is ResourceWarning] == []
    streaming.pieces.put(None)


def test_a_stream_that_breaks_off_or_falls_silent_is_an_error(server: Server, connection: client.Client) -> None:
    server.answer = streaming = Streaming()
    streaming.pieces.put(b'{"n": 1}\n')
    streaming.pieces.put(b"")
    with pytest.raises(errors.ApiError, match="no answer"):
        list(connection.stream("/things", query={}, timeout=waits.SECONDS))
    with pytest.raises(errors.ApiError, match="no answer"):
        list(connection.stream("/things", query={}, timeout=0.1))
    streaming.pieces.put(None)


def test_a_refused_stream_is_an_error_at_once(server: Server, connection: client.Client) -> None:
    server.answer = answer_with(410, status(410, "Expired", "too old"))
    with pytest.raises(errors.ApiError) as raised:
        connection.stream("/things", query={}, timeout=waits.SECONDS)
    assert (raised.value.status, raised.value.reason) == (410, "Expired")


def test_the_environment_names_the_kubeconfig(server: Server, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, server.url)))
    assert client.connect().server == server.url


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    server: Server, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    assert client.connect(write_kubeconfig(tmp_path, server.url)).request("GET", "/") == {}


def test_no_configuration_at_all_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.SettingsError, match="no kubeconfig is given, and this process does not run in a cluster"):
        client.connect()


@pytest.mark.parametrize(
    "content", [None, "", "\0", "{unclosed", "kind: Config", "[]", "clusters: 7", "current-context: nowhere\nclusters: []\ncontexts: []"]
)
def test_a_kubeconfig_that_cannot_be_used_is_a_clear_error(tmp_path: pathlib.Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(errors.SettingsError, match=f"cannot use kubeconfig {path}"):
        client.connect(path)


def test_reading_a_claim_file_does_not_pay_for_the_official_client() -> None:
    code = "import sys; import drakit.kube.client, drakit.kube.slices, drakit.kube.file_claims; sys.exit('kubernetes' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=waits.SECONDS)
