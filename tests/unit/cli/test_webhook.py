"""``drakit webhook`` as a process: HTTPS for the API server, pages for operators, and a stop that loses nothing."""

import contextlib
import json
import pathlib
import re
import signal
import socket
from collections.abc import Iterator

import pytest

from drakit.cli.commands import webhook
from fakes import command_line, tls_files, waits, webhook_process
from fakes import parameters as p

GOOD, BAD = p.review(p.holding(p.CLAIM, p.config(p.NIC, p.nic()))), p.review(p.holding(p.CLAIM, p.config(p.NIC, p.nic(mtu=20))))


@pytest.fixture
def files(tmp_path: pathlib.Path) -> tls_files.TlsFiles:
    return tls_files.TlsFiles(tmp_path)


@pytest.fixture
def running(files: tls_files.TlsFiles) -> Iterator[webhook_process.WebhookProcess]:
    with webhook_process.WebhookProcess(files) as made:
        yield made


def test_the_webhook_serves_reviews_readiness_and_metrics_until_a_signal(
    running: webhook_process.WebhookProcess, files: tls_files.TlsFiles
) -> None:
    status, body = files.post(running.port, json.dumps(GOOD).encode())
    assert (status, json.loads(body)["response"]["allowed"]) == (200, True)
    status, body = files.post(running.port, json.dumps(BAD).encode())
    assert (status, json.loads(body)["response"]["allowed"]) == (200, False)
    assert files.post(running.port, b"hello")[0] == 400
    assert running.page("/healthz") == running.page("/readyz") == (200, "ok\n")
    counted = dict(re.findall(r"^drakit_webhook_seconds_count\{(.*)\} ([0-9.]+)$", running.page("/metrics")[1], re.MULTILINE))
    assert counted['outcome="allowed",resource="resourceclaims"'] == "1.0"
    assert counted['outcome="denied",resource="resourceclaims"'] == "1.0"
    assert counted['outcome="unreadable",resource=""'] == "1.0"
    assert counted['outcome="denied",resource="deviceclasses"'] == "0.0"
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(waits.SECONDS) == 0


def test_an_address_in_use_is_an_error(shell: command_line.CommandLine, files: tls_files.TlsFiles) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = shell.run("webhook", "--address", address, "--certificate", str(files.chain), "--key", str(files.key))
    assert (result.status, result.out) == (2, "")
    assert f"webhook.address: another process listens on {address}" in result.err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--certificate", "/none/tls.crt"), "webhook.certificate: /none/tls.crt and /etc/drakit/webhook/tls.key are not a certificate"),
        (("--address", "localhost:8443"), "webhook.address: 'localhost:8443' is not IP:PORT"),
        (("--set", "webhook.port=1"), "webhook.port: is not a setting"),
    ],
)
def test_invalid_settings_are_named(
    shell: command_line.CommandLine, files: tls_files.TlsFiles, arguments: tuple[str, str], said: str
) -> None:
    given = () if arguments[0] == "--certificate" else ("--certificate", str(files.chain), "--key", str(files.key))
    result = shell.run("webhook", *given, *arguments)
    assert result.status == 2
    assert said in result.err


def test_the_webhook_serves_the_path_of_the_manifest() -> None:
    text = (pathlib.Path(__file__).parents[3] / "daemonset" / "webhook" / "configuration.yaml").read_text("utf-8")
    assert f"path: {webhook.PATH}\n" in text
