"""What the API refuses of claims, their templates and their statuses."""

import pytest

from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import context
from drakit_cluster.objects.validation.claims import requests
from unit.cluster import samples
from unit.cluster.judging import problems, repeated

BIG: Json = {"blob": "x" * (10 * 1024)}


def exactly(**fields: Json) -> Object:
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **fields}


def asking(**fields: Json) -> Object:
    return claim(requests=[{"name": "gpu", "exactly": exactly(**fields)}])


def claim(**spec: Json) -> Object:
    return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly()}], **spec}}}


def choosing(*alternatives: Json) -> Object:
    return claim(requests=[{"name": "gpu", "firstAvailable": list(alternatives)}])


R0 = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    "spec, wanted",
    [
        ({}, set()),
        ({"requests": [{"name": "a"}]}, {f"Required {R0}"}),
        ({"requests": [{"name": "a", "exactly": exactly(), "firstAvailable": [{"name": "!"}]}]}, {f"Invalid {R0}"}),
        (
            {"requests": [{"name": "a", "exactly": {}}]},
            {f"Required {R0}.exactly.deviceClassName", f"NotSupported {R0}.exactly.allocationMode"},
        ),
        ({"requests": [{"exactly": exactly()}]}, {f"Invalid {R0}.name"}),
        ({"requests": [{"name": "a", "exactly": exactly()}] * 2}, {"Duplicate spec.devices.requests[1]"}),
        ({"requests": repeated(33, exactly=exactly())}, {"TooMany spec.devices.requests"}),
        ({"constraints": [{"matchAttribute": "a.dev/x"}] * 33}, {"TooMany spec.devices.constraints"}),
        ({"constraints": [{"matchAttribute": "x"}]}, {"Invalid spec.devices.constraints[0].matchAttribute"}),
        ({"constraints": [{"matchAttribute": "a.dev/x", "distinctAttribute": "y"}]}, set()),
        ({"constraints": [{}]}, {"Required spec.devices.constraints[0]"}),
        (
            {"constraints": [{"requests": ["none", "gpu/none", "gpu/a/b", ""], "distinctAttribute": "a.dev/x"}]},
            {f"Invalid spec.devices.constraints[0].requests[{index}]" for index in range(4)},
        ),
        (
            {"constraints": [{"requests": ["gpu", "gpu"], "distinctAttribute": "a.dev/x"}]},
            {"Duplicate spec.devices.constraints[0].requests[1]"},
        ),
        ({"config": [{"opaque": {"driver": "a.dev", "parameters": [1]}}]}, {"Invalid spec.devices.config[0].opaque.parameters"}),
        ({"config": [{"opaque": {"driver": "a.dev", "parameters": BIG}}]}, {"TooLong spec.devices.config[0].opaque.parameters"}),
        ({"config": [{"opaque": {"driver": "a.dev"}}]}, {"Required spec.devices.config[0].opaque.parameters"}),
        ({"config": [{}]}, {"Required spec.devices.config[0].opaque"}),
        ({"config": [{"opaque": {"parameters": {}}}] * 33}, {"TooMany spec.devices.config"}),
    ],
)
def test_claims_keep_the_limits(spec: Object, wanted: set[str]) -> None:
    assert problems(resources.CLAIM, claim(**spec)) == wanted
    template: Object = {"spec": {"spec": claim(**spec)["spec"]}}
    moved = {one.replace("spec.devices", "spec.spec.devices") for one in wanted}
    assert problems(resources.CLAIM_TEMPLATE, template) == moved


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"allocationMode": "All", "count": 0}, set()),
        ({"allocationMode": "All", "count": 2}, {"Invalid count"}),
        ({"count": 0}, {"Invalid count"}),
        ({"allocationMode": "Some"}, {"NotSupported allocationMode"}),
        ({"deviceClassName": "a_b"}, {"Invalid deviceClassName"}),
        ({"selectors": [{}]}, {"Required selectors[0].cel"}),
        ({"selectors": [{"cel": {"expression": "true"}}] * 33}, {"TooMany selectors"}),
        (
            {"tolerations": [{"operator": "Equal", "key": "a b", "value": "-"}]},
            {"Invalid tolerations[0].key", "Invalid tolerations[0].value"},
        ),
        ({"tolerations": [{"operator": "Exists", "value": "x"}]}, {"Invalid tolerations[0].value"}),
        ({"tolerations": [{"operator": "Exists"}] * 17}, set()),
        ({"tolerations": [{}]}, {"Required tolerations[0].operator"}),
        (
            {"tolerations": [{"operator": "Like", "effect": "Never"}]},
            {"NotSupported tolerations[0].operator", "NotSupported tolerations[0].effect"},
        ),
    ],
)
def test_requests_and_alternatives_have_the_same_rules(fields: Object, wanted: set[str]) -> None:
    assert problems(resources.CLAIM, asking(**fields)) == {one.replace(" ", f" {R0}.exactly.") for one in wanted}
    other = choosing({"name": "small", **exactly(**fields)})
    assert problems(resources.CLAIM, other) == {one.replace(" ", f" {R0}.firstAvailable[0].") for one in wanted}


