"""``drakit run``: runs the node driver until it is stopped."""

import contextlib
import functools
import gc
import os
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer

from drakit import settings as values
from drakit.cli import composition, family_starts, options, probes, process
from drakit.core import errors
from drakit.kube import claims, client, events, slices, status
from drakit.kubelet import sockets
from drakit.node import background, device_status, node, timing
from drakit.node.publishing import publisher
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

YOUNG_OBJECTS = 10_000
"""New container objects after which Python's garbage collector runs. Its default of 700 is reached in one call of the kubelet."""


def run(
    mock: options.Mock = None,
    folder: options.Folder = None,
    node_name: options.Node = None,
    kubeconfig: options.Kubeconfig = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
    form: Annotated[
        Literal["auto", "flat", "mixins"] | None,
        typer.Option("--form", help="Form of the slices; auto chooses by what the server supports."),
    ] = None,
    log_format: Annotated[Literal["console", "json"] | None, typer.Option("--log-format", help="console or json.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option("--log-level", help="Least severe level to write.")
    ] = None,
    stop_with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", hidden=True, help="Stop when standard input ends, which is when the parent process has ended."),
    ] = False,
) -> None:
    """Serve this node's devices to the kubelet and publish them, until SIGTERM or Ctrl-C.

    A stop takes at most 25 s, even if a call hangs; a second signal ends the driver at once. Prepared claims stay prepared in both cases.

    Flags override DRAKIT_ variables, which override the file of --config, which overrides the defaults. Slices stay published when the driver
    stops, so a restart does not take devices from pods.

    The driver runs as root and uses the kubelet's folders below /var/lib/kubelet, which must exist, and /var/run/cdi. With --folder DIR it uses only
    DIR, in the layout of drakit cluster, and any user can run it.

    [bold]Examples[/bold]

      drakit run --node $(hostname)

      drakit run --mock dgx-h100 --node node-1 --kubeconfig ~/dra/kubeconfig
    """
    flags = {"api.kubeconfig": kubeconfig, "publish.form": form, "log.format": log_format, "log.level": log_level}
    settings = options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=node_name, flags=flags)
    if not settings.node.name:
        raise errors.SettingsError("is required to publish devices; add --node NAME, or set DRAKIT_NODE__NAME", key="node.name")
    _check_places(settings)
    served = composition.families_to_serve(settings, only=families or ())
    for name, why in composition.unserved(composition.narrowed(settings, families or ())).items():
        if name not in {family.name for family in served}:
            _log.warning("devices not served", reason=why)
    stop = threading.Event()
    process.at_signals(stop)
    process.bounded(stop)
    if stop_with_stdin:
        threading.Thread(target=_stop_at_end_of_stdin, args=(stop,), daemon=True).start()
    serve(settings, served, stop)


def _check_places(settings: values.Settings) -> None:
    """Raise SettingsError if the kubelet's registration folder is missing, or if a folder is not writable."""
    place = settings.node.registry_dir
    hint = "; with drakit cluster, add the --folder DIR that it prints" if settings.mock.machine else ""
    if not place.is_dir():
        raise errors.SettingsError(f"{place} does not exist: no kubelet has run on this node{hint}", key="node.registry_dir")
    for key, folder in (("registry_dir", place), ("plugins_dir", settings.node.plugins_dir), ("cdi_dir", settings.node.cdi_dir)):
        nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise errors.SettingsError(f"{nearest} is not writable for this user; run the driver as root{hint}", key=f"node.{key}")


def _stop_at_end_of_stdin(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


def serve(settings: values.Settings, families: Sequence[composition.NodeFamily], stop: threading.Event) -> None:
    """Serve all families until ``stop`` is set. Raise, and set ``stop``, if a family cannot start or fails.

    A family that waits for the path of its socket is retried, unless it is the only one left.
    """
    api = client.connect(settings.api.kubeconfig, seconds=settings.api.timeout)
    node_probes = probes.Probes()
    nodes: list[node.Node] = []
    ending = contextlib.ExitStack()

    def start(family: composition.NodeFamily) -> None:
        starting = _node(settings, family, api, node_probes, failed=stop.set)
        starting.start()
        nodes.append(starting)
        node_probes.add(family.spec.driver_name, starting)

    starts = family_starts.FamilyStarts(
        [
            family_starts.FamilyStart(
                driver=family.spec.driver_name,
                socket=sockets.service_path(family.folders.home, settings.node.pod_uid),
                start=functools.partial(start, family),
            )
            for family in families
        ]
    )
    node_probes.ready.add("sockets", starts.reason)
    try:
        ending.enter_context(probes.served(settings.serve, node_probes))
        starts.start()
        node_probes.is_started = True
        _spare_collector()
        _log.info("serving", drivers=[family.spec.driver_name for family in families], node=settings.node.name)
        while not stop.wait(family_starts.RETRY_SECONDS if starts.waiting else None):
            starts.retry()
        if any(started.failed.is_set() for started in nodes):
            raise errors.HardwareError(f"{process.PROGRAM.get()} run", "a thread of the driver failed; see the log")
    finally:
        stop.set()
        for started in reversed(nodes):
            started.stop()
        ending.close()
        api.close()


def _spare_collector() -> None:
    """Exclude the objects of the start from garbage collection, and collect less often: collections cost a tenth of the claims per second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _node(
    settings: values.Settings, family: composition.NodeFamily, api: client.Client, node_probes: probes.Probes, *, failed: Callable[[], None]
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
            events=events.ApiEvents(api, component=driver, host=name, recent=statuses.recent),
            claim_list=claims.ApiClaimList(api),
            bindings=claims.ApiBindings(api, driver=driver, pool=family.spec.identity.pool, clock=ticking),
            conditions=device_status.Conditions(settings.report.conditions),
        ),
    )
    return node.Node(family.spec, family.folders, outside, node_name=name)
