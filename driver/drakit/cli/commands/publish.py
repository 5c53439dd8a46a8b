"""``drakit publish``: publishes devices that belong to no single node, once for the whole cluster."""

import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer

from drakit import settings as values
from drakit.cli import composition, options, process
from drakit.core import errors, inventory
from drakit.core.slices import leader_election as election_rules
from drakit.kube import client, leases, slices
from drakit.node import timing
from drakit.node.publishing import cluster_publisher, publisher
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Pools = Callable[[], Sequence[inventory.ClusterPool]]
LIVENESS_SECONDS = 1.0
JOIN_SECONDS = 5.0


def publish(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="A device family with devices of several nodes.")],
    mock: options.Mock = None,
    kubeconfig: options.Kubeconfig = None,
    once: Annotated[
        bool, typer.Option("--once", help="Publish once and exit; fail if another publisher leads or the API server rejects a slice.")
    ] = False,
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw", help="Delete every slice of the driver that belongs to no node, and exit. Do this last when you uninstall."
        ),
    ] = False,
    config: options.Config = None,
    assignments: options.Set = None,
    form: Annotated[
        Literal["auto", "flat", "mixins"] | None,
        typer.Option("--form", help="Form of the slices; auto chooses by what the server supports."),
    ] = None,
    log_format: Annotated[Literal["console", "json"] | None, typer.Option("--log-format", help="console or json.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option("--log-level", help="Least severe level to write.")
    ] = None,
) -> None:
    """Publish devices that span several nodes, for the whole cluster, until SIGTERM or Ctrl-C.

    If a driver has several publishers, only the holder of a Lease writes (settings election.*). It releases the Lease when it stops; if it is
    killed, another publisher takes over after election.duration. On each node, drakit run --family FAMILY prepares the node's part of a device.
    Slices stay published when the publisher stops. The publisher owns all slices of the driver that belong to no node, and deletes unknown pools.

    The node image has no such family; examples/tpu of drakit's repository is one.

    [bold]Examples[/bold]

      drakit publish tpu --mock tpu-v5e-8x8

      drakit publish tpu --mock tpu-v5e-8x8 --once --kubeconfig ~/dra/kubeconfig

      drakit publish tpu --mock tpu-v5e-8x8 --withdraw

      drakit publish tpu --mock tpu-v5e-8x8 --set election.duration=30
    """
    flags = {"api.kubeconfig": kubeconfig, "publish.form": form, "log.format": log_format, "log.level": log_level}
    settings = options.read(config=config, assignments=assignments, mock=mock, flags=flags)
    served = composition.cluster_family(settings, family)
    stop = threading.Event()
    process.at_signals(stop)
    api = client.connect(settings.api.kubeconfig, seconds=settings.api.timeout)
    try:
        office = Office(settings, served.driver_name, api)
        if once or withdraw:
            office.publish_once(() if withdraw else served.pools())
        else:
            office.serve(served.pools, stop)
    finally:
        api.close()


class Office:
    """A candidate for the driver's Lease, with the publisher that writes while it holds the Lease."""

    def __init__(self, settings: values.Settings, driver: str, api: client.Client) -> None:
        ticking = timing.SystemClock()
        self._driver = driver
        self._me = settings.election.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        terms = _terms(settings.election)
        lease = leases.ApiLease(
            api, namespace=settings.election.namespace, name=settings.election.name or driver, timeout=terms.renew_deadline / 2
        )
        self._election = cluster_publisher.Election(lease, me=self._me, terms=terms, clock=ticking)
        self._publisher = cluster_publisher.ClusterPublisher(
            driver,
            store=slices.ApiSlices(api, driver=driver, clock=ticking),
            leads=self._election.leads,
            clock=ticking,
            form=publisher.FormChoice(settings.publish.form),
        )
        self._failed = threading.Event()
        self._clock = ticking
        self._rescan = settings.publish.rescan

    def publish_once(self, offered: Sequence[inventory.ClusterPool]) -> None:
        """Acquire the Lease, publish, and release it; raises RetryError if another publisher holds the Lease."""
        self._election.step()
        if not self._election.leads():
            raise errors.RetryError(f"another publisher leads: {self._election.holder}", after=1.0)
        try:
            self._publisher.offer(offered)
            writes = self._publisher.reconcile()
            _log.info("slices published", driver=self._driver, pools=[pool.name for pool in offered], writes=writes)
        finally:
            self._election.release()

    def serve(self, pools: Pools, stop: threading.Event) -> None:
        """Publish the pools now and at intervals while the Lease is held; after ``stop`` is set, release the Lease after the last write.

        Raises what the first call of ``pools`` raises, and HardwareError if a thread fails.
        """
        offered = pools()
        self._publisher.offer(offered)
        ending = threading.Event()
        publishing = self._spawn("publisher", lambda: self._publisher.run(ending))
        self._spawn("slice-watch", lambda: self._publisher.follow(ending))
        electing = self._spawn("election", lambda: self._election.run(ending, self._publisher.wake))
        _log.info("publisher election started", driver=self._driver, identity=self._me)
        try:
            due = self._clock.monotonic() + self._rescan
            while not stop.wait(LIVENESS_SECONDS):
                if self._failed.is_set():
                    raise errors.HardwareError("publish", "publisher thread failed; see the log")
                if self._clock.monotonic() >= due:
                    offered = self._read_again(pools, offered)
                    due = self._clock.monotonic() + self._rescan
        finally:
            ending.set()
            self._publisher.wake()
            for thread in (publishing, electing):
                thread.join(JOIN_SECONDS)
            if not publishing.is_alive():
                self._election.release()

    def _read_again(self, pools: Pools, before: Sequence[inventory.ClusterPool]) -> Sequence[inventory.ClusterPool]:
        """Read the pools and publish changes. After an error the previous pools stay published."""
        try:
            offered = pools()
            if offered != before:
                self._publisher.offer(offered)
        except errors.DrakitError as error:
            _log.error("discovery failed: previous pools kept", driver=self._driver, error=str(error))
        except Exception:  # noqa: BLE001 - an author's bug must not take the pools from the cluster
            _log.exception("bug in driver: previous pools kept", driver=self._driver)
        else:
            return offered
        return before

    def _spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001 - after any error the process must exit and be restarted
                _log.exception("publisher thread failed", part=name)
                self._failed.set()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread


def _terms(chosen: values.Election) -> election_rules.Terms:
    try:
        return election_rules.Terms(duration=chosen.duration, renew_deadline=chosen.renew_deadline, retry=chosen.retry)
    except errors.SettingsError as error:
        raise errors.SettingsError(str(error).partition(": ")[2], key=f"election.{error.key}") from error
