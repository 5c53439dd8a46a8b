"""What lint, allocate and settings say of values as people write them first: a unit, a text without quotes, an operator of another language."""

import json
from typing import Any

import pytest
import yaml

from drakit import units
from drakit.core import errors, quantity
from drakit_cluster.objects import quantity as cluster_quantity
from fakes import command_line

GPU = "gpu.drakit.dev"
ATTRIBUTES = f'device.attributes["{GPU}"]'
FIXES = {
    f"{ATTRIBUTES}.profile == 1g.5gb": 'put quotes around a text: "1g.5gb"',
    f"{ATTRIBUTES}.profile == 1g.5gb+me": 'put quotes around a text: "1g.5gb+me"',
    f"{ATTRIBUTES}.type == mig": 'put quotes around a text: "mig"',
    f'{ATTRIBUTES}.type in ["gpu", mig]': 'put quotes around a text: "mig"',
    f'device.attributes[{GPU}].type == "mig"': f'put quotes around a text: "{GPU}"',
    f'device.capacity["{GPU}"].memory > 5Gi': 'a quantity needs quotes and a function: .compareTo(quantity("5Gi")) > 0',
    f'device.capacity["{GPU}"].memory > "5Gi"': 'quantities are compared by a function: .compareTo(quantity("5Gi")) > 0',
    f'device.driver = "{GPU}"': "write == to compare",
    f'device.driver == "{GPU}" and true': "write && for and",
    'devise.driver == "x"': "write device; device has driver, attributes, capacity",
    'device.drivr == "x"': "write driver; device has driver, attributes, capacity",
    f'true &&\n  device.driver == "{GPU}': "close the quotes that begin at column 20",
    f"{ATTRIBUTES}.shared == True": "write true for True",
    f"{ATTRIBUTES}.shared == False": "write false for False",
    f"{ATTRIBUTES}.type != None": 'no attribute is null; to ask whether one exists, write "name" in device.attributes["domain"]',
    f'{ATTRIBUTES}.type == foo.bar("x")': "fix the expression; device has",
    f"{ATTRIBUTES}.type == size": "fix the expression; device has",
    f"{ATTRIBUTES}.version.compareTo(v1.2.3) > 0": 'a version needs quotes and a function: .compareTo(semver("1.2.3")) > 0',
    f"{ATTRIBUTES}.version == 1.2.3": 'a version needs quotes and a function: .compareTo(semver("1.2.3")) > 0',
    "not device.allowMultipleAllocations": "write ! for not",
    "true && not (true)": "write ! for not",
    "true &&": "fix the expression; device has driver, attributes, capacity",
}


def claim(amounts: object = None, expression: str = "true", cel: object = None, **fields: object) -> dict[str, Any]:
    exactly: dict[str, object] = {"deviceClassName": "c", "selectors": [{"cel": cel or {"expression": expression}}]}
    if amounts is not None:
        exactly["capacity"] = {"requests": amounts}
    exactly |= fields
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def write(shell: command_line.CommandLine, obj: object) -> str:
    file = shell.folder / "asked.yaml"
    file.write_text(yaml.dump(obj, Dumper=yaml.CSafeDumper))
    return str(file)


@pytest.mark.parametrize("expression, fix", FIXES.items())
def test_an_expression_that_does_not_compile_gets_the_fix(shell: command_line.CommandLine, expression: str, fix: str) -> None:
    (finding,) = json.loads(shell.run("lint", write(shell, claim(expression=expression)), "-o", "json").out)
    assert finding["fix"].startswith(fix)
    assert "ERROR: <input>:" in finding["message"]
    assert "\n" not in finding["message"]


UNITS = {
    "5Gbit": "5G",
    "5gbit": "5G",
    "5Gbps": "5G",
    "2.5 Gbit/s": "2.5G",
    "100mbit": "100M",
    "10KB": "10k",
    "40GB": "40G",
    "40GiB": "40Gi",
    "40g": "40G",
    "64Kib": "64Ki",
}
BYTES = {"5GB/s": "40G", "5GBps": "40G", "2.5 Gbyte/s": "20G", "1.3MiB/s": "10.4Mi", "125 bytes/s": "1000"}


@pytest.mark.parametrize("text, meant", UNITS.items())
def test_a_quantity_with_a_unit_gets_the_one_without(text: str, meant: str) -> None:
    fix = f"write {meant}: a quantity has no unit; bandwidth is in bits per second, memory in bytes"
    with pytest.raises(errors.QuantityError) as refused:
        quantity.Quantity.parse(text)
    assert fix in str(refused.value)
    with pytest.raises(cluster_quantity.QuantityError) as refused_by_cluster:
        cluster_quantity.parse(text)
    assert fix in str(refused_by_cluster.value)
    assert quantity.Quantity.parse(meant)


