"""A cluster for each test, in a folder with a short name."""

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from unit.cluster_kubelet.town import Town


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def town(folder: pathlib.Path) -> Iterator[Town]:
    running = Town(folder).start()
    yield running
    running.stop()


@pytest.fixture
def pair(folder: pathlib.Path) -> Iterator[Town]:
    """A cluster of two nodes, each with a plugin."""
    running = Town(folder, nodes=("node-1", "node-2")).start()
    for node in ("node-1", "node-2"):
        running.plugin(node=node)
    yield running
    running.stop()
