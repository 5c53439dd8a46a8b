"""An API server of the local cluster, and what the dashboard shows of it."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator

from drakit.kube import client
from drakit_cluster.api import apiserver, registry
from drakit_tools.dashboard import cluster_source, model
from fakes import waits


@contextlib.contextmanager
def api_server(folder: pathlib.Path) -> Iterator[tuple[registry.Registry, client.Client]]:
    """Run an API server; yield its objects and a connection to it."""
    store = registry.Registry()
    with apiserver.ApiServer(store) as running:
        running.write_kubeconfig(folder / "kubeconfig")
        connection = client.connect(folder / "kubeconfig")
        yield store, connection
        connection.close()


def until(source: cluster_source.ClusterSource, holds: Callable[[model.State], bool]) -> model.State:
    """Return the first state for which ``holds`` is true; the watches bring it within a moment."""
    end = time.monotonic() + waits.SECONDS
    while not holds(state := source.state()):
        assert time.monotonic() < end, state
        time.sleep(0.02)
    return state