@pytest.mark.parametrize("text, bits", BYTES.items())
def test_bytes_per_second_are_to_be_written_as_bits(text: str, bits: str) -> None:
    fix = f"write {bits}: bandwidth is in bits per second, and a byte has 8"
    assert units.without_unit(text) == fix
    with pytest.raises(errors.QuantityError, match=fix):
        quantity.Quantity.parse(text)
    with pytest.raises(cluster_quantity.QuantityError, match=fix):
        cluster_quantity.parse(text)


@pytest.mark.parametrize("text", ["five", "5X", "5Gbits per second", "", "G", "5bogus"])
def test_a_text_that_means_no_quantity_gets_no_guess(text: str) -> None:
    assert units.without_unit(text) == ""
    with pytest.raises(errors.QuantityError, match=r"write a number with an optional suffix|use n u m k"):
        quantity.Quantity.parse(text)


def test_lint_and_allocate_say_what_to_write_for_a_bandwidth_with_a_unit(shell: command_line.CommandLine) -> None:
    file = write(shell, claim({"bandwidth": "5Gbit"}))
    (finding,) = json.loads(shell.run("lint", file, "-o", "json").out)
    fix = "write 5G: a quantity has no unit; bandwidth is in bits per second, memory in bytes"
    assert (finding["field"], finding["fix"]) == ("spec.devices.requests[0].exactly.capacity.requests[bandwidth]", fix)
    refused = shell.run("allocate", file)
    assert (refused.status, f"got '5Gbit'; {fix}" in " ".join(refused.err.split())) == (2, True), refused.err
    setting = shell.run("slices", "--mock", command_line.MACHINE, "--set", "nic.reserve=5Gbit", "--folder", str(shell.folder / "n"))
    assert "nic.reserve: '5Gbit' is not a quantity; write 5G" in setting.err


def pod(entries: object, **container_resources: object) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": container_resources}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, "resourceClaims": entries}}


ENTRY = {"name": "gpu", "resourceClaimName": "c"}
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "a claim without its list": (pod([ENTRY], claims={"name": "gpu"}), 'write a list: [{"name": "gpu"}]'),
    "a claim by its name alone": (pod([ENTRY], claims=["gpu"]), 'write an object: {name: "gpu"}; its fields are name, request'),
    "an entry by its name alone": (
        pod(["gpu"]),
        'write an object: {name: "gpu"}; its fields are name, resourceClaimName, resourceClaimTemplateName',
    ),
    "claims in limits": (pod([ENTRY], limits={"claims": [{"name": "gpu"}]}), "write claims beside limits and requests, not in them"),
    "a class in limits": (pod([], limits={"gpu.drakit.dev": 1}), "write cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME"),
    "an amount with a unit": (pod([], limits={"memory": "4GB"}), "write 4G: a quantity has no unit"),
    "a part of an extended resource": (pod([], limits={"a.dev/b": "500m"}), "write a whole number"),
    "a request without its limit": (pod([], requests={"a.dev/b": 1}), "write a.dev/b: 1, because requests has it"),
    "a request above its limit": (
        pod([], limits={"cpu": 1}, requests={"cpu": 2}),
        "remove cpu from requests: a request is then as large as the limit, 1",
    ),
    "an expression without its field": (claim(cel='device.driver == "x"'), 'write an object: {expression: "device.driver == \\"x\\""}'),
    "a number in words": (claim(count="two"), "write a whole number"),
    "a number in quotes": (claim(count="2"), "remove the quotes: 2"),
    "a truth in quotes": (claim(adminAccess="true"), "write true or false, without quotes"),
    "a number for a name": (claim(deviceClassName=5), 'put quotes around it: "5"'),
    "a list for an object": (claim(capacity=[1]), "write one object, not a list"),
}


@pytest.mark.parametrize("obj, fix", FORMS.values(), ids=FORMS)
def test_a_value_of_a_wrong_form_gets_the_right_form(shell: command_line.CommandLine, obj: object, fix: str) -> None:
    (finding,) = json.loads(shell.run("lint", write(shell, obj), "-o", "json").out)
    assert finding["severity"] == "error"
    assert finding["fix"].startswith(fix)


def test_a_name_that_yaml_reads_as_a_boolean_is_to_be_quoted(shell: command_line.CommandLine) -> None:
    file = shell.folder / "claim.yaml"
    file.write_text(yaml.dump(claim(), Dumper=yaml.CSafeDumper).replace("name: r\n", "name: no\n"))
    (finding,) = json.loads(shell.run("lint", str(file), "-o", "json").out)
    assert (finding["field"], finding["message"]) == ("spec.devices.requests[0].name", "want a string, got False")
    assert finding["fix"].startswith("put quotes around it: YAML reads yes, no, on and off as booleans")
