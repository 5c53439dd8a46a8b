"""A running local cluster for tests of features, spoken to over HTTPS."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from drakit_cluster.objects.features import FeatureGates
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster


@contextlib.contextmanager
def running(*nodes: str, gates: FeatureGates | None = None) -> Iterator[QuickCluster]:
    """Yield a cluster with a plugin on every node."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk", dir="/tmp"))
    cluster = QuickCluster(folder, nodes=nodes or (objects.NODE,), gates=gates, https=True)
    try:
        cluster.start()
        for node in nodes or (objects.NODE,):
            cluster.plugin(node=node)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
