"""Who may change what in a claim's status: the sub-resource, then binding, then each driver's devices, by node."""

from collections.abc import Callable

import pytest

from drakit_cluster.access import roles, users
from drakit_cluster.admission import claim_status
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, CLUSTER_ROLE, NAMESPACE
from unit.cluster import samples
from unit.cluster.test_roles import grant, rule

Connect = Callable[[str], client.ApiClient]
USER = "system:serviceaccount:drivers:gpu"
STATUS = "resourceclaims/status"
DRIVER = "resourceclaims/driver"


def on_node(name: str = "n1") -> Json:
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}


@pytest.fixture
def allocated(memory: registry.Registry) -> Object:
    memory.create(CLAIM, samples.claim())
    wanted = samples.allocated(samples.claim(), samples.result(), samples.result("nic-0", driver="nic.drakit.dev"))
    json_types.mapping(wanted, "status", "allocation")["nodeSelector"] = on_node()
    return memory.update(CLAIM, wanted, subresource="status")


def as_driver(guarded: apiserver.ApiServer, connect: Connect, *, node: str = "n1") -> client.ApiClient:
    """A client with the token of a pod on ``node``; an empty one means a token without a node."""
    extra = {users.NODE_NAME: (node,)} if node else {}
    return connect(guarded.issue_token(USER, extra=extra))


def apply(api: client.ApiClient, *devices: Object, **metadata: Json) -> Object:
    body: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c1", "namespace": "default"}}
    json_types.mapping(body, "metadata").update(metadata)
    body["status"] = {"devices": list(devices)}
    return api.patch(CLAIM, "c1", body, namespace="default", kind=PatchKind.APPLY, subresource="status", manager="gpu", force=True)


def put(api: client.ApiClient, claim: Object, *devices: Object) -> Object:
    body = claim | {"status": json_types.mapping(claim, "status") | {"devices": list(devices)}}
    return api.update(CLAIM, body, subresource="status")


NODE_PATCH = rule("associated-node:patch", DRIVER, names="gpu.drakit.dev")
NODE_UPDATE = rule("associated-node:update", DRIVER, names="gpu.drakit.dev")


def test_an_apply_needs_patch_of_status_and_of_the_driver_on_its_node(
    memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect, allocated: Object
) -> None:
    grant(memory, USER, rule("patch", STATUS), NODE_PATCH)
    written = apply(as_driver(guarded, connect), samples.device_status(conditions=samples.ready()))
    (device,) = json_types.objects(written, "status", "devices")
    assert device["conditions"] == samples.ready()
    assert len(json_types.items(written, "status", "allocation", "devices", "results")) == 2
    assert json_types.text(allocated, "metadata", "resourceVersion") != json_types.text(written, "metadata", "resourceVersion")


def test_a_put_needs_the_update_verbs(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect, allocated: Object) -> None:
    grant(memory, USER, rule("update", STATUS), NODE_UPDATE)
    api = as_driver(guarded, connect)
    assert json_types.items(put(api, allocated, samples.device_status()), "status", "devices") == [samples.device_status()]
    with pytest.raises(errors.ForbiddenError):
        apply(api, samples.device_status())


@pytest.mark.parametrize(
    "given, node, verbs",
    [
        ((), "n1", "[associated-node:patch arbitrary-node:patch]"),
        ((NODE_UPDATE,), "n1", "[associated-node:patch arbitrary-node:patch]"),
        ((rule("associated-node:*", DRIVER),), "n1", "[associated-node:patch arbitrary-node:patch]"),
        ((rule("associated-node:patch", DRIVER, names="nic.drakit.dev"),), "n1", "[associated-node:patch arbitrary-node:patch]"),
        ((NODE_PATCH,), "n2", "[arbitrary-node:patch]"),
        ((NODE_PATCH,), "", "[arbitrary-node:patch]"),
    ],
)
@pytest.mark.usefixtures("allocated")
def test_without_the_drivers_verb_it_is_invalid_and_says_which_verb_is_missing(
    memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect, given: tuple[Json, ...], node: str, verbs: str
) -> None:
    grant(memory, USER, rule("patch", STATUS), *given)
    with pytest.raises(errors.InvalidError) as refused:
        apply(as_driver(guarded, connect, node=node), samples.device_status())
    (cause,) = refused.value.details.causes
    assert (cause.field, cause.reason) == ("status.devices", "FieldValueForbidden")
    assert f'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="{verbs}" permission' in cause.message
    assert f'User "{USER}" cannot ' in cause.message


