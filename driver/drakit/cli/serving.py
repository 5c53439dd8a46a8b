"""What ``drakit run`` tells operators: HTTP and gRPC health for all drivers of the process together."""

import contextlib
from collections.abc import Iterator, Mapping

from drakit import settings as values
from drakit.kubelet import liveness
from drakit.node import metrics, observing
from drakit.serving import checks
from drakit.serving import http as serving


class Told:
    """The checks and metrics of this process."""

    def __init__(self) -> None:
        self.metrics = metrics.Metrics()
        self.live = checks.Checks()
        self.ready = checks.Checks()
        self.is_started = False
        self.ready.add("start", lambda: "" if self.is_started else "the drivers are still starting")

    def add(self, driver: str, node: observing.Shown) -> None:
        """Tell about this driver too."""
        observing.live(driver, node, self.live)
        observing.ready(driver, node, self.ready)

    def _metrics(self) -> serving.Page:
        return serving.Page(body=self.metrics.text(), content_type=metrics.CONTENT_TYPE)

    @property
    def pages(self) -> Mapping[str, serving.Route]:
        """The HTTP pages by path."""
        return {"/healthz": serving.told(self.live), "/readyz": serving.told(self.ready), "/metrics": self._metrics}

    @property
    def questions(self) -> Mapping[str, liveness.Question]:
        """What gRPC health is asked, by service name."""
        is_live = lambda: not self.live.failures()  # noqa: E731 - one question under two names
        return {"": is_live, liveness.LIVENESS: is_live, liveness.READINESS: lambda: not self.ready.failures()}


@contextlib.contextmanager
def served(settings: values.Serve, told: Told) -> Iterator[None]:
    """Serve what the settings ask for meanwhile; raises SettingsError."""
    with contextlib.ExitStack() as stack:
        if settings.address:
            pages = serving.HttpServer(serving.Address.parse(settings.address, key="serve.address"), told.pages)
            pages.start()
            stack.callback(pages.stop)
        if settings.grpc_health:
            address = serving.Address.parse(settings.grpc_health, key="serve.grpc_health")
            health = liveness.HealthServer(str(address), told.questions)
            health.start()
            stack.callback(health.stop)
        yield
