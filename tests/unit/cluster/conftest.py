"""A registry, the same registry behind real HTTPS, and a second server of it for users with roles."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import httpx
import pytest

from drakit_cluster.api import apiserver, registry, tls
from drakit_cluster.client import client
from drakit_cluster.client.api import Api

Connect: TypeAlias = Callable[[str], client.ApiClient]


@pytest.fixture
def memory() -> registry.Registry:
    return registry.Registry()


@pytest.fixture
def server(memory: registry.Registry) -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(memory) as running:
        yield running


@pytest.fixture
def guarded(memory: registry.Registry) -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(memory) as running:
        yield running


@pytest.fixture
def connect(guarded: apiserver.ApiServer) -> Iterator[Connect]:
    """Clients of the server with roles, by token."""
    opened: list[client.ApiClient] = []

    def open_(token: str) -> client.ApiClient:
        opened.append(client.ApiClient(server=guarded.url, ca_pem=guarded.ca_pem, token=token))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


@pytest.fixture
def https(server: apiserver.ApiServer) -> Iterator[client.ApiClient]:
    token = server.issue_token("tester", ("system:masters",))
    with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as connected:
        yield connected


@pytest.fixture
def raw(server: apiserver.ApiServer) -> Iterator[httpx.Client]:
    """A client that shows the server's answers as they are."""
    headers = {"authorization": f"Bearer {server.issue_token('tester', ('system:masters',))}"}
    with httpx.Client(base_url=server.url, verify=tls.client_context(server.ca_pem), headers=headers, trust_env=False) as connected:
        yield connected


@pytest.fixture(params=["registry", "https"])
def api(request: pytest.FixtureRequest) -> Api:
    """Every test that takes this runs twice: in process, and over the wire."""
    found: Api = request.getfixturevalue("memory" if request.param == "registry" else "https")
    return found
