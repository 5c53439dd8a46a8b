"""Claims and pods as a whole: what a driver's checks see, when they are called, and what becomes of their errors."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

import drakit
from drakit.admission import selection, whole_objects

NAME = "region.example.com"
CLASS = {"kind": "DeviceClass", "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{NAME}"'}}]}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegionConfig:
    bandwidth: int = 1


class Seen:
    """Rules that keep what their checks received, and return the errors that a test gave."""

    def __init__(self, *mistakes: drakit.ConfigError) -> None:
        self.claims: list[drakit.ClaimSpec] = []
        self.pods: list[drakit.PodSpec] = []
        self._mistakes = mistakes
        self.rules = {NAME: drakit.Rules(types=(RegionConfig,), check_claim=self._claim, check_pod=self._pod)}

    def _claim(self, claim: drakit.ClaimSpec) -> Iterable[drakit.ConfigError]:
        self.claims.append(claim)
        return self._mistakes

    def _pod(self, pod: drakit.PodSpec) -> Iterable[drakit.ConfigError]:
        self.pods.append(pod)
        return self._mistakes


def claim(*requests: object, configs: tuple[object, ...] = (), kind: str = "ResourceClaim") -> dict[str, Any]:
    spec = {"devices": {"requests": list(requests), "config": list(configs)}}
    metadata = {"name": "c", "namespace": "lab"}
    return {"kind": kind, "metadata": metadata, "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec}


def exactly(name: str, device_class: str = NAME, **fields: object) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, **fields}}


def config(driver: str = NAME, requests: tuple[str, ...] = (), **fields: object) -> dict[str, Any]:
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": fields}}


def checked(body: Mapping[str, Any], known: whole_objects.Known | None = None) -> drakit.ClaimSpec:
    seen = Seen()
    assert whole_objects.of_claim(body["kind"], body, seen.rules, known or {}) == ()
    (view,) = seen.claims
    return view


@pytest.mark.parametrize("kind, path", [("ResourceClaim", "spec"), ("ResourceClaimTemplate", "spec.spec")])
def test_a_check_sees_requests_and_configurations_with_their_fields(kind: str, path: str) -> None:
    first = {"name": "r", "firstAvailable": [{"name": "big", "deviceClassName": NAME}, {"name": "any", "deviceClassName": "other"}]}
    capacity = {"requests": {"bandwidth": "3Gi", "wrong": "?"}}
    body = claim(
        exactly("a", count=3, adminAccess=True, capacity=capacity),
        exactly("b", "gpu", allocationMode="All"),
        first,
        configs=(config("other.example.com", bandwidth=9), config(requests=("a", "r"), bandwidth=4)),
        kind=kind,
    )
    view = checked(body)
    a, b, r = view.requests
    assert (view.namespace, view.name, view.own_requests) == ("lab", "c", (a,))
    assert (a.name, a.field, a.device_class, a.is_own, a.count, a.admin_access) == ("a", f"{path}.devices.requests[0]", NAME, True, 3, True)
    assert a.capacity == {"bandwidth": drakit.Quantity.parse("3Gi")}
    assert (b.is_own, b.count, r.is_own) == (False, None, False)
    assert [(one.name, one.is_own, one.field) for one in r.alternatives] == [
        ("r/big", True, f"{path}.devices.requests[2].firstAvailable[0]"),
        ("r/any", False, f"{path}.devices.requests[2].firstAvailable[1]"),
    ]
    (entry,) = view.configs
    assert (entry.config, entry.field) == (RegionConfig(bandwidth=4), f"{path}.devices.config[1].opaque.parameters")
    assert [entry.applies_to(name) for name in ("a", "b", "r/big")] == [True, False, True]
    with pytest.raises(TypeError):
        view.spec["devices"] = ()  # type: ignore[index] # frozen


def test_a_request_of_v1beta1_has_its_fields_in_itself() -> None:
    (request,) = checked(claim({"name": "a", "deviceClassName": NAME, "count": 2})).requests
    assert (request.is_own, request.count) == (True, 2)


def selecting(expression: str) -> dict[str, Any]:
    return exactly("a", "any", selectors=[{"cel": {"expression": expression}}])


OWN = {
    "the class of the driver's name": (exactly("a"), {}, True),
    "a class that selects the driver": (exactly("a", "fast"), {"fast": CLASS}, True),
    "an unknown class": (exactly("a", "fast"), {}, False),
    "a class of the driver's name that selects something else": (exactly("a"), {NAME: {"spec": {}}}, False),
    "a selector of the request": (exactly("a", "any", selectors=[{"cel": {"expression": f"device.driver=='{NAME}' && true"}}]), {}, True),
    "one of two drivers": (
        exactly("a", "any", selectors=[{"cel": {"expression": f'device.driver == "{NAME}" || device.driver == "x"'}}]),
        {},
        False,
    ),
    "not the driver": (exactly("a", "any", selectors=[{"cel": {"expression": f'!(device.driver == "{NAME}")'}}]), {}, False),
    "the driver or not": (exactly("a", "any", selectors=[{"cel": {"expression": f'device.driver == "{NAME}" ? true : true'}}]), {}, False),
    "the driver as the last term": (selecting(f'device.attributes["x.example.com"].speed > 1 && device.driver == "{NAME}"'), {}, True),
    "a comparison that must be false": (selecting(f'(device.driver == "{NAME}") != true'), {}, False),
    "a comparison with false": (selecting(f'device.driver == "{NAME}" == false'), {}, False),
    "one of a list": (selecting(f'[device.driver == "{NAME}", true].exists(x, x)'), {}, False),
    "a term in brackets": (selecting(f'(true && device.driver == "{NAME}" && true) == false'), {}, False),
    "a text": (selecting(f"""device.attributes["x.example.com"].note == "true && device.driver == '{NAME}' && true\""""), {}, False),
    "another driver's name in front": (exactly("a", "any", selectors=[{"cel": {"expression": f'device.driver == "x{NAME}"'}}]), {}, False),
}