def test_alternatives_are_few_and_differ_in_name() -> None:
    assert problems(resources.CLAIM, choosing(*repeated(9, **exactly()))) == {f"TooMany {R0}.firstAvailable"}
    same: Json = {"name": "small", **exactly()}
    assert problems(resources.CLAIM, choosing(same, same)) == {f"Duplicate {R0}.firstAvailable[1]"}


def test_without_consumable_capacity_a_constraint_is_a_match() -> None:
    older = FeatureGates.of({"DRAConsumableCapacity": False})
    assert problems(resources.CLAIM, claim(constraints=[{}]), gates=older) == {"Required spec.devices.constraints[0].matchAttribute"}


@pytest.mark.parametrize(
    "expression, wanted",
    [
        ('device.driver == "gpu.drakit.dev"', ""),
        ("", "Invalid"),
        ("noSuchVariable", "Invalid"),
        ("device.driver", "Invalid"),
        ("device.allowMultipleAllocations", ""),
        (" " * 10241, "TooLong"),
        (f"{'[1,2,3,4,5,6,7,8,9,10].all(x, ' * 7}x < 11{')' * 7}", "Forbidden"),
    ],
)
def test_selectors_must_compile_and_be_cheap(expression: str, wanted: str) -> None:
    found = problems(resources.CLAIM, asking(selectors=[{"cel": {"expression": expression}}]))
    assert found == ({f"{wanted} {R0}.exactly.selectors[0].cel.expression"} if wanted else set())


@pytest.mark.parametrize(
    "attribute, wanted",
    [
        ({"expression": 'device.attributes["a.dev"].numa'}, set()),
        ({"expression": '[device.attributes["a.dev"].x, device.attributes["a.dev"].y]'}, set()),
        ({"expression": 'semver("1.2.3")'}, set()),
        ({"name": "numa"}, {"Invalid name", "Invalid constraint"}),
        ({"name": "derived/a/b"}, {"Invalid name"}),
        ({"expression": ""}, {"Required expression"}),
        ({"expression": "noSuchVariable"}, {"Invalid expression"}),
        ({"expression": "1.5"}, {"Invalid expression"}),
        ({"expression": 'device.capacity["a.dev"]'}, {"Invalid expression"}),
        ({"expression": "[1.5]"}, {"Invalid expression"}),
        ({"expression": " " * 10241}, {"TooLong expression"}),
        ({"expression": f"{'[1,2,3,4,5,6,7,8,9,10].all(x, ' * 7}x < 11{')' * 7}"}, {"Forbidden expression"}),
    ],
)
def test_a_derived_attribute_has_a_full_name_and_an_expression_of_an_attributes_type(attribute: Object, wanted: set[str]) -> None:
    derived: Object = {"name": "derived/numa", "expression": "device.driver", **attribute}
    requests: Json = [{"name": "gpu", "exactly": exactly(derivedAttributes=[derived])}]
    given = claim(requests=requests, constraints=[{"matchAttribute": derived["name"]}])
    gates = FeatureGates.of({"DRADerivedAttributes": True}, "1.38")
    places = {"constraint": "spec.devices.constraints[0].matchAttribute"}
    named = {f"{kind} {places.get(field, f'{R0}.exactly.derivedAttributes[0].{field}')}" for kind, field in map(str.split, wanted)}
    assert problems(resources.CLAIM, given, gates=gates) >= named
    assert bool(problems(resources.CLAIM, given, gates=gates)) is bool(named)


def test_a_derived_attribute_that_no_constraint_names_is_refused() -> None:
    derived: Object = {"name": "derived/numa", "expression": "device.driver"}
    given = claim(
        requests=[{"name": "gpu", "exactly": exactly(derivedAttributes=[derived])}, {"name": "nic", "exactly": exactly()}],
        constraints=[{"matchAttribute": "derived/numa", "requests": ["nic"]}],
    )
    assert problems(resources.CLAIM, given) == {f"Invalid {R0}.exactly.derivedAttributes[0].name"}
    assert problems(resources.CLAIM, asking(derivedAttributes=repeated(33, expression="device.driver"))) >= {
        f"TooMany {R0}.exactly.derivedAttributes"
    }


