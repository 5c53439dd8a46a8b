"""Server-side apply of claim status: each driver owns its own devices and nothing else."""

import datetime
import itertools

import pytest

from drakit_cluster.api import applying, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, POD
from unit.cluster import samples

OTHER = "nic.drakit.dev"


@pytest.fixture
def claim(api: Api) -> Object:
    made = api.create(CLAIM, samples.claim())
    results = (
        samples.result("gpu-0"),
        samples.result("gpu-1"),
        samples.result("nic-0", driver=OTHER, share=samples.SHARE),
    )
    return api.update(CLAIM, samples.allocated(made, *results), subresource="status")


def apply(api: Api, devices: list[Json], manager: str = "gpu", *, force: bool = False) -> list[Object]:
    body: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c1", "namespace": "default"},
        "status": {"devices": devices},
    }
    stored = api.patch(
        CLAIM,
        "c1",
        body,
        namespace="default",
        kind=PatchKind.APPLY,
        subresource="status",
        manager=manager,
        force=force,
    )
    return json_types.objects(stored, "status", "devices")


def names(devices: list[Object]) -> list[str]:
    return [json_types.text(one, "device") for one in devices]


@pytest.mark.usefixtures("claim")
def test_two_drivers_write_their_devices_side_by_side(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0", conditions=samples.ready())])
    nic = samples.device_status("nic-0", driver=OTHER, shareID=samples.SHARE)
    assert names(apply(api, [nic], "nic")) == ["gpu-0", "nic-0"]
    assert names(apply(api, [], "gpu")) == ["nic-0"]


@pytest.mark.usefixtures("claim")
def test_an_apply_with_fewer_devices_removes_its_own(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0"), samples.device_status("gpu-1")])
    assert names(apply(api, [samples.device_status("gpu-1")])) == ["gpu-1"]


@pytest.mark.usefixtures("claim")
def test_an_apply_with_fewer_fields_removes_those_fields(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0", data={"a": 1}, conditions=samples.ready())])
    (device,) = apply(api, [samples.device_status("gpu-0", data={"a": 1})])
    assert device == samples.device_status("gpu-0", data={"a": 1})


@pytest.mark.usefixtures("claim")
def test_the_data_of_a_device_status_is_replaced_as_a_whole(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0", data={"a": {"b": 1}, "c": 2})], "one")
    with pytest.raises(errors.ConflictError) as refused:
        apply(api, [samples.device_status("gpu-0", data={"d": 3})], "two")
    assert refused.value.details.causes[0].field.endswith(".data")
    (device,) = apply(api, [samples.device_status("gpu-0", data={"d": 3})], "two", force=True)
    assert device["data"] == {"d": 3}
    (device,) = apply(api, [samples.device_status("gpu-0", data={})], "two")
    assert device["data"] == {}


def test_the_parameters_of_a_class_are_replaced_as_a_whole(api: Api) -> None:
    def put(parameters: Object) -> Json:
        config: Json = [{"opaque": {"driver": OTHER, "parameters": parameters}}]
        body: Object = {"apiVersion": CLASS.api_version, "kind": CLASS.kind, "spec": {"config": config}}
        stored = api.patch(CLASS, "nic", body, kind=PatchKind.APPLY, manager="me")
        return json_types.at(stored, "spec", "config", 0, "opaque", "parameters")

    assert put({"kind": "A", "mtu": 9000}) == {"kind": "A", "mtu": 9000}
    assert put({"kind": "B"}) == {"kind": "B"}


def test_an_apply_keeps_the_allocation_and_other_writers_fields(api: Api, claim: Object) -> None:
    apply(api, [samples.device_status("gpu-0")])
    apply(api, [])
    left = api.get(CLAIM, "c1", "default")
    assert json_types.at(left, "status", "allocation") == json_types.at(claim, "status", "allocation")
    assert json_types.at(left, "status", "devices") is None


@pytest.mark.usefixtures("claim")
def test_an_apply_that_changes_nothing_stores_nothing(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0", conditions=samples.ready())])
    before = api.get(CLAIM, "c1", "default")
    apply(api, [samples.device_status("gpu-0", conditions=samples.ready())])
    assert api.get(CLAIM, "c1", "default") == before


def test_repeating_an_apply_later_changes_no_time() -> None:
    moments = itertools.count()
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    api = registry.Registry(now=lambda: start + datetime.timedelta(seconds=next(moments)))
    body: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": {}}
    body["metadata"] = {"labels": {"a": "b"}}
    made = api.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="me")
    assert api.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="me") == made


@pytest.mark.usefixtures("claim")
def test_another_owners_value_conflicts_unless_forced(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0", conditions=samples.ready("True"))], "one")
    with pytest.raises(errors.ConflictError) as refused:
        apply(api, [samples.device_status("gpu-0", conditions=samples.ready("False"))], "two")
    (cause,) = refused.value.details.causes
    assert cause.reason == "FieldManagerConflict"
    assert cause.field.endswith('.conditions[type="Ready"].status')
    (device,) = apply(api, [samples.device_status("gpu-0", conditions=samples.ready("False"))], "two", force=True)
    assert json_types.text(device, "conditions", 0, "status") == "False"
    (kept,) = apply(api, [], "one")
    assert json_types.text(kept, "conditions", 0, "status") == "False"


@pytest.mark.usefixtures("claim")
def test_a_plain_write_takes_the_fields_it_changes(api: Api) -> None:
    apply(api, [samples.device_status("gpu-0", data={"a": 1})], "one")
    api.patch(
        CLAIM,
        "c1",
        {"status": {"devices": [samples.device_status("gpu-0", data={"a": 2})]}},
        namespace="default",
        kind=PatchKind.MERGE,
        subresource="status",
        manager="editor",
    )
    with pytest.raises(errors.ConflictError, match="editor"):
        apply(api, [samples.device_status("gpu-0", data={"a": 1})], "one")


@pytest.mark.usefixtures("claim")
def test_a_device_that_is_not_allocated_is_refused(api: Api) -> None:
    for wrong in (
        samples.device_status("gpu-9"),
        samples.device_status("gpu-0", shareID=samples.SHARE),
        samples.device_status("nic-0", driver=OTHER),
    ):
        with pytest.raises(errors.InvalidError, match="must be an allocated device in the claim"):
            apply(api, [wrong])


def test_an_apply_needs_a_field_manager_and_a_matching_name_and_uid(api: Api, claim: Object) -> None:
    with pytest.raises(errors.InvalidError, match="fieldManager: Required value"):
        apply(api, [], "")
    body: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"uid": "00000000-0000-0000-0000-000000000000"},
    }
    with pytest.raises(errors.InvalidError, match="field is immutable"):
        api.patch(CLAIM, "c1", body, namespace="default", kind=PatchKind.APPLY, subresource="status", manager="gpu")
    with pytest.raises(errors.NotFoundError):
        api.patch(CLAIM, "c2", body, namespace="default", kind=PatchKind.APPLY, subresource="status", manager="gpu")
    assert claim == api.get(CLAIM, "c1", "default")


def test_an_apply_creates_what_is_missing_once(api: Api) -> None:
    body: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"labels": {"a": "b"}}}
    body["spec"] = {"selectors": [{"cel": {"expression": "true"}}]}
    made = api.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="me")
    assert api.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="me") == made
    body["metadata"] = {}
    assert "labels" not in json_types.mapping(api.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="me"), "metadata")


def test_containers_are_applied_by_name(api: Api) -> None:
    api.create(POD, samples.pod())
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "main", "image": "alpine"}]},
    }
    changed = api.patch(POD, "p1", body, namespace="default", kind=PatchKind.APPLY, manager="me", force=True)
    assert json_types.objects(changed, "spec", "containers") == [{"name": "main", "image": "alpine"}]


def test_ownership_survives_its_wire_form() -> None:
    fields = frozenset({("f:a",), ("f:b", 'k:{"x":"1"}'), ("f:b", 'k:{"x":"1"}', "f:c"), ("f:d", "v:1")})
    manager = applying.Manager(name="m", operation="Apply", subresource="status", fields=fields, time="t")
    obj: Object = {"apiVersion": "v1", "metadata": {}}
    applying.write_managers(obj, (manager,))
    assert applying.read_managers(obj) == (manager,)
