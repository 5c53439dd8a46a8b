"""The HTTPS server takes bounded bodies from bounded connections, and a new certificate from its files without a restart."""

import contextlib
import os
import pathlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives import serialization

from drakit.core import errors
from drakit.serving import certificates, listener
from drakit.serving import http as serving
from fakes import exhaustion, tls_files, waits

CONNECTIONS_MAX = 8


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor of a server or client outlives its test."""
    with exhaustion.nothing_left():
        yield


@pytest.fixture
def files(tmp_path: pathlib.Path) -> tls_files.TlsFiles:
    return tls_files.TlsFiles(tmp_path)


def served(files: tls_files.TlsFiles, review: serving.Review) -> serving.HttpServer:
    certificate = certificates.Certificate(files.chain, files.key, key="webhook.certificate")
    address = serving.Address(host="127.0.0.1", port=0)
    return serving.HttpServer(address, {}, reviews={"/validate": review}, tls=certificate.context, connections_max=CONNECTIONS_MAX)


@pytest.fixture
def port(files: tls_files.TlsFiles) -> Iterator[int]:
    server = served(files, lambda body: serving.Page(body=b"%d bytes" % len(body)))
    server.start()
    yield server.address.port
    server.stop()


def test_a_body_up_to_the_limit_is_reviewed_and_a_larger_one_is_refused(files: tls_files.TlsFiles, port: int) -> None:
    assert files.post(port, b"x" * serving.BODY_MAX) == (200, b"%d bytes" % serving.BODY_MAX)
    assert files.post(port, b"x" * (serving.BODY_MAX + 1)) == (413, b"the body has 1048577 bytes, over the limit of 1048576\n")
    assert files.post(port, b"x" * (32 << 20))[0] == 413, "the answer arrives although the body was not kept"


def opened(files: tls_files.TlsFiles, port: int) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=waits.SECONDS)
    return files.context().wrap_socket(plain, server_hostname="127.0.0.1")


def raw(files: tls_files.TlsFiles, port: int, head: bytes) -> bytes:
    with opened(files, port) as connection:
        connection.sendall(head)
        return connection.recv(4096)


@pytest.mark.parametrize("length", [b"", b"Content-Length: -1\r\n", b"Content-Length: 1e3\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_without_a_length_is_refused_before_it_is_read(files: tls_files.TlsFiles, port: int, length: bytes) -> None:
    assert raw(files, port, b"POST /validate HTTP/1.1\r\n" + length + b"\r\n").startswith(b"HTTP/1.0 411 ")


def test_other_paths_and_methods_are_refused_without_a_review(files: tls_files.TlsFiles, port: int) -> None:
    assert files.post(port, b"x", "/mutate") == (404, b"no such page; there are /validate\n")
    assert raw(files, port, b"GET /validate HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 404 ")
    assert raw(files, port, b"DELETE /validate HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 501 ")


def test_plain_http_gets_no_answer(files: tls_files.TlsFiles, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=waits.SECONDS) as plain:
        plain.sendall(b"POST /validate HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        with contextlib.suppress(OSError):
            assert b"HTTP" not in plain.recv(4096)
    assert files.post(port, b"x")[0] == 200


def test_tls_before_1_2_is_refused(files: tls_files.TlsFiles) -> None:
    context = certificates.Certificate(files.chain, files.key, key="webhook.certificate").context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_stalled_handshakes_and_requests_delay_no_other_client(files: tls_files.TlsFiles, port: int) -> None:
    def seconds_of_a_review() -> float:
        with contextlib.ExitStack() as stack:
            for _ in range(3 * CONNECTIONS_MAX):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=waits.SECONDS))
            for _ in range(CONNECTIONS_MAX):
                slow = stack.enter_context(opened(files, port))
                slow.sendall(b"POST /validate HTTP/1.1\r\nContent-Length: 1000\r\n\r\nx")
            began = time.monotonic()
            assert files.post(port, b"x") == (200, b"1 bytes")
            return time.monotonic() - began

    # One of three: a loaded machine may be slow, but a review that waits for a slow client's time waits each time.
    assert any(seconds_of_a_review() < listener.REQUEST_SECONDS for _ in range(3))


def test_a_client_that_sends_half_of_its_body_is_dropped_in_time(files: tls_files.TlsFiles, port: int) -> None:
    with opened(files, port) as slow:
        slow.sendall(b"POST /validate HTTP/1.1\r\nContent-Length: 1000\r\n\r\nx")
        slow.settimeout(waits.SECONDS)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert slow.recv(1) == b""


def test_a_stop_finishes_the_request_in_progress_and_frees_the_port(files: tls_files.TlsFiles) -> None:
    entered = threading.Event()

    def review(body: bytes) -> serving.Page:
        entered.set()
        time.sleep(0.3)
        return serving.Page(body=body)

    server = served(files, review)
    server.start()
    answers: list[tuple[int, bytes]] = []
    port = server.address.port
    asking = threading.Thread(target=lambda: answers.append(files.post(port, b"mine")))
    asking.start()
    assert entered.wait(waits.SECONDS)
    server.stop()
    asking.join()
    assert answers == [(200, b"mine")]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_new_certificate_is_shown_from_the_next_handshake_on(files: tls_files.TlsFiles, port: int) -> None:
    before = files.serial(port)
    assert files.serial(port) == before
    files.renew()
    assert files.serial(port) not in {before, ""}


def test_a_certificate_is_renewed_under_load_without_a_failure(files: tls_files.TlsFiles, port: int) -> None:
    over = threading.Event()
    answers: list[tuple[int, bytes]] = []
    failures: list[OSError] = []

    def ask() -> None:
        while not over.is_set():
            try:
                answers.append(files.post(port, b"x"))
            except OSError as error:
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    serials = set()
    for _ in range(5):
        time.sleep(0.1)
        files.renew()
        serials.add(files.serial(port))
    over.set()
    for thread in threads:
        thread.join()
    assert (len(serials), failures, set(answers)) == (5, [], {(200, b"1 bytes")})


def test_files_that_do_not_fit_each_other_change_nothing_until_they_do(files: tls_files.TlsFiles, port: int) -> None:
    before = files.serial(port)
    chain, key = files.pair()
    files.chain.unlink()
    assert files.serial(port) == before, "a file is missing"
    files.chain.write_bytes(chain)
    assert files.serial(port) == before, "the certificate is new, its key is not there yet"
    files.key.write_bytes(b"-----BEGIN")
    assert files.serial(port) == before, "half a key"
    files.key.write_bytes(key)
    assert files.serial(port) != before


def test_an_invalid_certificate_is_refused_at_the_start(files: tls_files.TlsFiles, tmp_path: pathlib.Path) -> None:
    encrypted = tmp_path / "encrypted.key"
    key_of = serialization.load_pem_private_key(files.key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    encrypted.write_bytes(key_of.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    for chain, key in ((tmp_path / "none", files.key), (files.key, files.key), (files.chain, encrypted)):
        with pytest.raises(errors.SettingsError, match=r"webhook\.certificate: .* are not a certificate and its private key in PEM: "):
            certificates.Certificate(chain, key, key="webhook.certificate")


@pytest.mark.parametrize("which", ["chain", "key"])
def test_a_pipe_as_certificate_or_key_is_refused_at_once(files: tls_files.TlsFiles, which: str) -> None:
    path: pathlib.Path = getattr(files, which)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(errors.SettingsError, match=rf"webhook.certificate: .*{path.name} is a pipe"):
        certificates.Certificate(files.chain, files.key, key="webhook.certificate")


def test_a_pipe_in_place_of_a_certificate_in_use_keeps_the_last(files: tls_files.TlsFiles) -> None:
    used = certificates.Certificate(files.chain, files.key, key="webhook.certificate")
    before = used.context()
    files.chain.unlink()
    os.mkfifo(files.chain)
    assert used.context() is before
