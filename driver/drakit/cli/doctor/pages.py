"""Checks of the pages that the driver serves for the kubelet's probes and for Prometheus."""

import http
from collections.abc import Iterator

from drakit import settings as values
from drakit.core import errors
from drakit.core.advanced import Finding
from drakit.serving import http as serving
from drakit.serving import http_client, unix_sockets

TOPIC = "probes and metrics"
_READY = "/readyz"


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check the socket for probes and the address for metrics that the settings name."""
    if settings.serve.socket is not None:
        try:
            unix_sockets.check_path(settings.serve.socket, "serve.socket")
        except errors.SettingsError as error:
            yield Finding.failed(TOPIC, str(settings.serve.socket), str(error), "set serve.socket to a shorter path")
            return
        yield _probes(str(settings.serve.socket), http_client.ask(settings.serve.socket, _READY))
    if settings.serve.address:
        yield _metrics(serving.Address.parse(settings.serve.address, key="serve.address"))


def _probes(path: str, answer: serving.Page | None) -> Finding:
    if answer is None:
        return Finding.ok(TOPIC, path, "no driver is running")
    reasons = "; ".join(answer.body.decode(errors="replace").splitlines())
    if answer.status is http.HTTPStatus.OK:
        notes = reasons.removeprefix("ok").removeprefix("; ")
        if notes:
            return Finding.warning(TOPIC, path, f"the driver is ready, but: {notes}", "read the driver's log")
        return Finding.ok(TOPIC, path, "the driver is ready")
    return Finding.warning(TOPIC, path, f"the driver is not ready: {reasons}", "read the driver's log")


def _metrics(address: serving.Address) -> Finding:
    answer = http_client.ask(address, _READY)
    if answer is None:
        return Finding.ok(TOPIC, str(address), "no driver is running")
    if http_client.is_driver(address):
        return Finding.ok(TOPIC, str(address), "the driver serves its metrics")
    fix = "set serve.address to a free port, or stop that process; the driver then starts to serve metrics by itself"
    return Finding.warning(TOPIC, str(address), "another process uses this address, so the driver serves no metrics", fix)