def test_with_the_gate_off_the_right_to_the_status_is_enough() -> None:
    memory = registry.Registry(gates=FeatureGates.of({"DRAResourceClaimGranularStatusAuthorization": False}))
    memory.create(CLAIM, samples.claim())
    memory.update(CLAIM, samples.allocated(samples.claim(), samples.result()), subresource="status")
    grant(memory, USER, rule("patch", STATUS))
    with apiserver.ApiServer(memory) as server:
        token = server.issue_token(USER)
        with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as api:
            assert json_types.items(apply(api, samples.device_status()), "status", "devices")


def test_a_driver_with_the_rights_of_the_cluster_writes_its_devices(
    memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect, allocated: Object
) -> None:
    for resource, body in roles.driver_objects("drivers", "gpu", writes_status_of=["gpu.drakit.dev"]):
        memory.create(resource, body)
    api = as_driver(guarded, connect)
    assert json_types.items(apply(api, samples.device_status()), "status", "devices")
    written = apply(api, samples.device_status(data={"a": 1}))
    assert json_types.mapping(written, "status", "devices", 0, "data") == {"a": 1}
    with pytest.raises(errors.ForbiddenError):
        put(api, allocated, samples.device_status())


@pytest.mark.usefixtures("allocated")
def test_without_the_right_to_the_status_it_is_forbidden(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> None:
    grant(memory, USER, NODE_PATCH, rule("patch", "resourceclaims"))
    with pytest.raises(errors.ForbiddenError, match='cannot patch resource "resourceclaims/status"'):
        apply(as_driver(guarded, connect), samples.device_status())


@pytest.mark.parametrize("node", ["n2", ""])
@pytest.mark.usefixtures("allocated")
def test_the_arbitrary_node_verb_allows_any_node(
    memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect, node: str
) -> None:
    grant(memory, USER, rule("patch", STATUS), rule("arbitrary-node:patch", DRIVER))
    written = apply(as_driver(guarded, connect, node=node), samples.device_status())
    assert json_types.items(written, "status", "devices")


@pytest.mark.usefixtures("allocated")
def test_rights_are_checked_for_each_changed_driver_only(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> None:
    grant(memory, USER, rule("patch", STATUS), NODE_PATCH)
    nic: Object = {"driver": "nic.drakit.dev", "pool": "n1", "device": "nic-0"}
    api = as_driver(guarded, connect)
    with pytest.raises(errors.InvalidError) as refused:
        apply(api, samples.device_status(), nic)
    assert len(refused.value.details.causes) == 1
    assert '"nic.drakit.dev" is forbidden' in refused.value.message
    stored = memory.get(CLAIM, "c1", "default")
    json_types.mapping(stored, "status")["devices"] = [nic]
    memory.update(CLAIM, stored, subresource="status")
    written = apply(api, samples.device_status())
    assert [json_types.text(one, "driver") for one in json_types.objects(written, "status", "devices")] == [
        "nic.drakit.dev",
        "gpu.drakit.dev",
    ]
    gone = apply(api)
    assert [json_types.text(one, "driver") for one in json_types.objects(gone, "status", "devices")] == ["nic.drakit.dev"]


@pytest.mark.parametrize("field", ["allocation", "reservedFor"])
def test_allocation_and_reservations_need_the_binding(
    memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect, allocated: Object, field: str
) -> None:
    grant(memory, USER, rule("update", STATUS), rule("update", "resourceclaims/driver"))
    api = as_driver(guarded, connect)
    change: Object = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    wanted = allocated | {"status": {} if field == "allocation" else json_types.mapping(allocated, "status") | change}
    with pytest.raises(errors.InvalidError) as refused:
        api.update(CLAIM, wanted, subresource="status")
    (cause,) = refused.value.details.causes
    assert cause.field == "status"
    text = (
        'Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission'
    )
    assert text in cause.message
    role = memory.get(CLUSTER_ROLE, f"for-{USER}")
    memory.update(CLUSTER_ROLE, role | {"rules": [*json_types.items(role, "rules"), rule("update", "resourceclaims/binding")]})
    stored = api.update(CLAIM, wanted, subresource="status")
    assert json_types.at(stored, "status", field) == (None if field == "allocation" else change["reservedFor"])


def test_the_node_of_an_allocation_is_read_strictly() -> None:
    fields: list[Json] = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert claim_status.allocated_node({"nodeSelector": on_node()}) == "n1"
    expression: Json = {"key": "zone", "operator": "In", "values": ["a"]}
    for terms in (
        [],
        [{"matchFields": fields}, {"matchFields": fields}],
        [{"matchFields": fields, "matchExpressions": [expression]}],
        [{"matchExpressions": [expression]}],
        [{"matchFields": [*fields, *fields]}],
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}],
        [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}],
    ):
        listed: list[Json] = [*terms]
        assert claim_status.allocated_node({"nodeSelector": {"nodeSelectorTerms": listed}}) == ""
    assert claim_status.allocated_node({}) == ""


