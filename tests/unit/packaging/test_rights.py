"""Every right that a manifest asks for is used by a request of the driver, and every request of the driver has its right.

The driver's adapters make all the requests they can make, at the local cluster's API server, and what went out is compared with the manifests word
for word: a verb that nobody sends is a right too many.
"""

import collections.abc
import dataclasses
import datetime
import pathlib
import re
import threading
from typing import Any

import pytest
import yaml

from drakit import families
from drakit.core import claim as claims
from drakit.core import claim_status, context, names, ports
from drakit.core.slices import leader_election, node_selection, resource_slice
from drakit.kube import claims as kube_claims
from drakit.kube import client, events, leases, status, transport
from drakit.kube import slices as kube_slices
from drakit_cluster.access import roles
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import json_types, resources
from drakit_gpu import options
from fakes import installed_drivers, real_clock
from fakes import slice_samples as samples
from unit.cluster import samples as objects

ROOT = pathlib.Path(__file__).parents[3]
NOON = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)
CLOCK = real_clock.RealClock()
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1/(?:namespaces/[^/]+/)?(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?"
)

Used = set[tuple[str, str, str]]


class Recorded:
    """A transport that notes the right each request needs: group, resource (with its subresource) and verb, in RBAC's words."""

    def __init__(self, api: client.Client) -> None:
        self._api = api
        self.used: Used = set()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: collections.abc.Mapping[str, str] | None = None,
        body: transport.Body | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        self._note(path, VERBS.get(method, ""))
        return self._api.request(method, path, query=query, body=body, content_type=content_type, timeout=timeout)

    def stream(self, path: str, *, query: collections.abc.Mapping[str, str], timeout: float) -> transport.Stream:
        self._note(path, "watch")
        return self._api.stream(path, query=query, timeout=timeout)

    def _note(self, path: str, verb: str) -> None:
        found = _PATH.fullmatch(path)
        assert found is not None, path
        resource = f"{found['resource']}/{found['sub']}" if found["sub"] else found["resource"]
        self.used.add((found["group"] or "", resource, verb or ("get" if found["name"] else "list")))


@pytest.fixture
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        running.registry.create(resources.NODE, {"metadata": {"name": samples.NODE}})
        claim = running.registry.create(resources.CLAIM, objects.claim())
        running.registry.update(resources.CLAIM, objects.allocated(claim, objects.result()), subresource="status")
        yield running


