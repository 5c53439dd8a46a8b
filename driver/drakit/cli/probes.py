"""The health and metrics pages of ``drakit run`` for all drivers of the process, on a unix socket and on a TCP port."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from drakit import settings as values
from drakit.node import metrics
from drakit.serving import accepting, checks, http_client, waiting
from drakit.serving import http as serving

_LISTENING = "Whether this process listens on the address; 0 while another process has it."


class Probes:
    """The liveness and readiness checks and the metrics of this process."""

    def __init__(self) -> None:
        self.metrics = metrics.Metrics()
        self.live = checks.Checks()
        self.ready = checks.Checks()
        self.is_started = False
        self._waiting: dict[str, waiting.Waiting] = {}
        self.metrics.gauge("drakit_listening", _LISTENING, ("address",), self._listening)
        self.ready.add("start", lambda: "" if self.is_started else "the drivers are still starting")

    def add(self, driver: str, node: metrics.ObservedNode) -> None:
        """Add the checks of a driver."""
        metrics.add_liveness(driver, node, self.live)
        metrics.add_readiness(driver, node, self.ready)

    def overload_of(self, server: str) -> accepting.Overload:
        """Return the count of a server's refused connections, which is a metric."""
        overload = accepting.Overload(server)
        self.metrics.refusals(overload)
        return overload

    def _listening(self) -> list[metrics.Reading]:
        return [({"address": address}, float(probe.is_listening)) for address, probe in self._waiting.items()]

    @contextlib.contextmanager
    def listening(self, listener: waiting.Listener, address: str, is_driver: Callable[[], bool]) -> Iterator[None]:
        """Listen inside the block, as soon as the address is free; a metric says whether it is. Raises SettingsError."""
        probe = self._waiting[address] = waiting.Waiting(listener, address, is_driver)
        probe.start()
        try:
            yield
        finally:
            probe.stop()

    def _metrics(self) -> serving.Page:
        return serving.Page(body=self.metrics.text(), content_type=metrics.CONTENT_TYPE)

    @property
    def pages(self) -> Mapping[str, serving.Route]:
        """Return the HTTP pages by path."""
        return {"/healthz": serving.checks_page(self.live), "/readyz": serving.checks_page(self.ready), "/metrics": self._metrics}


@contextlib.contextmanager
def served(settings: values.Serve, probes: Probes) -> Iterator[None]:
    """Serve the configured endpoints inside the block; raises SettingsError."""
    with contextlib.ExitStack() as stack:
        if settings.socket is not None:
            overload = probes.overload_of("serve.socket")
            server = serving.HttpServer(settings.socket, probes.pages, key="serve.socket", overload=overload)
            server.start()
            stack.callback(server.stop)
        if settings.address:
            address = serving.Address.parse(settings.address, key="serve.address")
            server = serving.HttpServer(address, probes.pages, overload=probes.overload_of("serve.address"))
            stack.enter_context(probes.listening(server, str(address), lambda: http_client.is_driver(address)))
        yield
