"""``drakit dashboard``: serves a local web page with devices and claims."""

import contextlib
import threading
from typing import Annotated

import typer

from drakit.cli import composition, options, output, process
from drakit.core import errors
from drakit_tools import manifests as sources
from drakit_tools.commands import top

_PORT_MAX = 65535


@options.quietly
def dashboard(
    live: Annotated[
        bool, typer.Option("--live", help="Show all nodes of a cluster, that of --kubeconfig or KUBECONFIG, instead of this node.")
    ] = False,
    kubeconfig: sources.Kubeconfig = None,
    port: Annotated[int, typer.Option("--port", min=0, max=_PORT_MAX, help="Port on 127.0.0.1; 0 chooses a free port.")] = 0,
    mock: options.Mock = None,
    folder: options.Folder = None,
    node: options.Node = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
) -> None:
    """Show GPUs, NICs and claims on a local web page that updates with every change, until Ctrl-C.

    Without --live it shows this node, with the same sources as drakit show: memory slices of GPUs and their claims, what still fits, health and
    sensors, bandwidth of NICs with the rate and use of each share, and claims with their states. With --live it shows every node, from
    ResourceSlices and ResourceClaims, with the pods that wait and why, and events.

    Only you can open the page: it is served on 127.0.0.1, and its address has a random token. It is read-only and loads nothing from other hosts.

    [bold]Examples[/bold]

      drakit dashboard --mock dgx-a100-40gb-2gpu

      drakit dashboard --live --port 8800
    """
    from drakit_tools.dashboard import server

    settings = options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=node, local=True)
    is_live = live or kubeconfig is not None
    if is_live and mock is not None:
        raise errors.SettingsError("the page shows a cluster (--live) or this node; leave out one of the two", key="--mock")
    with contextlib.ExitStack() as stack:
        if is_live:
            read = stack.enter_context(top.of_cluster(kubeconfig, is_once=False))
        else:
            from drakit_tools.dashboard import node_source

            output.note(composition.unserved_note(settings, families or ()))
            read = node_source.NodeSource(settings, only=families or ()).state
        stop = threading.Event()
        process.at_signals(stop)
        address = stack.enter_context(server.serving(server.Dashboard(read), port))
        output.for_scripts(address)
        output.prose().print(f"Dashboard: {address}\nPress Ctrl-C to stop it.", markup=False, soft_wrap=True)
        stop.wait()
