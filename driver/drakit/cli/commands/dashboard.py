"""``drakit dashboard``: a local web page of devices and claims."""

import contextlib
import threading
from typing import Annotated

import typer

from drakit.cli import composition, options, output, process
from drakit.core import errors

_PORT_MAX = 65535


@options.quietly
def dashboard(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Show all nodes of the cluster of --kubeconfig, or of the pod's account, not this node.")
    ] = False,
    kubeconfig: options.Kubeconfig = None,
    port: Annotated[int, typer.Option("--port", min=0, max=_PORT_MAX, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    mock: options.Mock = None,
    folder: options.Folder = None,
    node: options.Node = None,
    config: options.Config = None,
    assignments: options.Set = None,
    families: options.Families = None,
) -> None:
    """Show GPUs, NICs and claims on a local web page that follows every change, until Ctrl-C.

    Without --cluster it shows this node, read as drakit show reads it: memory slices of GPUs and who has them, what still fits, health, bandwidth
    of NICs with each share's rate and use, claims and their steps. With --cluster it shows every node from ResourceSlices and ResourceClaims, with
    events.

    The page is for you alone: it is served on 127.0.0.1 under an address with a random token, reads only, and loads nothing from elsewhere.

    [bold]Examples[/bold]

      drakit dashboard --mock dgx-a100-40gb-2gpu

      drakit dashboard --cluster --kubeconfig ~/.kube/config --port 8800
    """
    from drakit.cli.dashboard import server

    settings = options.read(config=config, assignments=assignments, mock=mock, folder=folder, node=node, local=True)
    if kubeconfig is not None and not cluster:
        raise errors.SettingsError("is for --cluster: add it", key="--kubeconfig")
    with contextlib.ExitStack() as stack:
        if cluster:
            from drakit.cli.dashboard import cluster_source
            from drakit.kube import client
            from drakit.node import timing

            api = stack.enter_context(contextlib.closing(client.connect(kubeconfig)))
            source = cluster_source.ClusterSource(api, timing.SystemClock(), f"cluster {api.server}")
            stack.callback(source.close)
            read = source.state
        else:
            from drakit.cli.dashboard import node_source

            output.note(composition.unserved(composition.narrowed(settings, families or ())))
            read = node_source.NodeSource(settings, only=families or ()).state
        stop = threading.Event()
        process.at_signals(stop)
        address = stack.enter_context(server.serving(server.Dashboard(read), port))
        output.for_scripts(address)
        output.prose().print(f"Dashboard: {address}\nCtrl-C ends it.", markup=False, soft_wrap=True)
        stop.wait()
