"""What lint says of NICs: pods in the host's network never start with one, and a default route without override is refused."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from fakes import command_line

NIC = "nic.drakit.dev"
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "pair", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "p", "exactly": {"deviceClassName": NIC, "count": 2}}]}}},
}
USE = {"name": "pair"}


def device_class(name: str, expression: str, **fields: object) -> dict[str, Any]:
    spec = {"selectors": [{"cel": {"expression": expression}}], **fields}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


CLASSES = (
    device_class(NIC, f'device.driver == "{NIC}"'),
    device_class("fast", f"device.driver=='{NIC}' && device.attributes['{NIC}'].speed > 1", extendedResourceName="example.com/fast"),
    device_class("gpu", f'device.driver == "gpu.drakit.dev" && device.driver != "{NIC}"'),
)


def spec_of(*uses: Mapping[str, object], **fields: object) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"claims": [*uses]}}
    return {
        "hostNetwork": True,
        "resourceClaims": [{"name": "pair", "resourceClaimTemplateName": "pair"}],
        "containers": [container],
        **fields,
    }


def pod(spec: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hostnet", "namespace": "default"}, "spec": spec}


def deployment(spec: object) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"}, "spec": body}


def cron_job(spec: object) -> dict[str, Any]:
    job = {"spec": {"template": {"spec": {"restartPolicy": "Never", **dict(spec)}}}}  # type: ignore[call-overload]
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "j"}, "spec": {"schedule": "0 0 * * *", "jobTemplate": job}}


def template(*requests: Mapping[str, object]) -> dict[str, Any]:
    return {**TEMPLATE, "spec": {"spec": {"devices": {"requests": [*requests]}}}}


def exactly(name: str, device_class_name: str, expression: str = "") -> dict[str, Any]:
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if expression else {}
    return {"name": name, "exactly": {"deviceClassName": device_class_name, **selectors}}


def first(name: str, *classes: str) -> dict[str, Any]:
    return {"name": name, "firstAvailable": [{"name": f"n{number}", "deviceClassName": one} for number, one in enumerate(classes)]}


def lint(shell: command_line.CommandLine, *objects: object, options: Sequence[str] = ()) -> list[dict[str, Any]]:
    file = shell.folder / "objects.yaml"
    file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    found: list[dict[str, Any]] = json.loads(shell.run("lint", str(file), "-o", "json", *options).out)
    return [one for one in found if "selectors were" not in one["message"]]


REFUSED = {
    "a pod": (TEMPLATE, pod(spec_of(USE)), "spec.containers[0].resources.claims[0]"),
    "a deployment": (TEMPLATE, deployment(spec_of(USE)), "spec.template.spec.containers[0].resources.claims[0]"),
    "a cron job": (TEMPLATE, cron_job(spec_of(USE)), "spec.jobTemplate.spec.template.spec.containers[0].resources.claims[0]"),
    "a class by its selector": (template(exactly("p", "fast")), pod(spec_of(USE)), "spec.containers[0].resources.claims[0]"),
    "a selector of the request": (
        template(exactly("p", "any", f'device.driver == "{NIC}"')),
        pod(spec_of(USE)),
        "spec.containers[0].resources.claims[0]",
    ),
    "alternatives that are all NICs": (template(first("p", NIC, "fast")), pod(spec_of(USE)), "spec.containers[0].resources.claims[0]"),
    "one of two requests": (
        template(exactly("g", "gpu"), exactly("p", NIC)),
        pod(spec_of({"name": "pair", "request": "p"})),
        "spec.containers[0].resources.claims[0]",
    ),
}


@pytest.mark.parametrize("with_classes", [True, False])
@pytest.mark.parametrize("claims, user, field", REFUSED.values(), ids=REFUSED)
def test_a_pod_of_the_hosts_network_with_a_nic_is_an_error(
    shell: command_line.CommandLine,
    claims: object,
    user: object,
    field: str,
    with_classes: bool,  # noqa: FBT001 - a parameter
) -> None:
    if "fast" in str(claims) and not with_classes:
        return
    (found,) = [one for one in lint(shell, *(CLASSES if with_classes else ()), claims, user) if "hostNetwork" in one["message"]]
    assert (found["severity"], found["field"]) == ("error", field)
    assert "can never start" in found["message"]
    assert "hostNetwork, or the claim pair" in found["fix"]


@pytest.mark.parametrize("source", ["--set", "--config", "environment"])
def test_settings_by_which_the_webhook_takes_a_pod_are_those_of_lint(
    shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    file = shell.folder / "settings.yaml"
    file.write_text("nic: {vfio: ['driver:igbvf']}\n")
    if source == "environment":
        monkeypatch.setenv("DRAKIT_NIC__VFIO", '["driver:igbvf"]')
    options = {"--set": ("--set", "nic.vfio=['driver:igbvf']"), "--config": ("--config", str(file)), "environment": ()}[source]
    assert not [one for one in lint(shell, TEMPLATE, pod(spec_of(USE)), options=options) if "hostNetwork" in one["message"]]


def test_a_setting_that_lint_cannot_read_is_bad_input(shell: command_line.CommandLine) -> None:
    ran = shell.run("lint", shell.write("claim", {}), "--set", "nic.vfi=true")
    assert (ran.status, "nic.vfi: is not a setting; did you mean nic.vfio?" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("resource", ["example.com/fast", f"deviceclass.resource.kubernetes.io/{NIC}"])
def test_a_pod_of_the_hosts_network_with_a_nic_as_a_resource_is_an_error(shell: command_line.CommandLine, resource: str) -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: 1}}}
    spec = {"hostNetwork": True, "containers": [container]}
    assert [one["severity"] for one in lint(shell, *CLASSES, pod(spec)) if "hostNetwork" in one["message"]] == ["error"]


ADMIN = {"name": "p", "exactly": {"deviceClassName": NIC, "count": 2, "adminAccess": True}}
ALLOWED = {
    "a pod with its own network": (TEMPLATE, pod(spec_of(USE, hostNetwork=False))),
    "a GPU": (template(exactly("p", "gpu")), pod(spec_of(USE))),
    "an alternative that is no NIC": (template(first("p", NIC, "gpu")), pod(spec_of(USE))),
    "a container that gets the other request": (
        template(exactly("g", "gpu"), exactly("p", NIC)),
        pod(spec_of({"name": "pair", "request": "g"})),
    ),
    "a claim that no container uses": (TEMPLATE, pod(spec_of())),
    "admin access, which attaches nothing": (template(ADMIN), pod(spec_of(USE))),
}


@pytest.mark.parametrize("claims, user", ALLOWED.values(), ids=ALLOWED)
def test_pods_with_their_own_network_have_no_finding(shell: command_line.CommandLine, claims: object, user: object) -> None:
    assert [one for one in lint(shell, *CLASSES, claims, user) if "hostNetwork" in one["message"]] == []


def nic_claim(*routes: Mapping[str, object], rules: tuple[Mapping[str, object], ...] = ()) -> dict[str, Any]:
    parameters = {"apiVersion": f"{NIC}/v1", "kind": "NicConfig", "routes": [*routes], **({"rules": [*rules]} if rules else {})}
    config = {"opaque": {"driver": NIC, "parameters": parameters}}
    spec = {"devices": {"requests": [exactly("p", NIC)], "config": [config]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize("destination", ["0.0.0.0/0", "::/0"])
def test_a_default_route_without_override_is_a_warning_with_the_fix(shell: command_line.CommandLine, destination: str) -> None:
    (found,) = lint(shell, CLASSES[0], nic_claim({"destination": "10.9.0.0/16"}, {"destination": destination}))
    assert (found["severity"], found["field"]) == ("warning", "spec.devices.config[0].opaque.parameters.routes[1]")
    assert destination in found["message"]
    assert "refused at every start" in found["message"]
    assert "override: true" in found["fix"]


@pytest.mark.parametrize(
    "route", [{"override": True}, {"metric": 50}, {"table": 100}, {"destination": "0.0.0.0/1"}], ids=["override", "metric", "table", "half"]
)
def test_routes_other_than_a_default_have_no_finding(shell: command_line.CommandLine, route: Mapping[str, object]) -> None:
    rules = ({"priority": 1000, "table": 100, "source": "10.0.0.0/8"},) if "table" in route else ()
    assert lint(shell, CLASSES[0], nic_claim({"destination": "0.0.0.0/0", **route}, rules=rules)) == []


def configured(*configs: Mapping[str, object], count: int = 2, more: tuple[Mapping[str, object], ...] = ()) -> dict[str, Any]:
    requests = [{"name": "p", "exactly": {"deviceClassName": NIC, "count": count}}, *more]
    entries = [
        {
            **{key: value for key, value in config.items() if key == "requests"},
            "opaque": {
                "driver": NIC,
                "parameters": {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig"}
                | {key: value for key, value in config.items() if key != "requests"},
            },
        }
        for config in configs
    ]
    spec = {"devices": {"requests": requests, "config": entries}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def alternatives(*configs: Mapping[str, object], classes: tuple[str, ...] = (NIC, NIC)) -> dict[str, Any]:
    claim = configured(*configs, more=(first("r", *classes),))
    del claim["spec"]["devices"]["requests"][0]
    return claim


OTHER = {"name": "q", "exactly": {"deviceClassName": NIC}}
GPU = {"name": "g", "exactly": {"deviceClassName": "gpu", "count": 2}}
TWICE = {
    "a name for two devices": (configured({"interfaceName": "net1"}), "config[0].opaque.parameters.interfaceName", "net1"),
    "an address for two devices": (configured({"addresses": ["10.0.0.1/24"]}), "config[0].opaque.parameters.addresses[0]", "10.0.0.1"),
    "a name for a request of two devices, beside another request": (
        configured({"interfaceName": "net1", "requests": ["p"]}, more=(GPU,)),
        "config[0].opaque.parameters.interfaceName",
        "net1",
    ),
    "a name for two requests": (
        configured({"interfaceName": "net1", "requests": ["p", "q"]}, count=1, more=(OTHER,)),
        "config[0].opaque.parameters.interfaceName",
        "(requests p, q)",
    ),
    "a name for all of two requests": (
        configured({"interfaceName": "net1"}, count=1, more=(OTHER,)),
        "config[0].opaque.parameters.interfaceName",
        "(requests p, q)",
    ),
    "a name in two configurations": (
        configured({"interfaceName": "net1", "requests": ["p"]}, {"interfaceName": "net1", "requests": ["q"]}, count=1, more=(OTHER,)),
        "config[1].opaque.parameters.interfaceName",
        "(requests p, q)",
    ),
    "a name in two configurations for two requests, of which others are overridden": (
        configured(
            {"interfaceName": "net2", "requests": ["p"]},
            {"interfaceName": "net1", "requests": ["q"]},
            {"interfaceName": "net1", "requests": ["p"]},
            count=1,
            more=(OTHER,),
        ),
        "config[2].opaque.parameters.interfaceName",
        "(requests q, p)",
    ),
    "a name for alternatives and another request": (
        configured({"interfaceName": "net1", "requests": ["p", "r/n0", "r/n1"]}, count=1, more=(first("r", NIC, NIC),)),
        "config[0].opaque.parameters.interfaceName",
        "(requests p, r)",
    ),
}
ONCE = {
    "a name for one device": configured({"interfaceName": "net1"}, count=1),
    "no name for two devices": configured({"mtu": 1500}),
    "a name beside a request for GPUs": configured({"interfaceName": "net1"}, count=1, more=(GPU,)),
    "a name for two alternatives": alternatives({"interfaceName": "net1", "requests": ["r/n0", "r/n1"]}),
    "a name for each of two alternatives": alternatives(
        {"interfaceName": "net1", "requests": ["r/n0"]}, {"interfaceName": "net1", "requests": ["r/n1"]}
    ),
    "a name for a request and one that may be for something else": configured(
        {"interfaceName": "net1", "requests": ["p", "r"]}, count=1, more=(first("r", NIC, "gpu"),)
    ),
    "a name for a request and one for a GPU": configured({"interfaceName": "net1", "requests": ["p", "g"]}, count=1, more=(GPU,)),
    "a name for a request and one of an unknown class": configured(
        {"interfaceName": "net1", "requests": ["p", "u"]}, count=1, more=(exactly("u", "unknown"),)
    ),
    "a name for all that is overridden for one request": configured(
        {"interfaceName": "net1"}, {"interfaceName": "net2", "requests": ["q"]}, count=1, more=(OTHER,)
    ),
    "a name that is overridden for one request": configured(
        {"interfaceName": "net1", "requests": ["p", "q"]}, {"interfaceName": "net2", "requests": ["q"]}, count=1, more=(OTHER,)
    ),
    "a name that is removed for one request": configured(
        {"interfaceName": "net1", "requests": ["p", "q"]}, {"mtu": 1500, "requests": ["q"]}, count=1, more=(OTHER,)
    ),
    "two names": configured({"interfaceName": "a", "requests": ["p"]}, {"interfaceName": "b", "requests": ["q"]}, count=1, more=(OTHER,)),
}


@pytest.mark.parametrize("claim, field, word", TWICE.values(), ids=TWICE)
def test_what_two_interfaces_cannot_both_have_is_an_error(
    shell: command_line.CommandLine, claim: Mapping[str, Any], field: str, word: str
) -> None:
    (finding,) = lint(shell, claim)
    assert (finding["severity"], finding["field"]) == ("error", f"spec.devices.{field}")
    assert word in finding["message"]
    assert finding["fix"] == "write a request and a configuration for each device"


@pytest.mark.parametrize("claim", ONCE.values(), ids=ONCE)
def test_what_only_one_interface_gets_is_fine(shell: command_line.CommandLine, claim: Mapping[str, Any]) -> None:
    assert lint(shell, claim) == []


def test_devices_with_admin_access_get_no_name_so_they_repeat_none(shell: command_line.CommandLine) -> None:
    labels = {"resource.kubernetes.io/admin-access": "true"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    named = {"interfaceName": "net1", "requests": ["p", "q"]}
    assert lint(shell, namespace, configured(named, count=1, more=({**ADMIN, "name": "q"},))) == []


def pair(
    first: Mapping[str, Any],
    second: Mapping[str, Any] | None = None,
    uses: Sequence[Mapping[str, object]] = ({"name": "left"}, {"name": "right"}),
) -> list[Any]:
    """Return two claims and a pod that uses them as left and right, or one claim under both names."""
    claims = [{**claim, "metadata": {"name": name}} for name, claim in (("one", first), ("two", second)) if claim is not None]
    entries = [{"name": "left", "resourceClaimName": "one"}, {"name": "right", "resourceClaimName": "two" if second else "one"}]
    return [*CLASSES, *claims, pod(spec_of(*uses, hostNetwork=False, resourceClaims=entries))]


def named(name: str = "net1", *requests: str) -> dict[str, Any]:
    return configured({"interfaceName": name, **({"requests": [*requests]} if requests else {})}, count=1)


ADDRESSED = configured({"addresses": ["10.0.0.1/24"]}, count=1)
SHARED_BY_TWO = {
    "a name": (pair(named(), named()), "the interface name net1"),
    "an address": (pair(ADDRESSED, configured({"addresses": ["10.0.0.2/24", "10.0.0.1/16"]}, count=1)), "the address 10.0.0.1"),
    "a name of alternatives": (
        pair(named(), alternatives({"interfaceName": "net1", "requests": ["r/n0"]}, {"interfaceName": "net1", "requests": ["r/n1"]})),
        "the interface name net1",
    ),
    "a name for all requests of a claim with a GPU": (
        pair(named(), configured({"interfaceName": "net1"}, count=1, more=(GPU,))),
        "the interface name net1",
    ),
}


@pytest.mark.parametrize("objects, what", SHARED_BY_TWO.values(), ids=SHARED_BY_TWO)
def test_a_name_or_address_in_two_claims_of_a_pod_is_one_error(shell: command_line.CommandLine, objects: list[Any], what: str) -> None:
    (finding,) = lint(shell, *objects)
    assert (finding["severity"], finding["field"]) == ("error", "spec.containers[0].resources.claims[1]")
    assert finding["message"].startswith(f"the claims left and right both give the pod {what}: the second interface is refused")
    assert finding["fix"] == "name a claim or template for right that has another value or none"


def test_two_claims_of_one_template_with_a_name_are_an_error(shell: command_line.CommandLine) -> None:
    named_template = {**TEMPLATE, "spec": {"spec": named()["spec"]}}
    entries = [{"name": name, "resourceClaimTemplateName": "pair"} for name in ("left", "right")]
    spec = spec_of({"name": "left"}, {"name": "right"}, hostNetwork=False, resourceClaims=entries)
    (finding,) = lint(shell, CLASSES[0], named_template, deployment(spec))
    assert finding["field"] == "spec.template.spec.containers[0].resources.claims[1]"


def of_class(**parameters: object) -> dict[str, Any]:
    """Return a DeviceClass for NICs with these parameters for its devices."""
    opaque = {"driver": NIC, "parameters": {"apiVersion": f"{NIC}/v1", "kind": "NicConfig", **parameters}}
    return device_class("named", f'device.driver == "{NIC}"', config=[{"opaque": opaque}])


def asking(name: str, *configs: Mapping[str, object]) -> dict[str, Any]:
    """Return a claim for a device of a class, with configurations of its own."""
    claim = configured(*configs, count=1)
    claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = name
    return claim


@pytest.mark.parametrize(
    "first, second, fix",
    [
        (asking("named"), asking("named"), "write another value in the config of right, because this is of DeviceClass named"),
        (named(), asking("named"), "write another value in the config of right, because this is of DeviceClass named"),
        (asking("named"), named(), "name a claim or template for right that has another value or none"),
        (asking("named"), asking("named", {"interfaceName": "net2"}), ""),
        (asking("named"), asking("named", {"mtu": 1500}), ""),
    ],
    ids=["of one class", "of a claim and a class", "of a class and a claim", "another name", "parameters that replace those of the class"],
)
def test_names_of_classes_count_where_the_claim_has_no_parameters(
    shell: command_line.CommandLine, first: dict[str, Any], second: dict[str, Any], fix: str
) -> None:
    found = lint(shell, of_class(interfaceName="net1"), *pair(first, second))
    assert [finding["fix"] for finding in found] == ([fix] if fix else [])
    assert all("left and right both give the pod the interface name net1" in finding["message"] for finding in found)


FOR_ONE = {
    "one claim under two names": pair(named()),
    "two names": pair(named(), named("net2")),
    "no name": pair(named(), configured(count=1)),
    "a name that is overridden": pair(
        named(), configured({"interfaceName": "net1"}, {"interfaceName": "net2", "requests": ["p"]}, count=1)
    ),
    "a name of only one alternative": pair(
        named(), alternatives({"interfaceName": "net1", "requests": ["r/n0"]}, {"interfaceName": "net2", "requests": ["r/n1"]})
    ),
    "a request that the container does not use": pair(
        named(),
        configured({"interfaceName": "net1", "requests": ["p"]}, count=1, more=(OTHER,)),
        uses=({"name": "left"}, {"name": "right", "request": "q"}),
    ),
}


@pytest.mark.parametrize("objects", FOR_ONE.values(), ids=FOR_ONE)
def test_names_that_a_pod_gets_once_are_fine(shell: command_line.CommandLine, objects: list[Any]) -> None:
    assert lint(shell, *objects) == []
