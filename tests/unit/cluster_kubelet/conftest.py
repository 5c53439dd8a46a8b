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
