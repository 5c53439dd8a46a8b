"""What lint says of parameters for GPUs that the selected devices cannot have, such as time slices for MIG partitions."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from drakit_gpu import config
from drakit_gpu.inventory import attributes
from fakes import command_line

GPU = "gpu.drakit.dev"
SLICED = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}


def claim(device_class: str, kind: str, *requests: str) -> dict[str, Any]:
    parameters = {"apiVersion": "gpu.drakit.dev/v1", "kind": kind, "sharing": SLICED if kind == "GpuConfig" else {"strategy": "MPS"}}
    devices = {
        "requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}],
        "config": [{"requests": [*requests], "opaque": {"driver": GPU, "parameters": parameters}}],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}


Lint = Callable[[object], list[dict[str, Any]]]


@pytest.fixture
def lint(shell: command_line.CommandLine, published_json: Callable[..., str]) -> Lint:
    """What lint says of an object beside the slices of a node with two GPUs and drakit's classes."""
    slices, classes = shell.folder / "slices.yaml", "driver/drakit_tools/demo/deviceclasses.yaml"
    slices.write_text(published_json("dgx-a100-40gb-2gpu"))

    def found(obj: object) -> list[dict[str, Any]]:
        file = shell.folder / "claim.yaml"
        file.write_text(yaml.dump(obj, Dumper=yaml.CSafeDumper))
        findings: list[dict[str, Any]] = json.loads(shell.run("lint", str(slices), classes, str(file), "-o", "json").out)
        return [one for one in findings if one["file"] == str(file)]

    return found


@pytest.mark.parametrize("device_class, kind", [("mig.drakit.dev", "GpuConfig"), ("gpu.drakit.dev", "MigConfig")])
def test_parameters_that_fit_no_selected_device_are_found(lint: Lint, device_class: str, kind: str) -> None:
    for requests, severity, word in ((("r",), "error", "refuses to prepare"), ((), "warning", "has no effect")):
        (finding,) = lint(claim(device_class, kind, *requests))
        assert (finding["severity"], finding["field"]) == (severity, "spec.devices.config[0].opaque.parameters")
        assert f"{kind} fits none" in finding["message"]
        assert word in finding["message"]
        assert finding["fix"].startswith("use MigConfig" if kind == "GpuConfig" else "use GpuConfig")


@pytest.mark.parametrize("device_class, kind", [("gpu.drakit.dev", "GpuConfig"), ("mig.drakit.dev", "MigConfig")])
def test_parameters_that_fit_are_fine(lint: Lint, device_class: str, kind: str) -> None:
    sharing = {"strategy": "TimeSlicing" if kind == "GpuConfig" else "MPS"}
    assert lint(with_sharing(claim(device_class, kind, "r"), sharing)) == []


def test_each_type_of_device_has_a_kind_of_parameters() -> None:
    types = {value for name, value in vars(attributes).items() if name.startswith("TYPE_")}
    rules = config.rules()
    for kind in types:
        assert [rules.fits(made, {"type": kind}) for made in (config.GpuConfig(), config.MigConfig())].count(True) == 1


MPS = {"strategy": "MPS"}


def with_sharing(obj: dict[str, Any], sharing: dict[str, Any], **exactly: object) -> dict[str, Any]:
    devices = obj["spec"]["devices"]
    devices["config"][0]["opaque"]["parameters"]["sharing"] = sharing
    devices["requests"][0]["exactly"] |= exactly
    return obj


@pytest.mark.parametrize("sharing, what", [(MPS, "MPS"), (SLICED, "time slices")])
def test_a_whole_gpu_in_mig_mode_is_not_shared(lint: Lint, sharing: dict[str, Any], what: str) -> None:
    (finding,) = lint(with_sharing(claim("gpu.drakit.dev", "GpuConfig"), sharing, selectors=[{"cel": {"expression": IN_MIG_MODE}}]))
    assert (finding["severity"], finding["field"]) == ("error", "spec.devices.config[0].opaque.parameters.sharing")
    assert f"is in MIG mode, in which a whole GPU has no {what}" in finding["message"]
    assert "turn MIG mode off" in finding["fix"]


IN_MIG_MODE = 'device.attributes["gpu.drakit.dev"].?migMode.orValue("") == "on"'


def test_a_gpu_in_mig_mode_is_fine_if_nothing_changes_its_settings(lint: Lint) -> None:
    only = {"selectors": [{"cel": {"expression": IN_MIG_MODE}}]}
    assert lint(with_sharing(claim("gpu.drakit.dev", "GpuConfig"), {"strategy": "TimeSlicing"}, **only)) == []
    admins = with_sharing(claim("gpu.drakit.dev", "GpuConfig"), MPS, adminAccess=True, **only)
    assert [one for one in lint(admins) if "MIG mode" in one["message"]] == []
    overridden = with_sharing(claim("gpu.drakit.dev", "GpuConfig"), MPS, **only)
    parameters = {"apiVersion": "gpu.drakit.dev/v1", "kind": "GpuConfig"}
    overridden["spec"]["devices"]["config"].append({"opaque": {"driver": GPU, "parameters": parameters}})
    assert lint(overridden) == []


@pytest.mark.parametrize("values", [{"migMode": "on-demand"}, {"migMode": "off"}, {}, {"type": "vfio", "migMode": "on"}])
def test_only_a_mode_that_drakit_cannot_turn_off_rules_out_sharing(values: dict[str, object]) -> None:
    sharing = config.Sharing(strategy=config.Strategy.MPS)
    config.rules().check_device(config.GpuConfig(sharing=sharing), {"type": "gpu", **values})


WRONG = {
    "another case": ("mig.drakit.dev", "gpu.drakit.dev", "Profile", "write profile"),
    "a letter": ("mig.drakit.dev", "gpu.drakit.dev", "profil", "write profile"),
    "another driver's domain": ("mig.drakit.dev", "gpu.nvidia.com", "profile", "write gpu.drakit.dev for gpu.nvidia.com"),
    "another class": ("gpu.drakit.dev", "gpu.drakit.dev", "profile", "request DeviceClass mig.drakit.dev, whose devices have profile"),
}


@pytest.mark.parametrize("device_class, domain, name, fix", WRONG.values(), ids=WRONG)
def test_a_wrong_attribute_is_explained(lint: Lint, device_class: str, domain: str, name: str, fix: str) -> None:
    obj = claim(device_class, "GpuConfig")
    obj["spec"]["devices"]["config"] = []
    obj["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": f'device.attributes["{domain}"].{name} == "3g.20gb"'}}
    ]
    (finding,) = lint(obj)
    assert f"no such key: {name}" in finding["message"]
    assert finding["fix"].startswith(fix)


def test_a_profile_as_like_two_others_is_explained_with_both(lint: Lint) -> None:
    for profile, fix in (("3g.40gb", "write 3g.20gb or 7g.40gb"), ("3G.20GB", "write 3g.20gb;")):
        obj = claim("mig.drakit.dev", "MigConfig")
        expression = f'device.attributes["{GPU}"].profile == "{profile}"'
        obj["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
        (finding,) = lint(obj)
        assert finding["fix"].startswith(fix)


def test_a_class_of_another_driver_is_explained_with_drakits(lint: Lint) -> None:
    (finding,) = lint(claim("mig.nvidia.com", "MigConfig"))
    assert finding["fix"] == "write mig.drakit.dev"
