"""The webhook refuses what no node could prepare, names the object's field and the fix, and stands in the way of nothing else."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from drakit import settings
from drakit.admission import review
from drakit.cli import composition
from fakes import parameters as p

VERSIONS = ("v1", "v1beta2", "v1beta1")
KINDS = (p.CLAIM, p.TEMPLATE, p.CLASS)
RULES = composition.opaque_rules(settings.defaults())
BAD = p.config(p.NIC, p.nic(mtu=20))


def response(body: object) -> dict[str, Any]:
    found = review.answer(json.dumps(body).encode(), RULES)
    assert found.status == 200
    answered = json.loads(found.body)
    assert (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answered["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert answered["response"]["allowed"] is (found.verdict is review.Verdict.ALLOWED)
    result: dict[str, Any] = answered["response"]
    return result


def causes(body: object) -> list[tuple[str, str]]:
    answered = response(body)
    return [(one["field"], one["message"]) for one in answered.get("status", {}).get("details", {}).get("causes", [])]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", p.BAD.values(), ids=p.BAD)
def test_parameters_that_no_node_can_prepare_are_refused_by_field(case: tuple[str, p.Json, str, str], kind: str, version: str) -> None:
    driver, parameters, field, reason = case
    ((named, message),) = causes(p.review(p.holding(kind, p.config(driver, parameters), version=version)))
    assert named == f"{p.PATHS[kind]}.opaque.parameters{field and '.'}{field}"
    assert reason in message


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", p.GOOD.values(), ids=p.GOOD)
def test_valid_parameters_are_allowed(case: tuple[str, p.Json], kind: str, version: str) -> None:
    assert response(p.review(p.holding(kind, p.config(*case), version=version)))["allowed"] is True


@pytest.mark.parametrize("case", p.CLASS_ONLY.values(), ids=p.CLASS_ONLY)
def test_class_only_parameters_are_refused_in_claims_and_templates(case: tuple[str, p.Json, str, str]) -> None:
    driver, parameters, field, reason = case
    for kind in (p.CLAIM, p.TEMPLATE):
        ((named, message),) = causes(p.review(p.holding(kind, p.config(driver, parameters))))
        assert named == f"{p.PATHS[kind]}.opaque.parameters.{field}"
        assert reason in message
    assert response(p.review(p.holding(p.CLASS, p.config(driver, parameters))))["allowed"] is True


def test_every_configuration_is_checked_and_every_error_is_reported() -> None:
    good, foreign = p.config(p.GPU, p.gpu()), p.config("gpu.example.com", {"mtu": "much"})
    answered = response(p.review(p.holding(p.CLAIM, good, foreign, BAD, p.config(p.GPU, p.gpu(color="red")))))
    assert answered["status"]["code"] == 422
    assert answered["status"]["reason"] == "Invalid"
    assert answered["status"]["message"] == (
        "spec.devices.config[2].opaque.parameters.mtu: 20 is not between 68 and 65535; "
        "spec.devices.config[3].opaque.parameters.color: is not a known field; known are sharing"
    )
    details = answered["status"]["details"]
    assert (details["kind"], details["group"], details["name"]) == ("ResourceClaim", "resource.k8s.io", "x")


def changed(obj: Mapping[str, Any], **metadata: object) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_object_of_an_older_version_can_be_labelled_and_removed(kind: str) -> None:
    old = p.holding(kind, BAD)
    labelled, ending = changed(old, labels={"a": "b"}), changed(old, deletionTimestamp="2026-11-23T20:00:00Z")
    assert response(p.review(labelled, old=old))["allowed"] is True
    assert response(p.review(None, old=old, operation="DELETE"))["allowed"] is True
    assert response(p.review(changed(ending, finalizers=[]), old=changed(ending, finalizers=["a/b"])))["allowed"] is True
    assert response(p.review(ending, old=p.holding(kind)))["allowed"] is True
    assert response(p.review(old, old=p.holding(kind), subresource="status"))["allowed"] is True
    assert response(p.review(old, operation="CONNECT"))["allowed"] is True


def test_a_changed_spec_is_checked() -> None:
    assert causes(p.review(p.holding(p.CLASS, BAD), old=p.holding(p.CLASS)))
    assert not causes(p.review(p.holding(p.CLASS), old=p.holding(p.CLASS, BAD)))


def test_other_kinds_are_allowed_with_a_warning_to_the_admin() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"config": [BAD]}}
    answered = response(p.review(pod))
    assert (answered["allowed"], answered["warnings"]) == (
        True,
        ["drakit does not check v1 Pod; remove it from the rules of the webhook"],
    )
    assert response(p.review(p.holding(p.CLAIM, BAD), version="v2"))["allowed"] is True
    assert response(p.review(p.holding(p.CLAIM, BAD), kind="ResourceSlice"))["allowed"] is True


MALFORMED: Mapping[str, object] = {
    "configurations that are no list": {"config": {}},
    "a configuration that is no object": {"config": [7]},
    "opaque that is no object": {"config": [{"opaque": "x"}]},
    "parameters that are no object": {"config": [p.config(p.NIC, ["x"])]},
    "no parameters": {"config": [{"opaque": {"driver": p.NIC}}]},
    "parameters nested too deep": {"config": [p.config(p.NIC, {"a": json.loads("[" * 40 + "]" * 40)})]},
    "a driver that is no text": {"config": [{"opaque": {"driver": 5, "parameters": {}}}]},
}


@pytest.mark.parametrize("spec", MALFORMED.values(), ids=MALFORMED)
def test_an_object_that_the_api_server_never_sends_is_refused_by_field(spec: object) -> None:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "x"}, "spec": spec}
    ((field, message),) = causes(p.review(body))
    assert field.startswith("spec.config")
    assert message


def test_a_thousand_errors_make_a_short_message() -> None:
    found = review.answer(json.dumps(p.review(p.holding(p.CLAIM, *[BAD] * 1000))).encode(), RULES)
    assert len(json.loads(found.body)["response"]["status"]["details"]["causes"]) == 32
    assert len(found.body) < 16_000


def test_lists_beyond_the_limits_of_the_api_are_not_read() -> None:
    """Anybody in the pod network may ask: a body of the largest size must not keep the webhook busy for seconds."""
    entries = [{"opaque": {"driver": "other.example.com"}}] * 33
    assert causes(p.review(p.holding(p.CLAIM, *entries[:32]))) == []
    ((field, message),) = causes(p.review(p.holding(p.CLAIM, *entries)))
    assert (field, message) == ("spec.devices.config", "has more than 32 configurations, which is what the API takes")
    ((field, message),) = causes(p.review(p.holding(p.CLAIM, p.config(p.NIC, p.nic(routes=[[]] * 300_000)))))
    assert (field, message) == ("spec.devices.config[0].opaque.parameters", "is over the limit of 10240 bytes of JSON")


def test_many_names_of_many_requests_are_compared_in_no_time() -> None:
    names = [f"x{number}" for number in range(2000)]
    claim = p.holding(p.CLAIM, *[{**p.config(p.NIC, p.nic(interfaceName=f"n{number}")), "requests": names} for number in range(32)])
    claim["spec"]["devices"]["requests"] = [{"name": f"r{number}", "deviceClassName": p.NIC} for number in range(9000)]
    body = json.dumps(p.review(claim)).encode()
    start = time.process_time()
    assert review.answer(body, RULES).verdict is review.Verdict.ALLOWED
    assert time.process_time() - start < 5


def test_admin_access_attaches_nothing_so_it_needs_no_name_and_no_network_of_its_own() -> None:
    claim = p.holding(p.CLAIM, p.config(p.NIC, p.nic(interfaceName="net1")))
    exactly: dict[str, object] = {"deviceClassName": p.NIC, "count": 2}
    claim["spec"]["devices"]["requests"] = [{"name": "r", "exactly": exactly}]
    container = {"name": "c", "resources": {"claims": [{"name": "nic"}]}}
    spec = {"hostNetwork": True, "resourceClaims": [{"name": "nic", "resourceClaimName": "x"}], "containers": [container]}
    pod = p.review({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    for verdict in (review.Verdict.DENIED, review.Verdict.ALLOWED):
        assert review.answer(json.dumps(p.review(claim)).encode(), RULES).verdict is verdict
        assert review.answer(json.dumps(pod).encode(), RULES, {("ResourceClaim", "default", "x"): claim}).verdict is verdict
        exactly["adminAccess"] = True


GOOD_REVIEW = p.review(p.holding(p.CLAIM, BAD))
UNREADABLE: Mapping[str, bytes] = {
    "nothing": b"",
    "text": b"hello",
    "half a body": json.dumps(GOOD_REVIEW).encode()[:200],
    "a list": b"[]",
    "null": b"null",
    "a number of many digits": b"9" * 100_000,
    "nested beyond any parser": b"[" * 200_000,
    "objects nested beyond any parser": b'{"a":' * 100_000,
    "no UTF-8": b'{"apiVersion": "\xff\xfe"}',
    "another kind": json.dumps(GOOD_REVIEW | {"kind": "Pod"}).encode(),
    "another apiVersion": json.dumps(GOOD_REVIEW | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "no request": json.dumps(GOOD_REVIEW | {"request": None}).encode(),
    "a request without a UID": json.dumps(GOOD_REVIEW | {"request": {}}).encode(),
    "an answer instead of a request": json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "response": {}}).encode(),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_is_not_a_review_is_a_bad_request(body: bytes) -> None:
    found = review.answer(body, RULES)
    assert (found.verdict, found.status) == (review.Verdict.UNREADABLE, 400)
    assert found.body.startswith(b"send an AdmissionReview of admission.k8s.io/v1: ")
    assert len(found.body) <= 4096


def test_parameters_nested_beyond_any_parser_are_refused_by_their_field() -> None:
    text = json.dumps(p.review(p.holding(p.CLAIM, p.config(p.NIC, {"deep": "HERE"}))))
    body = text.replace('"HERE"', "[" * 100_000 + "]" * 100_000)
    found = json.loads(review.answer(body.encode(), RULES).body)["response"]
    assert found["allowed"] is False
    assert found["status"]["message"].startswith("spec.devices.config[0].opaque.parameters")


def test_a_family_that_is_not_served_and_a_driver_of_another_name_are_distinguished() -> None:
    flags = {"nic.enabled": False, "gpu.driver_name": "gpu.nvidia.com"}
    rules = composition.opaque_rules(settings.load(flags, environ={}))
    body = p.holding(p.CLAIM, BAD, p.config(p.GPU, {"x": 1}), p.config("gpu.nvidia.com", p.nvidia(x=1)))
    answered = json.loads(review.answer(json.dumps(p.review(body)).encode(), rules).body)["response"]
    assert [one["field"] for one in answered["status"]["details"]["causes"]] == ["spec.devices.config[2].opaque.parameters.x"]
