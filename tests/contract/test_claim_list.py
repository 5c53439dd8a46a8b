"""What every ``ports.ClaimList`` finds: the fake, and the local cluster's API server page by page."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import ports
from drakit.kube import claim_codec, client
from drakit.kube import claims as kube_claims
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources
from fakes import claim_statuses
from unit.cluster import samples


@pytest.fixture
def server() -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        yield running


def made(server: apiserver.ApiServer) -> list[claims.Claim]:
    """Five claims: three with our device, one with another driver's, one that waits."""
    found = []
    for index, driver in enumerate(("gpu.drakit.dev", "gpu.drakit.dev", "nic.drakit.dev", "", "gpu.drakit.dev")):
        name = f"c{index}"
        server.registry.create(resources.CLAIM, samples.claim(name))
        if driver:
            body = samples.allocated(server.registry.get(resources.CLAIM, name, "default"), samples.result(driver=driver))
            stored = server.registry.update(resources.CLAIM, body, subresource="status")
            found.append(claim_codec.decode(stored, claim_codec.ref_of(stored)))
    return found


@pytest.fixture(params=["fake", "api server"])
def listing(request: pytest.FixtureRequest, server: apiserver.ApiServer, tmp_path: pathlib.Path) -> Iterator[ports.ClaimList]:
    known = made(server)
    if request.param == "fake":
        yield claim_statuses.FakeClaimList(*known)
        return
    server.write_kubeconfig(tmp_path / "config")
    api = client.connect(tmp_path / "config")
    yield kube_claims.ApiClaimList(api, page=2)
    api.close()


def of_n1(pool: str, _device: str) -> bool:
    return pool == "n1"


def test_the_claims_of_one_drivers_pool_are_found_and_no_others(listing: ports.ClaimList) -> None:
    assert [claim.ref.name for claim in listing.allocated("gpu.drakit.dev", of_n1).claims] == ["c0", "c1", "c4"]
    assert [claim.ref.name for claim in listing.allocated("nic.drakit.dev", of_n1).claims] == ["c2"]
    assert listing.allocated("gpu.drakit.dev", lambda pool, _: pool == "n2") == claims.Listed()
