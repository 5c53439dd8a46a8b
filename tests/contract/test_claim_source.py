"""What every ``ports.ClaimSource`` promises: the fake, a file, and the local cluster's API server over HTTPS."""

import collections.abc
import dataclasses
import json
import pathlib

import pytest

from drakit.core import claim as claims
from drakit.core import errors, names, ports, quantity
from drakit.kube import claim_codec, client, file_claims
from drakit.kube import claims as kube_claims
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources
from fakes import claim_samples as samples
from fakes import claim_source

ALLOCATED = samples.REF.name
WAITING = "waiting"


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """A source that knows one allocated claim and one that waits for the scheduler."""

    source: ports.ClaimSource
    allocated: claims.ClaimRef
    waiting: claims.ClaimRef


def in_memory(folder: pathlib.Path) -> World:
    known = claim_codec.decode(samples.allocated(), samples.REF)
    waiting = claims.ClaimRef(uid=samples.OTHER_UID, namespace=samples.REF.namespace, name=WAITING)
    source = claim_source.FakeClaimSource(known)
    source.put_unallocated(waiting)
    return World(source=source, allocated=samples.REF, waiting=waiting)


def in_a_file(folder: pathlib.Path) -> World:
    path = folder / "claims.yaml"
    documents = [samples.allocated(), samples.unallocated(name=WAITING, uid=str(samples.OTHER_UID))]
    path.write_text("\n---\n".join(json.dumps(document) for document in documents), encoding="utf-8")
    source = file_claims.FileClaims(path)
    allocated, waiting = source.refs
    return World(source=source, allocated=allocated, waiting=waiting)


@pytest.fixture(scope="module")
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        running.registry.create(resources.NAMESPACE, {"metadata": {"name": samples.REF.namespace}})
        yield running


@pytest.fixture
def at_the_api_server(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> collections.abc.Iterator[World]:
    claims_api, namespace = resources.CLAIM, samples.REF.namespace
    made = server.registry.create(claims_api, samples.unallocated(), namespace=namespace)
    made["status"] = samples.CLAIM["status"]
    allocated = server.registry.update(claims_api, made, subresource="status")
    waiting = server.registry.create(claims_api, samples.unallocated(name=WAITING), namespace=namespace)
    server.write_kubeconfig(tmp_path / "config")
    connection = client.connect(tmp_path / "config")
    yield World(source=kube_claims.ApiClaims(connection), allocated=ref_of(allocated), waiting=ref_of(waiting))
    connection.close()
    server.registry.delete_collection(claims_api, namespace=namespace)


def ref_of(found: object) -> claims.ClaimRef:
    assert isinstance(found, dict)
    return claim_codec.ref_of(found)


@pytest.fixture(params=["fake", "file", "api server"])
def world(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> World:
    if request.param == "api server":
        found: World = request.getfixturevalue("at_the_api_server")
        return found
    return {"fake": in_memory, "file": in_a_file}[request.param](tmp_path)


def fault(source: ports.ClaimSource, ref: claims.ClaimRef) -> errors.ClaimFault:
    with pytest.raises(errors.ClaimError) as raised:
        source.fetch(ref)
    return raised.value.fault


def test_an_allocated_claim_is_returned_complete(world: World) -> None:
    found = world.source.fetch(world.allocated)
    assert found.ref == world.allocated
    gpu, nic = found.results
    assert (gpu.request, gpu.base_request, gpu.driver, gpu.device) == ("gpu/small", "gpu", "gpu.drakit.dev", "gpu-0-mig-1g-5gb-0")
    assert (gpu.pool, gpu.share_id, dict(gpu.consumed_capacity), gpu.admin_access) == ("node-1", None, {}, False)
    assert (nic.share_id, dict(nic.consumed_capacity)) == (samples.SHARE_ID, {"bandwidth": quantity.Quantity.parse("200M")})
    weak, strong = found.configs_of("gpu.drakit.dev")
    assert (weak.source, weak.requests) == (claims.ConfigSource.CLASS, ())
    assert (strong.source, strong.requests) == (claims.ConfigSource.CLAIM, ("gpu",))
    assert strong.parameters == {"sharing": {"interval": 2.5, "since": "2026-01-02", "ids": (1, 2)}}


def test_a_claim_that_does_not_exist_is_not_found(world: World) -> None:
    assert fault(world.source, dataclasses.replace(world.allocated, name="nobody")) is errors.ClaimFault.NOT_FOUND
    assert fault(world.source, dataclasses.replace(world.allocated, namespace="elsewhere")) is errors.ClaimFault.NOT_FOUND


def test_a_claim_without_allocation_is_refused(world: World) -> None:
    assert fault(world.source, world.waiting) is errors.ClaimFault.NOT_ALLOCATED


def test_a_claim_of_the_same_name_and_another_uid_is_refused(world: World) -> None:
    stranger = dataclasses.replace(world.allocated, uid=names.ClaimUid("12345678-1234-1234-1234-123456789012"))
    assert fault(world.source, stranger) is errors.ClaimFault.REPLACED


def test_the_allocation_is_checked_before_the_uid(world: World) -> None:
    stranger = dataclasses.replace(world.waiting, uid=names.ClaimUid("12345678-1234-1234-1234-123456789012"))
    assert fault(world.source, stranger) is errors.ClaimFault.NOT_ALLOCATED
