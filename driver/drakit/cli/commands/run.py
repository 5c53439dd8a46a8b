"""``drakit run``: the node driver, until it is told to stop."""

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer

from drakit import settings as values
from drakit.cli import composition, options, probes, process
from drakit.core import errors
from drakit.kube import claims, client, events, slices, status
from drakit.node import background, device_status, node, timing
from drakit.node.publishing import publisher
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

YOUNG_OBJECTS = 10_000
"""New containers after which Python looks for cycles among them; its own 700 are one call of the kubelet."""


def run(
    mock: options.Mock = None,
    folder: options.Folder = None,
    node_name: options.Node = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
    form: Annotated[Literal["auto", "flat", "mixins"] | None, typer.Option("--form", help="How slices are written.")] = None,
    log_format: Annotated[Literal["console", "json"] | None, typer.Option("--log-format", help="console or json.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option("--log-level", help="Least severe level to write.")
    ] = None,
    stop_with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", hidden=True, help="Stop when standard input ends, that is, when whoever started it is gone."),
    ] = False,
) -> None:
    """Serve this node's devices to the kubelet and publish them, until SIGTERM or Ctrl-C.

    A stop takes 25 s at most, whatever hangs; a second signal ends the driver at once. Prepared claims stay prepared either way.

    Settings come from defaults, then --config, then DRAKIT_ variables, then flags. Slices stay published when the driver stops, so that a quick
    restart costs nobody a device.

    It works in the kubelet's folders below /var/lib/kubelet, which must be there, and in /var/run/cdi, as root. With --folder DIR everything is
    below DIR, as drakit cluster lays it out, and any user will do.

    [bold]Examples[/bold]

      drakit run --node $(hostname)

      drakit run --mock dgx-a100-40gb-2gpu --node node-1 --folder ~/dra/node-1 --kubeconfig ~/dra/kubeconfig
    """
    flags = {"api.kubeconfig": kubeconfig, "publish.form": form, "log.format": log_format, "log.level": log_level}
    settings = options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=node_name, flags=flags)
    if not settings.node.name:
        raise errors.SettingsError("is required to publish devices; give --node or DRAKIT_NODE__NAME", key="node.name")
    _check_places(settings)
    unserved = composition.unserved(composition.narrowed(settings, families or ()))
    if unserved:
        _log.warning("devices not served", reason=unserved)
    stop = threading.Event()
    process.at_signals(stop)
    process.bounded(stop)
    if stop_with_stdin:
        threading.Thread(target=_stop_at_end_of_stdin, args=(stop,), daemon=True).start()
    serve(settings, composition.families(settings, only=families or ()), stop)


def _check_places(settings: values.Settings) -> None:
    """Raise SettingsError unless there is a kubelet's folder to register in: a driver is of no use without, and makes no system folder."""
    place = settings.node.registry_dir
    pretend = "; to pretend, beside drakit cluster, give --folder DIR as it prints" if settings.mock.machine else ""
    if not place.is_dir():
        raise errors.SettingsError(f"{place} is not there: no kubelet has run on this node{pretend}", key="node.registry_dir")
    for key, folder in (("registry_dir", place), ("plugins_dir", settings.node.plugins_dir), ("cdi_dir", settings.node.cdi_dir)):
        nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise errors.SettingsError(f"{nearest} cannot be written by this user: run it as root{pretend}", key=f"node.{key}")


def _stop_at_end_of_stdin(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


def serve(settings: values.Settings, families: Sequence[composition.Family], stop: threading.Event) -> None:
    """Serve all families until ``stop`` is set; raises when one cannot start or dies, and sets ``stop`` then."""
    api = client.connect(settings.api.kubeconfig, seconds=settings.api.timeout)
    node_probes = probes.Probes()
    nodes: list[node.Node] = []
    ending = contextlib.ExitStack()
    try:
        ending.enter_context(probes.served(settings.serve, node_probes))
        for family in families:
            started = _node(settings, family, api, node_probes, failed=stop.set)
            nodes.append(started)
            started.start()
            node_probes.add(family.spec.driver_name, started)
        node_probes.is_started = True
        _spare_collector()
        _log.info("serving", drivers=[family.spec.driver_name for family in families], node=settings.node.name)
        stop.wait()
        if any(started.failed.is_set() for started in nodes):
            raise errors.HardwareError(f"{process.PROGRAM.get()} run", "a part of the driver died; see the log")
    finally:
        stop.set()
        for started in reversed(nodes):
            started.stop()
        ending.close()
        api.close()


def _spare_collector() -> None:
    """Take what a start has made, which stays, out of the search for cycles, and search less often: a tenth of the claims a second under load."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _node(
    settings: values.Settings, family: composition.Family, api: client.Client, node_probes: probes.Probes, *, failed: Callable[[], None]
) -> node.Node:
    ticking, driver, name = timing.SystemClock(), family.spec.driver_name, settings.node.name
    meter = node_probes.metrics.of(driver)
    statuses = status.ApiStatuses(api, status.Writer(driver=driver, node=name, pool=family.spec.identity.pool), ticking)
    outside = node.NodeDependencies(
        claim_source=claims.ApiClaims(api, seen=statuses.seen),
        slice_store=slices.ApiSlices(api, driver=driver, node=name, clock=ticking, meter=meter),
        registry=settings.node.registry_dir,
        clock=ticking,
        rescan_seconds=settings.publish.rescan,
        form=publisher.FormChoice(settings.publish.form),
        instance=settings.node.pod_uid,
        meter=meter,
        failed=failed,
        api=background.ApiPorts(
            statuses=statuses,
            events=events.ApiEvents(api, component=driver, host=name),
            claim_list=claims.ApiClaimList(api),
            bindings=claims.ApiBindings(api, driver=driver, pool=family.spec.identity.pool, clock=ticking),
            conditions=device_status.Conditions(settings.report.conditions),
        ),
    )
    return node.Node(family.spec, family.folders, outside, node_name=name)
