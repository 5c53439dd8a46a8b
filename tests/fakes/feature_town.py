"""A running local cluster for tests of features, spoken to over HTTPS."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from drakit_cluster.objects.features import FeatureGates
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.town import Town


@contextlib.contextmanager
def running(*nodes: str, gates: FeatureGates | None = None) -> Iterator[Town]:
    """Yield a cluster with a plugin on every node."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    town = Town(folder, nodes=nodes or (objects.NODE,), gates=gates, https=True)
    try:
        town.start()
        for node in nodes or (objects.NODE,):
            town.plugin(node=node)
        yield town
    finally:
        town.stop()
        shutil.rmtree(folder, ignore_errors=True)
