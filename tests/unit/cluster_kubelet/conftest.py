"""A cluster for each test, in a folder with a short name."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from unit.cluster_kubelet.quick_cluster import QuickCluster


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def cluster(folder: pathlib.Path) -> Iterator[QuickCluster]:
    running = QuickCluster(folder).start()
    yield running
    running.stop()


@pytest.fixture
def pair(folder: pathlib.Path) -> Iterator[QuickCluster]:
    """A cluster of two nodes, each with a plugin."""
    running = QuickCluster(folder, nodes=("node-1", "node-2")).start()
    for node in ("node-1", "node-2"):
        running.plugin(node=node)
    yield running
    running.stop()
