"""KEP-5075, test plan, API validations: every row of the lists, over HTTPS."""

from collections.abc import Iterator

import pytest

from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, SLICE, Resource
from fakes import allocating_server
from unit.cluster_kubelet import objects

OFF = FeatureGates.of({"DRAConsumableCapacity": False})
POLICY = "spec.devices[0].capacity[bandwidth].requestPolicy"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with allocating_server.serve() as client:
        yield client


@pytest.fixture(scope="module")
def older() -> Iterator[Api]:
    with allocating_server.serve(gates=OFF) as client:
        yield client


def _refusals(api: Api, policy: Object, *, shared: bool = True) -> list[str]:
    """Return the fields for which the server refuses a device of 10 units with the policy; it keeps nothing of what it takes."""
    device: Object = {"name": "d", "capacity": {"bandwidth": {"value": "10", "requestPolicy": policy}}}
    if shared:
        device["allowMultipleAllocations"] = True
    try:
        made = api.create(SLICE, objects.resource_slice(device))
    except errors.InvalidError as error:
        return [cause.field for cause in error.details.causes]
    stored = json_types.mapping(made, "spec", "devices", 0, "capacity", "bandwidth", "requestPolicy")
    assert stored == policy
    api.delete(SLICE, json_types.text(made, "metadata", "name"))
    return []


def _ranged(default: str = "4", **limits: str) -> Object:
    published: Object = {name: value for name, value in limits.items()}  # noqa: C416 -- strings become Json.
    return {"default": default, "validRange": published}


def _listed(*values: str, default: str = "1") -> Object:
    return {"default": default, "validValues": list(values)}


def test_a_default_value_is_required_with_a_range_and_with_values(api: Api) -> None:
    assert _refusals(api, {"validRange": {"min": "1"}}) == [f"{POLICY}.default"]
    assert _refusals(api, {"validValues": ["1"]}) == [f"{POLICY}.default"]
    assert _refusals(api, {"default": "1"}) == []


def test_the_default_is_one_of_valid_values_or_within_valid_range(api: Api) -> None:
    assert _refusals(api, _listed("1", "2")) == []
    assert _refusals(api, _listed("2", "3")) == [f"{POLICY}.validValues"]
    assert _refusals(api, _ranged("4", min="4", max="4")) == []
    assert _refusals(api, _ranged("3", min="4")) == [f"{POLICY}.validRange.min"]
    assert _refusals(api, _ranged("5", min="1", max="4")) == [f"{POLICY}.validRange.max"]


def test_valid_values_and_valid_range_exclude_each_other(api: Api) -> None:
    assert _refusals(api, _listed("1") | _ranged("1", min="1")) == [POLICY]


def test_valid_values_are_unique(api: Api) -> None:
    assert _refusals(api, _listed("1", "2", "2")) == [f"{POLICY}.validValues[2]"]


def test_valid_values_are_in_ascending_order(api: Api) -> None:
    assert _refusals(api, _listed("1", "3", "2")) == [f"{POLICY}.validValues[2]"]


def test_valid_values_are_at_most_ten(api: Api) -> None:
    values = [str(value) for value in range(11)]
    assert _refusals(api, _listed(*values[:10])) == []
    assert f"{POLICY}.validValues" in _refusals(api, _listed(*values))


def test_the_minimum_is_at_most_the_maximum(api: Api) -> None:
    assert _refusals(api, _ranged("4", min="4", max="4")) == []
    assert f"{POLICY}.validRange.max" in _refusals(api, _ranged("4", min="4", max="3"))


def test_default_and_maximum_are_whole_steps_above_the_minimum(api: Api) -> None:
    assert _refusals(api, _ranged("4", min="2", max="8", step="2")) == []
    assert _refusals(api, _ranged("5", min="2", max="8", step="2")) == [f"{POLICY}.validRange.step"]
    assert _refusals(api, _ranged("4", min="2", max="7", step="2")) == [f"{POLICY}.validRange.step"]


def test_minimum_maximum_and_minimum_plus_a_step_are_at_most_the_capacity_value(api: Api) -> None:
    assert _refusals(api, _ranged("10", min="10")) == []
    assert _refusals(api, _ranged("11", min="11")) == [f"{POLICY}.validRange.min"]
    assert _refusals(api, _ranged("4", min="1", max="10")) == []
    assert _refusals(api, _ranged("4", min="1", max="11")) == [f"{POLICY}.validRange.max"]
    assert _refusals(api, _ranged("5", min="5", step="5")) == []
    assert _refusals(api, _ranged("5", min="5", step="6")) == [f"{POLICY}.validRange.step"]


def test_a_device_that_is_allocated_once_has_no_request_policy(api: Api) -> None:
    assert _refusals(api, {"default": "1"}, shared=False) == [POLICY]