def test_selectors_know_only_what_the_gates_offer() -> None:
    older = FeatureGates.of({"DRAConsumableCapacity": False})
    given = asking(selectors=[{"cel": {"expression": "device.allowMultipleAllocations"}}])
    assert problems(resources.CLAIM, given, gates=older) == {f"Invalid {R0}.exactly.selectors[0].cel.expression"}


def test_without_a_compiler_selectors_are_only_measured() -> None:
    given = asking(selectors=[{"cel": {"expression": "noSuchVariable"}}, {"cel": {"expression": " " * 10241}}])
    found = requests.check(json_types.at(given, "spec", "devices"), "spec.devices", context.Context())
    assert [(one.type, one.field) for one in found] == [("FieldValueTooLong", f"{R0}.exactly.selectors[1].cel.expression")]


def test_a_template_sets_labels_and_annotations_alone() -> None:
    metadata: Json = {"labels": {"a": "!"}, "annotations": {"A/B/c": ""}, "name": "x", "uid": "y", "finalizers": []}
    found = problems(resources.CLAIM_TEMPLATE, {"spec": {"metadata": metadata, "spec": claim()["spec"]}})
    labels = {"Invalid spec.metadata.labels", "Invalid spec.metadata.annotations"}
    assert found == labels | {"Forbidden spec.metadata.name", "Forbidden spec.metadata.uID"}


def test_a_template_never_changes() -> None:
    old: Object = {"spec": {"spec": claim()["spec"]}}
    assert problems(resources.CLAIM_TEMPLATE, {"spec": {"spec": asking(count=2)["spec"]}}, old) == {"Invalid spec"}
    assert problems(resources.CLAIM_TEMPLATE, {"spec": {"metadata": {}, "spec": claim(config=[])["spec"]}}, old) == set()


def status(new: Object, old: Object | None = None) -> set[str]:
    return problems(resources.CLAIM, new, claim() if old is None else old, subresource="status")


def users(count: int) -> list[Json]:
    return [{"resource": "pods", "name": f"p{index}", "uid": f"u{index}"} for index in range(count)]


def used(*people: Json, **metadata: Json) -> Object:
    given = samples.allocated(claim(), samples.result()) | {"metadata": metadata}
    json_types.mapping(given, "status")["reservedFor"] = list(people)
    return given


def test_a_claims_spec_and_a_set_allocation_are_immutable() -> None:
    old = samples.allocated(claim(), samples.result())
    assert problems(resources.CLAIM, claim(constraints=[{"matchAttribute": "a.dev/x"}]), claim()) == {"Invalid spec"}
    assert status(samples.allocated(claim(), samples.result("b")), old) == {"Invalid status.allocation"}
    assert status(claim(), old) == set()


def test_amounts_that_are_equal_are_no_change() -> None:
    old, new = (asking(capacity={"requests": {"memory": amount}}) for amount in ("1Gi", "1073741824"))
    assert problems(resources.CLAIM, new, old) == set()
    assert problems(resources.CLAIM, asking(capacity={"requests": {"memory": "2Gi"}}), old) == {"Invalid spec"}


def test_empty_equals_absent_where_the_api_omits_empty_fields() -> None:
    old = asking(allocationMode="All", count=None)
    assert problems(resources.CLAIM, asking(allocationMode="All", count=0, selectors=[]), old) == set()
    assert problems(resources.CLAIM, asking(allocationMode="All", count=None, adminAccess=False), old) == {"Invalid spec"}
    tolerating = asking(tolerations=[{"operator": "Exists"}])
    assert problems(resources.CLAIM, asking(tolerations=[{"operator": "Exists", "tolerationSeconds": 0}]), tolerating) == {"Invalid spec"}


def test_values_stored_under_older_rules_stay_valid() -> None:
    odd = claim(requests=[{"name": "!", "exactly": {}}], config=[{"opaque": {"driver": "a.dev", "parameters": BIG}}])
    assert problems(resources.CLAIM, odd | {"metadata": {"labels": {"a": "b"}}}, odd) == set()
    allocated = samples.allocated(odd, samples.result("!"))
    assert status(allocated, allocated) == set()


def test_reservations_need_an_allocation_and_are_limited() -> None:
    assert status(claim() | {"status": {"reservedFor": users(1)}}) == {"Forbidden status.reservedFor"}
    assert status(used(*users(256))) == set()
    assert status(used(*users(257))) == {"TooMany status.reservedFor"}
    assert status(used(users(1)[0], users(1)[0])) == {"Duplicate status.reservedFor[1]"}
    assert status(used({})) == {f"Required status.reservedFor[0].{field}" for field in ("resource", "name", "uid")}