@pytest.mark.usefixtures("allocated")
def test_a_wrong_uid_or_share_is_refused_with_every_right(guarded: apiserver.ApiServer, connect: Connect) -> None:
    admin = connect(guarded.issue_token("root", (users.MASTERS,)))
    with pytest.raises(errors.InvalidError, match="must be an allocated device in the claim"):
        apply(admin, samples.device_status(shareID=samples.SHARE))
    with pytest.raises(errors.InvalidError, match=r"metadata\.uid: Invalid value: .* field is immutable"):
        apply(admin, samples.device_status(), uid="11111111-1111-4111-8111-111111111111")


ADMIN: Json = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}


def label(memory: registry.Registry, value: str) -> None:
    memory.patch(NAMESPACE, "default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}}, kind=PatchKind.MERGE)


@pytest.mark.parametrize("value", ["", "True", "false", "yes"])
def test_admin_access_needs_the_label_of_the_namespace(memory: registry.Registry, value: str) -> None:
    devices: Object = {"requests": [ADMIN]}
    claim: Object = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"devices": devices}}
    template: Object = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"spec": {"devices": devices}}}
    label(memory, value)
    for resource, body in ((CLAIM, claim), (CLAIM_TEMPLATE, template)):
        with pytest.raises(errors.InvalidError, match="admin access to devices requires the"):
            memory.create(resource, body)
    label(memory, "true")
    assert memory.create(CLAIM, claim)
    assert memory.create(CLAIM_TEMPLATE, template)


def test_a_result_with_admin_access_needs_the_label_when_it_is_written(memory: registry.Registry) -> None:
    label(memory, "true")
    body: Object = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"devices": {"requests": [ADMIN]}}}
    memory.create(CLAIM, body)
    label(memory, "false")
    wanted = samples.allocated(memory.get(CLAIM, "a", "default"), samples.result() | {"adminAccess": True})
    with pytest.raises(errors.InvalidError, match=r"status.allocation.devices.results\[0\].adminAccess: Forbidden"):
        memory.update(CLAIM, wanted, subresource="status")
    label(memory, "true")
    stored = memory.update(CLAIM, wanted, subresource="status")
    label(memory, "false")
    json_types.mapping(stored, "status")["devices"] = [samples.device_status()]
    assert memory.update(CLAIM, stored, subresource="status")
