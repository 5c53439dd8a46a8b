"""``drakit webhook``: the admission webhook, which rejects opaque parameters that drakit's drivers cannot prepare."""

import pathlib
import threading
import time
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from drakit import settings as values
from drakit.admission import opaque, referenced, review
from drakit.cli import composition, options, process
from drakit.cli import probes as reports
from drakit.core import errors
from drakit.kube import client
from drakit.node import metrics
from drakit.serving import accepting, certificates
from drakit.serving import http as serving
from drakit.telemetry import logs

PATH = "/validate"
PODS_PATH = "/validate-pods"
CONNECTIONS_MAX = 256
"""API servers send up to 200 writes at once (--max-mutating-requests-inflight)."""

_LABELS = ("resource", "outcome")
_LOADED = "Unix time at which the certificate in use was loaded."

_log = logs.get_logger(__name__)


def webhook(
    address: Annotated[
        str | None, typer.Option("--address", metavar="IP:PORT", help="Address for HTTPS requests of the API server.")
    ] = None,
    certificate: Annotated[
        pathlib.Path | None, typer.Option("--certificate", metavar="FILE", help="The server's certificate with its chain, in PEM.")
    ] = None,
    key: Annotated[pathlib.Path | None, typer.Option("--key", metavar="FILE", help="The certificate's private key, in PEM.")] = None,
    config: options.Config = None,
    assignments: options.Set = None,
    log_format: Annotated[Literal["console", "json"] | None, typer.Option("--log-format", help="console or json.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option("--log-level", help="Least severe level to write.")
    ] = None,
) -> None:
    """Serve the admission webhook for opaque parameters of drakit's drivers, until SIGTERM or Ctrl-C.

    The API server calls it when a ResourceClaim, ResourceClaimTemplate or DeviceClass is created or its spec is changed. The webhook rejects
    parameters that every node would reject at prepare, and names the field and the fix; drakit lint does the same for files. It always allows
    deletions and changes of labels and statuses. It needs no rights in the cluster.

    With POST /validate-pods it also rejects pods that can never start, such as one of the host's network with a NIC, or one that two claims give one
    interface name. It then reads the pod's claims, their templates and their classes.

    It serves POST /validate. It loads a new certificate when the files change, without a restart. If serve.address is set, it also serves
    /healthz, /readyz and /metrics there, over plain HTTP. To install it, see docs/howto/validate-at-admission.md.

    [bold]Examples[/bold]

      drakit webhook --address 127.0.0.1:8443 --certificate tls.crt --key tls.key

      drakit webhook --set gpu.driver_name=gpu.nvidia.com
    """
    flags = {"webhook.address": address, "webhook.certificate": certificate, "webhook.key": key}
    flags |= {"log.format": log_format, "log.level": log_level}
    settings = options.read(config=config, assignments=assignments, flags=flags)
    stop = threading.Event()
    process.at_signals(stop)
    server_probes = reports.Probes()
    webhook_server = Webhook(settings, server_probes.metrics)
    with reports.served(settings.serve, server_probes):
        webhook_server.start()
        server_probes.is_started = True
        try:
            stop.wait()
        finally:
            webhook_server.stop()


class Webhook:
    """The HTTPS server that the API server calls. Raises SettingsError for a certificate or an address that cannot be used."""

    def __init__(self, settings: values.Settings, measured: metrics.Metrics) -> None:
        self._rules = composition.opaque_rules(settings)
        certificate = certificates.Certificate(settings.webhook.certificate, settings.webhook.key, key="webhook.certificate")
        self._judging = threading.Lock()
        checks_pods = any(rule.check_pod is not None for rule in self._rules.values())
        api = client.LazyClient(lambda: client.connect(settings.api.kubeconfig, seconds=referenced.SECONDS))
        if checks_pods:
            api.connect_now()
        self._referenced = referenced.Referenced(api)
        self._durations = measures(measured, lambda: certificate.loaded_at, checks_pods=checks_pods)
        overload = accepting.Overload("webhook.address")
        measured.refusals(overload)
        self._server = serving.HttpServer(
            serving.Address.parse(settings.webhook.address, key="webhook.address"),
            {},
            reviews={PATH: self._review, **({PODS_PATH: self._review_pod} if checks_pods else {})},
            tls=certificate.context,
            connections_max=CONNECTIONS_MAX,
            key="webhook.address",
            overload=overload,
        )

    @property
    def address(self) -> serving.Address:
        """Return the address on which it listens."""
        return self._server.address

    def start(self) -> None:
        """Start to serve; raises SettingsError if another process listens on the address."""
        if not self._server.start():
            raise errors.SettingsError(f"another process listens on {self.address}", key="webhook.address")
        _log.info("webhook ready", address=str(self.address), drivers=sorted(self._rules))

    def stop(self) -> None:
        """Stop accepting requests, and finish those in progress."""
        self._server.stop()

    def _review(self, body: bytes) -> serving.Page:
        began = time.monotonic()
        with self._judging:  # One at a time: parsing is CPU-bound, and hostile bodies need much memory.
            answer = review.answer(body, self._rules)
        return self._page(answer, began)

    def _review_pod(self, body: bytes) -> serving.Page:
        began = time.monotonic()
        with self._judging:
            claims = review.claims_of_pod(body)
        # Without the lock, because a slow API server must not delay the reviews of others, and without the parsed body, because many of them need
        # much memory.
        known = self._referenced.by(claims)
        with self._judging:
            answer = review.answer(body, self._rules, known)
        return self._page(answer, began)

    def _page(self, answer: review.Answer, began: float) -> serving.Page:
        self._durations.labels(answer.resource, answer.verdict.value).observe(time.monotonic() - began)
        content_type = "application/json" if answer.verdict is not review.Verdict.UNREADABLE else "text/plain; charset=utf-8"
        return serving.Page(body=answer.body, content_type=content_type, status=answer.status)


def measures(target: metrics.Metrics, loaded_at: Callable[[], float], *, checks_pods: bool = False) -> metrics.Histogram:
    """Add the webhook's metrics, and return the histogram of its reviews, with samples of 0 for every kind that is checked."""
    target.gauge("drakit_webhook_certificate_loaded_seconds", _LOADED, (), lambda: [({}, loaded_at())])
    reviews = target.durations("drakit_webhook_seconds", "Seconds from a review's last byte to its answer.", _LABELS)
    for resource in (*(kind.resource for kind in opaque.KINDS.values()), *((review.PODS,) if checks_pods else ())):
        for verdict in (review.Verdict.ALLOWED, review.Verdict.DENIED):
            reviews.labels(resource, verdict.value)
    return reviews