@pytest.fixture
def recorded(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> collections.abc.Iterator[Recorded]:
    server.write_kubeconfig(tmp_path / "config")
    connection = client.connect(tmp_path / "config")
    yield Recorded(connection)
    connection.close()


def keep_slices(api: Recorded, *, node: str, reach: node_selection.PoolNodes | None = None) -> None:
    """All that a publisher asks for; the update is that of a process which did not list before."""

    def store() -> kube_slices.ApiSlices:
        return kube_slices.ApiSlices(api, driver=samples.DRIVER, node=node, clock=CLOCK)

    spec = dataclasses.replace(samples.spec_of(samples.plain_page("a")), node=node, reach=reach)
    made = store().create(resource_slice.Create(index=0, prefix="00000-", spec=spec))
    stop = threading.Event()
    other = threading.Thread(target=change_until, args=(store(), resource_slice.Create(index=1, prefix="00001-", spec=spec), stop))
    other.start()
    for notices, _ in enumerate(store().watch(stop), start=1):
        if notices > 1:  # The first comes before the watch.
            stop.set()
    other.join()
    renewed = store().update(resource_slice.Update(index=0, published=made, spec=spec))
    assert [*store().list()] == [renewed]
    store().delete(renewed)


def change_until(store: kube_slices.ApiSlices, wanted: resource_slice.Create, stop: threading.Event) -> None:
    """Make and delete a slice, as another process may, until ``stop`` is set."""
    while not stop.wait(0.05):
        store.delete(store.create(wanted))


def serve_claims(api: Recorded, server: apiserver.ApiServer) -> None:
    """All that a node driver asks of claims, and tells their users."""
    uid = names.ClaimUid(json_types.text(server.registry.get(resources.CLAIM, "c1", "default"), "metadata", "uid"))
    ref = claims.ClaimRef(uid=uid, namespace="default", name="c1")
    assert kube_claims.ApiClaims(api).fetch(ref).ref == ref
    assert kube_claims.ApiClaimList(api).allocated(samples.DRIVER, lambda pool, _: pool == samples.NODE) is not None
    writer = status.Writer(driver=samples.DRIVER, node=samples.NODE, pool="pool")
    ready = claim_status.Condition(type="Ready", status=True, reason="Prepared")
    status.ApiStatuses(api, writer, CLOCK).write(ref, claim_status.StatusChange(ready=ready))
    assert json_types.objects(server.registry.get(resources.CLAIM, "c1", "default"), "status", "devices")
    recorder = events.ApiEvents(api, component=samples.DRIVER, host=samples.NODE)
    for _ in range(2):
        recorder.record(ref, context.Event(reason="Throttled", message="the device is hot"), 1, NOON)


def granted(file: str) -> Used:
    """What the roles of a manifest allow."""
    roles = (one for one in yaml.load_all((ROOT / file).read_text(), Loader=yaml.CSafeLoader) if one["kind"] in ("ClusterRole", "Role"))
    return {right for one in roles for right in rights(one["rules"])}


def rights(rules: Any) -> Used:
    return {(group, name, verb) for rule in rules for group in rule["apiGroups"] for name in rule["resources"] for verb in rule["verbs"]}


def used_by_a_node(api: Recorded, server: apiserver.ApiServer) -> Used:
    """All of it; the right on ``resourceclaims/driver`` is what the API server asks of who writes a status."""
    keep_slices(api, node=samples.NODE)
    serve_claims(api, server)
    assert ("resource.k8s.io", "resourceclaims/status", "patch") in api.used
    return api.used | {("resource.k8s.io", "resourceclaims/driver", "associated-node:patch")}


MANIFESTS = [
    "daemonset/base/rbac.yaml",
    "examples/hello/deploy/rbac.yaml",
    "examples/cpu/deploy/rbac.yaml",
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_node_driver_asks_for_the_rights_it_uses_and_for_no_other(manifest: str, recorded: Recorded, server: apiserver.ApiServer) -> None:
    assert granted(manifest) == used_by_a_node(recorded, server)


def test_a_driver_with_binding_conditions_follows_claims_too(recorded: Recorded, server: apiserver.ApiServer) -> None:
    used = used_by_a_node(recorded, server)
    following = kube_claims.ApiBindings(recorded, driver=samples.DRIVER, pool="pool", clock=CLOCK)
    stop, result = threading.Event(), 0
    for standing in following.follow(stop):
        result += standing is not None
        if result == 1:
            server.registry.create(resources.CLAIM, objects.claim("c2"))
        elif result:
            stop.set()
    for example in ("everything", "fpga"):
        assert granted(f"examples/{example}/deploy/rbac.yaml") == used | recorded.used


def test_the_publisher_of_the_cluster_asks_for_the_rights_it_uses_and_for_no_other(recorded: Recorded) -> None:
    keep_slices(recorded, node="", reach=node_selection.AllNodes())
    store: ports.LeaseStore = leases.ApiLease(recorded, namespace="default", name="tpu.drakit.dev", timeout=5.0)
    made = store.write(leader_election.Lease(holder="me", duration=15.0, acquired=NOON, renewed=NOON))
    assert store.read() == store.write(made)
    assert granted("examples/tpu/deploy/publisher/rbac.yaml") == recorded.used


def test_the_doctor_and_the_local_cluster_know_the_rights_of_the_manifest() -> None:
    asked = granted("daemonset/base/rbac.yaml")
    known = {
        (one.group, f"{one.resource}/{one.subresource}" if one.subresource else one.resource, verb)
        for one in families.rights(installed_drivers.of("gpu"), options.GpuOptions())
        for verb in one.verbs
    }
    assert known == asked
    assert rights(roles.driver_rules()) == asked