@pytest.mark.parametrize("request_, classes, is_own", OWN.values(), ids=OWN)
def test_a_request_is_own_only_if_no_other_driver_can_satisfy_it(
    request_: Mapping[str, Any], classes: Mapping[str, Any], *, is_own: bool
) -> None:
    known = {("DeviceClass", "", name): body for name, body in classes.items()}
    view = checked(claim(request_, configs=(config(bandwidth=1),)), known)
    assert view.requests[0].is_own is is_own


def test_claims_for_other_drivers_are_not_checked() -> None:
    seen = Seen()
    body = claim(exactly("a", "gpu"), configs=(config("gpu.example.com", x=1),))
    assert whole_objects.of_claim("ResourceClaim", body, seen.rules, {}) == ()
    pod = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}], "containers": [{"name": "m"}]}
    whole_objects.of_pod(pod, seen.rules, {("ResourceClaim", "lab", "c"): body}, namespace="lab")
    whole_objects.of_pod({"containers": [{"name": "m"}]}, seen.rules, {}, namespace="lab")
    assert (seen.claims, seen.pods) == ([], [])


def test_errors_are_returned_or_raised_and_each_is_reported_once() -> None:
    error = drakit.ConfigError("too many; request one", field="spec.devices.requests[0]")
    body = claim(exactly("a"))
    assert whole_objects.of_claim("ResourceClaim", body, Seen(error, error).rules, {}) == (error,)

    def raises(_: drakit.ClaimSpec) -> Iterator[drakit.ConfigError]:
        yield error
        raise drakit.ConfigError("also this")

    rules = {NAME: drakit.Rules(types=(RegionConfig,), check_claim=raises)}
    assert [found.reason for found in whole_objects.of_claim("ResourceClaim", body, rules, {})] == ["too many; request one", "also this"]


def test_a_check_that_only_raises_finds_nothing_in_a_valid_object() -> None:
    def raises(claim: drakit.ClaimSpec) -> None:
        if claim.requests[0].count == 2:
            raise drakit.ConfigError("too many")

    def raises_nothing(_: drakit.PodSpec) -> None:
        """Find no mistake."""

    rules = {NAME: drakit.Rules(types=(RegionConfig,), check_claim=raises, check_pod=raises_nothing)}
    assert whole_objects.of_claim("ResourceClaim", claim(exactly("a")), rules, {}) == ()
    assert [found.reason for found in whole_objects.of_claim("ResourceClaim", claim(exactly("a", count=2)), rules, {})] == ["too many"]
    assert whole_objects.of_pod(POD, rules, KNOWN, namespace="lab") == ()


def test_a_check_that_returns_something_else_is_named() -> None:
    with pytest.raises(TypeError, match=r"returned str; return drakit\.ConfigError"):
        whole_objects.of_claim("ResourceClaim", claim(exactly("a")), Seen("no").rules, {})  # type: ignore[arg-type] # the mistake


