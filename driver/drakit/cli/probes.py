"""What ``drakit run`` tells operators: HTTP and gRPC health for all drivers of the process together."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from drakit import settings as values
from drakit.node import metrics
from drakit.serving import checks, grpc_health, waiting
from drakit.serving import http as serving

_LISTENING = "Whether this process listens on the address; 0 while another process has it."


class Told:
    """The checks and metrics of this process."""

    def __init__(self) -> None:
        self.metrics = metrics.Metrics()
        self.live = checks.Checks()
        self.ready = checks.Checks()
        self.is_started = False
        self._waiting: dict[str, waiting.Waiting] = {}
        self.metrics.gauge("drakit_listening", _LISTENING, ("address",), self._listening)
        self.ready.add("start", lambda: "" if self.is_started else "the drivers are still starting")

    def add(self, driver: str, node: metrics.ObservedNode) -> None:
        """Tell about this driver too."""
        metrics.add_liveness(driver, node, self.live)
        metrics.add_readiness(driver, node, self.ready)

    def _listening(self) -> list[metrics.Reading]:
        return [({"address": address}, float(one.is_listening)) for address, one in self._waiting.items()]

    @contextlib.contextmanager
    def listening(self, listener: waiting.Listener, address: str, is_driver: Callable[[], bool]) -> Iterator[None]:
        """Listen meanwhile, as soon as the address can be had, and tell in the metrics whether it is. Raises SettingsError."""
        one = self._waiting[address] = waiting.Waiting(listener, address, is_driver)
        one.start()
        try:
            yield
        finally:
            one.stop()

    def _metrics(self) -> serving.Page:
        return serving.Page(body=self.metrics.text(), content_type=metrics.CONTENT_TYPE)

    @property
    def pages(self) -> Mapping[str, serving.Route]:
        """The HTTP pages by path."""
        return {"/healthz": serving.told(self.live), "/readyz": serving.told(self.ready), "/metrics": self._metrics}

    @property
    def questions(self) -> Mapping[str, grpc_health.Question]:
        """What gRPC health is asked, by service name."""
        is_live = lambda: not self.live.failures()  # noqa: E731 - one question under two names
        return {"": is_live, grpc_health.LIVENESS: is_live, grpc_health.READINESS: lambda: not self.ready.failures()}


@contextlib.contextmanager
def served(settings: values.Serve, told: Told) -> Iterator[None]:
    """Serve what the settings ask for meanwhile; raises SettingsError."""
    with contextlib.ExitStack() as stack:
        if settings.socket is not None:
            probes = serving.HttpServer(settings.socket, told.pages, key="serve.socket")
            probes.start()
            stack.callback(probes.stop)
        if settings.address:
            address = serving.Address.parse(settings.address, key="serve.address")
            stack.enter_context(told.listening(serving.HttpServer(address, told.pages), str(address), lambda: serving.is_driver(address)))
        if settings.grpc_health:
            address = serving.Address.parse(settings.grpc_health, key="serve.grpc_health")
            # Whoever has this address answers the kubelet's probes of this pod too: that is never as it should be.
            stack.enter_context(told.listening(grpc_health.HealthServer(str(address), told.questions), str(address), lambda: False))
        yield
