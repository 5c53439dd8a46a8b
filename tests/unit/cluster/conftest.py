"""A registry, and the same registry behind real HTTPS."""

from collections.abc import Iterator

import pytest

from drakit.cluster import apiserver, client, registry
from drakit.cluster.api import Api


@pytest.fixture
def memory() -> registry.Registry:
    return registry.Registry()


@pytest.fixture
def server(memory: registry.Registry) -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(memory) as running:
        yield running


@pytest.fixture
def https(server: apiserver.ApiServer) -> Iterator[client.ApiClient]:
    token = server.issue_token("tester", ("system:masters",))
    with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as connected:
        yield connected


@pytest.fixture(params=["registry", "https"])
def api(request: pytest.FixtureRequest) -> Api:
    """Every test that takes this runs twice: in process, and over the wire."""
    found: Api = request.getfixturevalue("memory" if request.param == "registry" else "https")
    return found