def _constrained(constraint: Object) -> list[tuple[Resource, Object, str]]:
    """Return a claim and a template with the constraint, each with its kind and the path of the constraint."""
    claim = objects.claim("c", objects.request("a"), objects.request("b"), constraints=[constraint])
    template: Object = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": claim["spec"]}}
    return [(CLAIM, claim, "spec.devices.constraints[0]"), (CLAIM_TEMPLATE, template, "spec.spec.devices.constraints[0]")]


def _check_refused(api: Api, constraint: Object, *fields: str) -> None:
    for resource, body, path in _constrained(constraint):
        with pytest.raises(errors.InvalidError) as caught:
            api.create(resource, body)
        assert {cause.field for cause in caught.value.details.causes} == {f"{path}{field}" for field in fields}


def _check_taken(api: Api, constraint: Object) -> None:
    for resource, body, path in _constrained(constraint):
        made = api.create(resource, body)
        assert json_types.objects(made, *path.removesuffix("[0]").split(".")) == [constraint]
        api.delete(resource, json_types.text(made, "metadata", "name"), namespace="default")


@pytest.mark.parametrize("attribute", ["interfaceName", "/interfaceName", "example.com/"])
def test_a_distinct_attribute_without_domain_or_name_is_refused(api: Api, attribute: str) -> None:
    _check_refused(api, {"distinctAttribute": attribute}, ".distinctAttribute")


def test_a_constraint_needs_match_or_distinct_attribute_and_may_have_both(api: Api) -> None:
    match: Object = {"matchAttribute": "example.com/a"}
    distinct: Object = {"distinctAttribute": "example.com/a"}
    _check_refused(api, {"requests": ["a"]}, "")
    for constraint in (match, distinct, match | distinct):
        _check_taken(api, constraint)


def test_with_the_gate_off_match_attribute_is_required(older: Api) -> None:
    for resource, body, path in _constrained({"distinctAttribute": "example.com/a"}):
        with pytest.raises(errors.InvalidError) as caught:
            older.create(resource, body)
        assert caught.value.details.causes[0].field.startswith(path)
    _check_taken(older, {"matchAttribute": "example.com/a"})


SHARES = ("a671734a-e8e5-11e4-8fde-42010af09327", "a671734a-e8e5-11e4-8fde-42010af09328")


def _allocated(api: Api, name: str) -> Object:
    """Make a claim with two shares of one device."""
    claim = api.create(CLAIM, objects.claim(name, objects.request("a"), objects.request("b")))
    results: list[Json] = [_entry(share) | {"request": request} for request, share in zip("ab", SHARES, strict=True)]
    claim["status"] = {"allocation": {"devices": {"results": results}}}
    return api.update(CLAIM, claim, subresource="status")


def _entry(share: str = "", **fields: str) -> Object:
    entry: Object = {"driver": "gpu.example.com", "pool": "node-1", "device": "eth0"}
    return entry | fields | ({"shareID": share} if share else {})


def _report(api: Api, claim: Object, *entries: Json) -> Object:
    reported = json_types.mapping(claim, "status") | {"devices": list(entries)}
    return api.update(CLAIM, claim | {"status": reported}, subresource="status")


def test_device_statuses_map_to_results_by_driver_pool_device_and_share_id(api: Api) -> None:
    claim = _allocated(api, "mapped")
    wrong = [
        _entry(SHARES[0][:-1] + "9"),
        _entry(),
        _entry(SHARES[0], driver="other.example.com"),
        _entry(SHARES[0], pool="other"),
        _entry(SHARES[0], device="other"),
    ]
    for entry in wrong:
        with pytest.raises(errors.InvalidError, match=r"status\.devices\[0\]"):
            _report(api, claim, entry)
    with pytest.raises(errors.InvalidError, match=r"status\.devices\[1\]"):
        _report(api, claim, _entry(SHARES[0]), _entry(SHARES[0]))
    stored = _report(api, claim, _entry(SHARES[0]), _entry(SHARES[1]))
    assert [json_types.text(one, "shareID") for one in json_types.objects(stored, "status", "devices")] == list(SHARES)


@pytest.mark.parametrize("share", ["7", "eth0-share", "a671734a-e8e5-11e4-8fde-42010af0932g"])
def test_a_share_id_is_a_valid_uid(api: Api, share: str) -> None:
    claim = api.create(CLAIM, objects.claim(f"bad-{share}"))
    claim["status"] = {"allocation": {"devices": {"results": [_entry(share) | {"request": "gpu"}]}}}
    with pytest.raises(errors.InvalidError, match=r"results\[0\]\.shareID"):
        api.update(CLAIM, claim, subresource="status")