POD: dict[str, Any] = {
    "hostNetwork": True,
    "resourceClaims": [
        {"name": "one", "resourceClaimName": "c"},
        {"name": "two", "resourceClaimTemplateName": "t"},
        {"name": "later", "resourceClaimName": "not-yet"},
    ],
    "initContainers": [{"name": "i", "resources": {"claims": [{"name": "two"}]}}],
    "containers": [
        {"name": "m", "resources": {"claims": [{"name": "one", "request": "b"}, {"name": "later"}]}},
        {"name": "n", "resources": {"limits": {"example.com/region": 1, "cpu": 1}, "requests": {"example.com/region": 1}}},
    ],
}
KNOWN: whole_objects.Known = {
    ("ResourceClaim", "lab", "c"): claim(exactly("a"), exactly("b", "fast")),
    ("ResourceClaimTemplate", "lab", "t"): claim(exactly("x"), exactly("y", "gpu"), kind="ResourceClaimTemplate"),
    ("DeviceClass", "", "fast"): {"spec": {**CLASS["spec"], "extendedResourceName": "example.com/region"}},  # type: ignore[dict-item]
}


def test_a_check_sees_what_each_container_of_a_pod_gets() -> None:
    seen = Seen()
    assert whole_objects.of_pod(POD, seen.rules, KNOWN, namespace="lab", name="p") == ()
    (pod,) = seen.pods
    assert (pod.namespace, pod.name, pod.field, pod.host_network, sorted(pod.claims)) == ("lab", "p", "spec", True, ["one", "two"])
    assert [(use.container, use.claim, use.request.name, use.request.is_own, use.field) for use in pod.uses] == [
        ("i", "two", "x", True, "spec.initContainers[0].resources.claims[0]"),
        ("i", "two", "y", False, "spec.initContainers[0].resources.claims[0]"),
        ("m", "one", "b", True, "spec.containers[0].resources.claims[0]"),
        ("n", "", "", True, 'spec.containers[1].resources.limits["example.com/region"]'),
    ]


def test_the_fields_of_a_pod_template_begin_with_its_path() -> None:
    seen = Seen()
    whole_objects.of_pod(POD, seen.rules, KNOWN, namespace="lab", path="spec.template.spec")
    assert seen.pods[0].field == "spec.template.spec"
    assert seen.pods[0].uses[0].field == "spec.template.spec.initContainers[0].resources.claims[0]"


@pytest.mark.parametrize(
    "body", [None, 7, {"devices": 7}, {"devices": {"requests": [7, None, {"exactly": []}]}}, {"devices": {"config": [{}, 1]}}]
)
def test_a_malformed_claim_is_no_error_here(body: object) -> None:
    """The API server reports it."""
    for kind, spec in (("ResourceClaim", body), ("ResourceClaimTemplate", {"spec": body})):
        assert whole_objects.of_claim(kind, {"spec": spec}, Seen().rules, {}) == ()
        assert list(whole_objects.classes_of(kind, {"spec": spec})) == []


def test_an_extended_resource_belongs_to_the_classes_of_the_driver() -> None:
    own = selection.OwnDevices.of(NAME, {"fast": KNOWN["DeviceClass", "", "fast"]})
    assert own.resources == {
        "example.com/region": "fast",
        "deviceclass.resource.kubernetes.io/fast": "fast",
        f"deviceclass.resource.kubernetes.io/{NAME}": NAME,
    }


@pytest.mark.parametrize("for_all", [False, True])
@pytest.mark.parametrize("requests", [(exactly("r"), exactly("s")), (exactly("r", count=2),)])
def test_a_value_without_requests_is_repeated_only_where_it_is_for_all_devices(requests: tuple[object, ...], *, for_all: bool) -> None:
    """Another driver may have a ``ConfigFilter``."""
    rules = {NAME: drakit.Rules(types=(RegionConfig,), unique=lambda _: {"bandwidth": "n"}, for_all=for_all)}
    body = claim(*requests, configs=({"opaque": {"driver": NAME, "parameters": {}}},))
    found = whole_objects.of_claim("ResourceClaim", body, rules, {(whole_objects.CLASS, "", NAME): CLASS})
    assert [error.field for error in found] == (["spec.devices.config[0].opaque.parameters.bandwidth"] if for_all else [])
