"""What lint says of claims for NICs that none of the published NICs can serve as it is written."""

import json
from typing import Any

import pytest
import yaml

from fakes import command_line

NIC = "nic.drakit.dev"


def claim(mtu: int, expression: str = "true", **fields: object) -> dict[str, Any]:
    parameters = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig", "mtu": mtu, **fields}
    devices = {
        "requests": [{"name": "r", "exactly": {"deviceClassName": NIC, "selectors": [{"cel": {"expression": expression}}]}}],
        "config": [{"opaque": {"driver": NIC, "parameters": parameters}}],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}


def lint(shell: command_line.CommandLine, obj: object, change: tuple[str, str] = ("", "")) -> list[dict[str, Any]]:
    """Return the findings about a claim, with the slices of a machine of two NICs in which one text is changed once."""
    machine = ("--mock", "dgx-a100-40gb-2gpu", "--family", "nic", "--folder", str(shell.folder / "lab"))
    slices, file = shell.folder / "slices.yaml", shell.folder / "claim.yaml"
    slices.write_text(shell.run("slices", *machine, "-o", "yaml").out.replace(*change, 1))
    file.write_text(yaml.dump(obj, Dumper=yaml.CSafeDumper))
    found: list[dict[str, Any]] = json.loads(shell.run("lint", str(slices), str(file), "-o", "json").out)
    return [one for one in found if one["file"] == str(file)]


def test_an_mtu_above_that_of_every_selected_nic_is_an_error(shell: command_line.CommandLine) -> None:
    (finding,) = lint(shell, claim(9500, f'device.attributes["{NIC}"].ifName == "eth1"'))
    assert (finding["severity"], finding["field"]) == ("error", "spec.devices.config[0].opaque.parameters.mtu")
    assert finding["message"].startswith("9500 is above the 9000 of eth1, on which the share is: the driver refuses")
    (finding,) = lint(shell, claim(9500))
    assert "(none of the 2 devices that are selected takes it)" in finding["message"]


LARGER = ("      mtu:\n        int: 9000", "      mtu:\n        int: 9600")
WHOLE = ("        string: shared", "        string: whole")


@pytest.mark.parametrize("change", [LARGER, WHOLE])
def test_an_mtu_that_one_nic_takes_is_fine(shell: command_line.CommandLine, change: tuple[str, str]) -> None:
    assert lint(shell, claim(9500), change) == []
    assert lint(shell, claim(9000)) == []


def with_bandwidth(amount: object) -> dict[str, Any]:
    asked = claim(9000)
    asked["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"bandwidth": amount}}
    return asked


@pytest.mark.parametrize("amount", [5, "5", "5m", "5k"])
def test_a_bandwidth_whose_unit_was_forgotten_is_a_warning(shell: command_line.CommandLine, amount: object) -> None:
    (finding,) = lint(shell, with_bandwidth(amount))
    assert (finding["severity"], finding["field"]) == ("warning", "spec.devices.requests[0].exactly.capacity.requests[bandwidth]")
    assert finding["message"] == f"requests {amount}, which is rounded up to 10M, the least that these devices give"
    assert finding["fix"] == "write 5G if the unit was forgotten, or at least 10M"


@pytest.mark.parametrize(
    "amount, fix",
    [
        ("100m", "write 100M for millions (m is a thousandth), or at least 10M"),
        ("0", "write at least 10M"),
        ("5Gi", "write 5G, as these devices do"),
    ],
)
def test_a_bandwidth_with_a_wrong_unit_is_a_warning(shell: command_line.CommandLine, amount: str, fix: str) -> None:
    (finding,) = lint(shell, with_bandwidth(amount))
    assert (finding["severity"], finding["fix"], "rounded up" in finding["message"]) == ("warning", fix, True)


@pytest.mark.parametrize(
    "address, fix",
    [("10.0.0.3", "such as 10.0.0.3/24"), ("fd00::3", "such as fd00::3/64"), ("10.0.0.3/24", "")],
)
def test_an_address_without_a_prefix_gets_that_of_a_network(shell: command_line.CommandLine, address: str, fix: str) -> None:
    found = [f"{one['message']}; {one['fix']}" for one in lint(shell, claim(9000, addresses=[address]))]
    assert found == ([f"'{address}' has no prefix; write that of its network too, {fix}"] if fix else [])


@pytest.mark.parametrize(
    "name, value, fix",
    [
        ("bandwidth", "5G", 'it is a capacity: move it to the request, as exactly.capacity.requests: {bandwidth: "5G"}'),
        ("ifName", "eth1", f'it is an attribute: write a selector in the request: device.attributes["{NIC}"].ifName == "eth1"'),
        ("bandwith", "5G", "known are "),
    ],
)
def test_an_attribute_or_capacity_among_the_parameters_gets_its_place(
    shell: command_line.CommandLine, name: str, value: str, fix: str
) -> None:
    (finding,) = lint(shell, claim(9000, **{name: value}))
    assert (finding["message"], finding["fix"][: len(fix)]) == ("is not a known field", fix)


@pytest.mark.parametrize("amount", ["5G", "10M", "1M", "10k"])
def test_a_small_bandwidth_is_fine(shell: command_line.CommandLine, amount: str) -> None:
    assert lint(shell, with_bandwidth(amount)) == []


def test_the_name_of_the_pods_own_interface_is_a_warning(shell: command_line.CommandLine) -> None:
    (finding,) = lint(shell, claim(9000, interfaceName="eth0"))
    assert (finding["severity"], finding["field"]) == ("warning", "spec.devices.config[0].opaque.parameters.interfaceName")
    assert finding["fix"] == "write another name, such as net1"
    assert lint(shell, claim(9000, interfaceName="eth1")) == []
