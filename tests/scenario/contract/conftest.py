"""A world for each test."""

from collections.abc import Iterator

import pytest

from fakes import node_on_cluster


@pytest.fixture
def world() -> Iterator[node_on_cluster.NodeOnCluster]:
    with node_on_cluster.running() as made:
        yield made