def test_a_claim_that_is_being_deleted_takes_no_new_users() -> None:
    leaving: Object = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert status(used(*users(2), **leaving), used(*users(1), **leaving)) == {"Forbidden status.reservedFor"}
    assert status(used(*users(1), **leaving), used(*users(2), **leaving)) == set()
    spelled: Object = {"apiGroup": "", "resource": "pods", "name": "p0", "uid": "u0"}
    assert status(used(spelled, **leaving), used(*users(1), **leaving)) == set()


A0 = "status.allocation.devices.results[0]"


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({}, set()),
        ({"request": "other"}, {f"Invalid {A0}.request"}),
        ({"request": "gpu/small"}, {f"Invalid {A0}.request"}),
        ({"driver": "", "pool": "", "device": ""}, {f"Required {A0}.driver", f"Required {A0}.pool", f"Invalid {A0}.device"}),
        ({"shareID": samples.SHARE.upper()}, {f"Invalid {A0}.shareID"}),
        ({"bindingFailureConditions": ["a"]}, {f"Invalid {A0}.bindingConditions"}),
        ({"tolerations": [{"operator": ""}]}, {f"Required {A0}.tolerations[0].operator"}),
    ],
)
def test_a_new_allocation_is_checked(fields: Object, wanted: set[str]) -> None:
    assert status(samples.allocated(claim(), samples.result() | fields)) == wanted


def test_an_allocations_configuration_and_nodes_keep_the_rules() -> None:
    configs: list[Json] = [{"opaque": {"driver": "a.dev", "parameters": {}}}, {"source": "FromNowhere", "requests": ["x"]}]
    given: Object = {"allocation": {"devices": {"config": configs}, "nodeSelector": {}}}
    path = "status.allocation.devices.config"
    wanted = {
        f"Required {path}[0].source",
        f"NotSupported {path}[1].source",
        f"Invalid {path}[1].requests[0]",
        f"Required {path}[1].opaque",
    }
    assert status(claim() | {"status": given}) == wanted | {"Required status.allocation.nodeSelector.nodeSelectorTerms"}
    many = samples.allocated(claim(), *[samples.result()] * 33)
    assert status(many) == {"TooMany status.allocation.devices.results"}


S0 = "status.devices[0]"


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"conditions": samples.ready()}, set()),
        ({"device": "gpu-9"}, {f"Invalid {S0}"}),
        (
            {"conditions": [{"type": "Ready", "status": "True"}]},
            {f"Required {S0}.conditions[0].reason", f"Required {S0}.conditions[0].lastTransitionTime"},
        ),
        ({"conditions": samples.ready("Maybe")}, {f"NotSupported {S0}.conditions[0].status"}),
        ({"conditions": json_types.items({"a": samples.ready()}, "a") * 2}, {f"Duplicate {S0}.conditions[1].type"}),
        ({"networkData": {"ips": [f"10.0.0.{i}/8" for i in range(17)]}}, {f"TooMany {S0}.networkData.ips"}),
        ({"data": [1]}, {f"Invalid {S0}.data"}),
        ({"networkData": {"ips": ["192.0.2.5/24", "2001:db8::1/64"]}}, set()),
        ({"networkData": {"ips": ["192.0.2.5"]}}, {f"Invalid {S0}.networkData.ips[0]"}),
        (
            {"networkData": {"ips": ["fe80::1%eth0/64", "::ffff:1.2.3.4/120", "::ffff:102:304/120", "10.0.0.1/255.0.0.0", "010.0.0.1/8"]}},
            {f"Invalid {S0}.networkData.ips[{place}]" for place in range(5)},
        ),
        ({"networkData": {"ips": ["10.0.0.1/8", "10.0.0.1/8"]}}, {f"Duplicate {S0}.networkData.ips[1]"}),
        ({"networkData": {"interfaceName": "x" * 257}}, {f"TooLong {S0}.networkData.interfaceName"}),
    ],
)
def test_device_statuses_keep_the_rules(fields: Object, wanted: set[str]) -> None:
    given = samples.allocated(claim(), samples.result())
    json_types.mapping(given, "status")["devices"] = [samples.device_status() | fields]
    assert status(given) == wanted


def test_each_device_has_one_status_and_shares_have_their_own() -> None:
    shares = [samples.SHARE, samples.SHARE.replace("6", "7")]
    given = samples.allocated(claim(), *(samples.result(share=share) for share in shares))
    statuses: list[Json] = [samples.device_status(shareID=share) for share in shares]
    json_types.mapping(given, "status")["devices"] = statuses
    assert status(given) == set()
    json_types.mapping(given, "status")["devices"] = [*statuses, statuses[0]]
    assert status(given) == {"Duplicate status.devices[2]"}
    json_types.mapping(given, "status")["devices"] = [samples.device_status()]
    assert status(given) == {"Invalid status.devices[0]"}
