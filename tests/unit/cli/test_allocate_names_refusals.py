"""``drakit allocate`` warns of what fits by the scheduler's rules and is then refused by the driver, as ``drakit lint`` does."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import yaml

from fakes import command_line

NIC, GPU = "nic.drakit.dev", "gpu.drakit.dev"


def claim(name: str, device_class: str, parameters: Mapping[str, object] | None = None, **fields: object) -> dict[str, Any]:
    """Return a claim with one request, whose configuration names it."""
    driver = NIC if device_class == NIC else GPU
    config = (
        [{"requests": ["r"], "opaque": {"driver": driver, "parameters": {"apiVersion": f"{driver}/v1", **parameters}}}]
        if parameters
        else []
    )
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class, **fields}}], "config": config}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": devices}}


def template(name: str, of: Mapping[str, Any]) -> dict[str, Any]:
    return {**of, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": of["spec"]}}


def pod_spec(source: str, *claims: str, **fields: object) -> dict[str, Any]:
    names = [f"c{number}" for number, _ in enumerate(claims)]
    return {
        "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": name} for name in names]}}],
        "resourceClaims": [{"name": name, source: claim} for name, claim in zip(names, claims, strict=True)],
        **fields,
    }


def pod(name: str, *claims: str, **fields: object) -> dict[str, Any]:
    spec = pod_spec("resourceClaimName", *claims, **fields)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


NAMED = {"kind": "NicConfig", "interfaceName": "net1"}
SLICED = {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}


@pytest.fixture
def slices(shell: command_line.CommandLine, published_json: Callable[..., str]) -> str:
    file = shell.folder / "slices.yaml"
    file.write_text(published_json(command_line.MACHINE, families=()))
    return str(file)


def allocate(
    shell: command_line.CommandLine, slices: str, *objects: object, options: Sequence[str] = ()
) -> tuple[command_line.Result, list[dict[str, Any]]]:
    """Return the result for people, and the refusals of the JSON."""
    file = shell.folder / "asked.yaml"
    file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    document = json.loads(shell.run("allocate", slices, str(file), "-o", "json", *options).out)
    return shell.run("allocate", slices, str(file), *options), document.get("refusals", [])


REFUSED = {
    "one name for two interfaces": (
        [claim("two", NIC, NAMED, count=2)],
        "claim default/two",
        "spec.devices.config[0].opaque.parameters.interfaceName",
        "several devices of the claim would get net1 (request r)",
    ),
    "an unknown field": (
        [claim("typo", NIC, {"kind": "NicConfig", "mtuu": 1500})],
        "claim default/typo",
        "spec.devices.config[0].opaque.parameters.mtuu",
        "is not a known field",
    ),
    "time slicing of a MIG partition": (
        [claim("sliced", "mig.drakit.dev", SLICED)],
        "claim default/sliced",
        "spec.devices.config[0].opaque.parameters",
        "GpuConfig does not fit device gpu-0-mig-1g5gb-19-6 of request r (from the config of the claim, for r)",
    ),
    "MPS of a GPU in MIG mode": (
        [claim("whole", "gpu.drakit.dev", {"kind": "GpuConfig", "sharing": {"strategy": "MPS"}})],
        "claim default/whole",
        "spec.devices.config[0].opaque.parameters.sharing",
        "NVIDIA A100-SXM4-40GB GPU-01d0564f-74d4-5e31-bd01-4826bc4a4e4a is in MIG mode, in which a whole GPU has no MPS",
    ),
    "an MTU above the NIC's": (
        [claim("jumbo", NIC, {"kind": "NicConfig", "mtu": 9500})],
        "claim default/jumbo",
        "spec.devices.config[0].opaque.parameters.mtu",
        "9500 is above the 9000 of eth1, on which the share is",
    ),
    "a NIC for a pod of the host's network": (
        [claim("nic", NIC), pod("p", "nic", hostNetwork=True)],
        "pod default/p",
        "spec.containers[0].resources.claims[0]",
        "the pod is in the host's network",
    ),
    "one name in two claims": (
        [claim("a", NIC, NAMED), claim("b", NIC, NAMED), pod("p", "a", "b")],
        "pod default/p",
        "spec.containers[0].resources.claims[1]",
        "the claims c0 and c1 both give the pod the interface name net1",
    ),
}


@pytest.mark.parametrize("objects, subject, field, text", REFUSED.values(), ids=REFUSED)
def test_what_fits_and_the_driver_refuses_is_a_warning(
    shell: command_line.CommandLine, slices: str, objects: list[Any], subject: str, field: str, text: str
) -> None:
    ran, (refusal,) = allocate(shell, slices, *objects)
    assert (ran.status, refusal["object"], refusal["field"], refusal["more"]) == (0, subject, field, 0)
    assert refusal["message"].startswith(text)
    assert f"warning: the driver refuses {subject}: {field}: {text}" in " ".join(ran.out.split())


def test_a_class_with_wrong_parameters_is_named_if_a_claim_uses_it(shell: command_line.CommandLine, slices: str) -> None:
    config = [{"opaque": {"driver": NIC, "parameters": {"apiVersion": f"{NIC}/v1", "kind": "NicConfig", "mtu": 20}}}]
    selectors = [{"cel": {"expression": f'device.driver == "{NIC}"'}}]
    spec = {"selectors": selectors, "config": config}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "slow"}, "spec": spec}
    (refusal,) = allocate(shell, slices, device_class, claim("c", "slow"))[1]
    assert (refusal["object"], refusal["field"]) == ("DeviceClass slow", "spec.config[0].opaque.parameters.mtu")
    assert allocate(shell, slices, device_class, claim("c", NIC))[1] == []


def test_a_mistake_of_a_workloads_pods_is_printed_once(shell: command_line.CommandLine, slices: str) -> None:
    spec = pod_spec("resourceClaimTemplateName", "t", hostNetwork=True)
    labels = {"app": "a"}
    body = {"replicas": 3, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": body}
    ran, (refusal,) = allocate(shell, slices, template("t", claim("", NIC)), deployment)
    assert (refusal["object"], refusal["more"]) == ("pod default/web-deployment-0", 2)
    assert "the driver refuses pod default/web-deployment-0 and 2 more: " in ran.out
    (sliced,) = allocate(shell, slices, template("t", claim("", "mig.drakit.dev", SLICED)), deployment)[1]
    assert (sliced["object"], sliced["more"]) == ("template default/t", 0)


def test_parameters_that_do_not_fit_are_named_in_each_template_and_class(shell: command_line.CommandLine, slices: str) -> None:
    templates = [template("a", claim("", "mig.drakit.dev", SLICED)), template("b", claim("", "mig.drakit.dev", SLICED))]
    asked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec("resourceClaimTemplateName", "a", "b", "b")}
    refusals = allocate(shell, slices, *templates, asked)[1]
    field = "spec.spec.devices.config[0].opaque.parameters"
    assert [(refusal["object"], refusal["field"]) for refusal in refusals] == [("template default/a", field), ("template default/b", field)]
    assert [refusal["object"] for refusal in allocate(shell, slices, templates[0])[1]] == ["template default/a"]
    wrong = claim("", "x", SLICED)["spec"]["devices"]["config"][0]["opaque"]
    selectors = [{"cel": {"expression": f'device.driver == "{GPU}" && device.attributes["{GPU}"].type == "mig"'}}]
    spec = {"selectors": selectors, "config": [{"opaque": wrong}]}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "sliced"}, "spec": spec}
    (refusal,) = allocate(shell, slices, device_class, claim("c", "sliced"), pod("p", "c"))[1]
    assert (refusal["object"], refusal["field"]) == ("DeviceClass sliced", "spec.config[0].opaque.parameters")


def test_parameters_that_do_not_fit_a_pod_groups_claim_are_named_in_its_template(shell: command_line.CommandLine, slices: str) -> None:
    spec = pod_spec("resourceClaimTemplateName", "a", schedulingGroup={"podGroupName": "g"})
    shared = {"schedulingPolicy": {"basic": {}}, "resourceClaims": spec["resourceClaims"]}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": shared}
    asked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    gates = ("--gate", "DRAWorkloadResourceClaims=true", "--gate", "GenericWorkload=true")
    found = allocate(shell, slices, template("a", claim("", "mig.drakit.dev", SLICED)), group, asked, options=gates)[1]
    assert [(refusal["object"], refusal["field"]) for refusal in found] == [
        ("template default/a", "spec.spec.devices.config[0].opaque.parameters")
    ]


def test_the_drivers_settings_decide_as_in_lint(shell: command_line.CommandLine, slices: str) -> None:
    objects = [claim("nic", NIC), pod("p", "nic", hostNetwork=True)]
    assert allocate(shell, slices, *objects, options=("--set", "nic.vfio=['driver:igbvf']"))[1] == []


def test_what_the_drivers_take_has_no_warning(shell: command_line.CommandLine, slices: str) -> None:
    ran, refusals = allocate(shell, slices, claim("a", NIC, NAMED), claim("m", "mig.drakit.dev", {"kind": "MigConfig"}), pod("p", "a", "m"))
    assert (ran.status, refusals, "warning" in ran.out) == (0, [], False)
