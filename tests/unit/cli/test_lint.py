"""``drakit lint`` finds what the server refuses and what it accepts by mistake; each finding names file, field and fix."""

import json
from collections.abc import Mapping

import pytest

from drakit.inputs import documents
from fakes import command_line

GPU = {"string": "gpu"}


def pool(name: str = "n", count: int = 2, generation: int = 1) -> dict[str, object]:
    return {"driver": "gpu.example.com", "nodeName": "n", "pool": {"name": name, "generation": generation, "resourceSliceCount": count}}


def typed(kind: str, name: str, spec: object, version: str = "v1") -> dict[str, object]:
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def counters(**values: str) -> dict[str, object]:
    sets = [{"name": "gpu-0", "counters": {name: {"value": value} for name, value in values.items()}}]
    return typed("ResourceSlice", "s0", {**pool(), "sharedCounters": sets})


def devices(*listed: Mapping[str, object], count: int = 2) -> dict[str, object]:
    return typed("ResourceSlice", "s1", {**pool(count=count), "devices": list(listed)})


def drawing(counter_set: str = "gpu-0", counter: str = "memory", value: str = "1Gi") -> dict[str, object]:
    return {
        "name": "d0",
        "attributes": {"type": GPU},
        "consumesCounters": [{"counterSet": counter_set, "counters": {counter: {"value": value}}}],
    }


PLAIN = {"name": "d0", "attributes": {"type": GPU}, "capacity": {"memory": {"value": "40Gi"}}}


def device_class(expression: str = 'device.driver == "gpu.example.com"', **fields: object) -> dict[str, object]:
    return typed("DeviceClass", "gpu", {"selectors": [{"cel": {"expression": expression}}], **fields})


def claim(*, exactly: Mapping[str, object] | None = None, **fields: object) -> dict[str, object]:
    wanted = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **(exactly or {})}}], **fields}
    return typed("ResourceClaim", "c", {"devices": wanted})


def selecting(expression: str) -> dict[str, object]:
    return claim(exactly={"selectors": [{"cel": {"expression": expression}}]})


def sharing(policy: Mapping[str, object]) -> dict[str, object]:
    bandwidth = {"bandwidth": {"value": "10G", "requestPolicy": policy}}
    return devices({"name": "d0", "allowMultipleAllocations": True, "capacity": bandwidth}, count=1)


WORLD = (device_class(), devices(PLAIN, count=1))

ERRORS: dict[str, tuple[tuple[object, ...], str, str, str]] = {
    "a kind that does not exist": (
        (typed("ResourceClam", "c", {}),),
        "kind",
        "resource.k8s.io has no kind ResourceClam",
        "write ResourceClaim",
    ),
    "a number as the name of a capacity": (
        (claim(exactly={"capacity": {"requests": {0: "5Gi"}}}),),
        "spec.devices.requests[0].exactly.capacity.requests[0]",
        "no device can have a capacity of this name",
        "write the capacity's name, such as memory",
    ),
    "counter set the pool lacks": (
        (counters(memory="40Gi"), devices(drawing("gpu-1"))),
        "spec.devices[0].consumesCounters[0].counterSet",
        "has no counter set gpu-1",
        "write gpu-0",
    ),
    "counter the set lacks": (
        (counters(memory="40Gi"), devices(drawing(counter="memori"))),
        "spec.devices[0].consumesCounters[0].counters[memori]",
        "has no counter memori",
        "write memory",
    ),
    "more than there is": (
        (counters(memory="40Gi"), devices(drawing(value="80Gi"))),
        "spec.devices[0].consumesCounters[0].counters[memory].value",
        "consumes 80Gi of a counter of 40Gi",
        "write at most 40Gi",
    ),
    "a list as an attribute, its gate off": (
        (devices({"name": "d0", "attributes": {"bands": {"strings": ["am", "fm"]}}}, count=1),),
        "spec.devices[0].attributes[bands]",
        "exactly one value must be specified",
        "a list needs the feature gate DRAListTypeAttributes: enable it in the cluster and lint with --gate DRAListTypeAttributes=true, or write",
    ),
    "an attribute without a value": (
        (devices({"name": "d0", "attributes": {"bands": {}}}, count=1),),
        "spec.devices[0].attributes[bands]",
        "exactly one value must be specified",
        "write one value: bool, int, string or version, or, with the feature gate DRAListTypeAttributes, one list",
    ),
    "default above the value": (
        (
            devices(
                {
                    "name": "d0",
                    "allowMultipleAllocations": True,
                    "capacity": {"bandwidth": {"value": "1G", "requestPolicy": {"default": "2G"}}},
                },
                count=1,
            ),
        ),
        "spec.devices[0].capacity[bandwidth].requestPolicy.default",
        "the default 2G is above the value 1G",
        "write at most 1G",
    ),
    "a negative capacity request": (
        (*WORLD, claim(exactly={"capacity": {"requests": {"memory": "-5Gi"}}})),
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "-5Gi is negative: the API server stores it, and the scheduler then allocates more than exists",
        "write an amount of zero or more",
    ),
    "a negative bound of a policy": (
        (sharing({"default": "1G", "validRange": {"min": "-5G"}}),),
        "spec.devices[0].capacity[bandwidth].requestPolicy.validRange.min",
        "-5G is negative",
        "write an amount of zero or more",
    ),
    "a negative draw": (
        (counters(memory="40Gi"), devices(drawing(value="-1Gi"))),
        "spec.devices[0].consumesCounters[0].counters[memory].value",
        "-1Gi is negative",
        "write an amount of zero or more",
    ),
    "an empty policy": (
        (sharing({}),),
        "spec.devices[0].capacity[bandwidth].requestPolicy",
        "a request without bandwidth takes all of it",
        "write default: AMOUNT",
    ),
    "a name in two slices": (
        (devices(PLAIN), typed("ResourceSlice", "s2", {**pool(), "devices": [PLAIN]})),
        "spec.devices[0].name",
        "is in pool gpu.example.com/n twice",
        "a different name",
    ),
    "selector that fails": (
        (device_class('device.attributes["gpu.example.com"].model == "a"'), devices(PLAIN, count=1)),
        "spec.selectors[0].cel.expression",
        "fails on 1 of 1 device, gpu.example.com/n/d0: no such key: model",
        "check the driver first",
    ),
    "selector of a request that fails": (
        (*WORLD, selecting('device.attributes["gpu.example.com"].model == "a"')),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "no such key: model",
        "check that the attribute exists",
    ),
    "selector that does not compile": (
        (selecting("device.foo("),),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "compilation failed",
        "fix the expression",
    ),
    "counters beside devices": (
        (
            typed(
                "ResourceSlice",
                "s0",
                {**pool(count=1), "devices": [PLAIN], "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}]},
            ),
        ),
        "spec",
        "only one of",
        "a separate slice",
    ),
    "basic": (
        (devices({"name": "d0", "basic": {"attributes": {"type": GPU}}}, count=1),),
        "spec.devices[0].basic",
        "unknown field",
        "move its fields to the device",
    ),
    "boolean": (
        (devices({"name": "d0", "attributes": {"x": {"boolean": True}}}, count=1),),
        "spec.devices[0].attributes[x].boolean",
        "unknown field",
        "write bool",
    ),
    "exactly as a list": (
        (typed("ResourceClaim", "c", {"devices": {"requests": [{"name": "r", "exactly": [{"deviceClassName": "gpu"}]}]}}),),
        "spec.devices.requests[0].exactly",
        "want an object",
        "write one object; for a list of alternatives write firstAvailable",
    ),
    "the form of v1beta1": (
        (typed("ResourceClaim", "c", {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}}, version="v1beta1"),),
        "spec.devices.requests[0].deviceClassName",
        "unknown field",
        "write requests[].exactly.deviceClassName",
    ),
    "a version that is not served": (
        (typed("ResourceClaim", "c", {"devices": {}}, version="v1beta1"),),
        "apiVersion",
        "resource.k8s.io/v1beta1 is not served",
        "write resource.k8s.io/v1",
    ),
    "a misspelt field": (
        (claim(exactly={"toleration": []}),),
        "spec.devices.requests[0].exactly.toleration",
        "unknown field",
        "write tolerations",
    ),
    "config of an unknown request": (
        (claim(config=[{"requests": ["q"], "opaque": {"driver": "gpu.example.com", "parameters": {}}}]),),
        "spec.devices.config[0].requests[0]",
        "request",
        "write the name of a request of this claim",
    ),
}

WARNINGS: dict[str, tuple[tuple[object, ...], str, str, str]] = {
    "fields of a gate that is off": (
        (typed("ResourceSlice", "s", {**pool(count=1), "devices": [{"name": name, "includes": []} for name in ("d0", "d1", "d2")]}),),
        "spec.devices[0].includes",
        "the API server drops this field and 2 more of its kind, because feature gate DRAResourceSliceMixins is off",
        "lint with --gate DRAResourceSliceMixins=true, or remove the field",
    ),
    "incomplete pool": ((devices(PLAIN, count=3),), "spec.pool.resourceSliceCount", "is 3, but these files have 1 slice", "write 1"),
    "replaced slice": (
        (devices(PLAIN, count=1), typed("ResourceSlice", "s2", {**pool(count=1, generation=2), "devices": [PLAIN]})),
        "spec.pool.generation",
        "generation 1 of pool gpu.example.com/n is older than generation 2",
        "delete the slice",
    ),
    "counter that nobody draws": (
        (counters(memory="40Gi", idle="1"), devices(drawing())),
        "spec.sharedCounters[0].counters",
        "no device of pool gpu.example.com/n consumes idle",
        "consumesCounters",
    ),
    "selector that selects nothing": (
        (*WORLD, selecting('device.attributes["gpu.example.com"].type == "gpx"')),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "selects none of 1 device: none has type gpx",
        "write gpu; the only value of type is gpu",
    ),
    "class that selects nothing": (
        (device_class('device.driver == "gpx.example.com"'), devices(PLAIN, count=1)),
        "spec.selectors[0].cel.expression",
        "selects none of 1 device: none has driver gpx.example.com",
        "write gpu.example.com; the only value of driver is gpu.example.com",
    ),
    "unknown class": (
        (*WORLD, claim(exactly={"deviceClassName": "gpus"})),
        "spec.devices.requests[0].exactly.deviceClassName",
        "DeviceClass gpus is not in these files",
        "write gpu",
    ),
    "too many": (
        (*WORLD, claim(exactly={"count": 2})),
        "spec.devices.requests[0].exactly.count",
        "requests 2, but 1 device is selected",
        "write at most 1",
    ),
    "attribute nobody has": (
        (*WORLD, claim(constraints=[{"matchAttribute": "gpu.example.com/typ"}])),
        "spec.devices.constraints[0].matchAttribute",
        "none of the 1 device that request r selects has attribute gpu.example.com/typ",
        "write gpu.example.com/type",
    ),
    "driver nobody has": (
        (*WORLD, claim(config=[{"opaque": {"driver": "gpx.example.com", "parameters": {}}}])),
        "spec.devices.config[0].opaque.driver",
        "no driver reads the parameters",
        "write gpu.example.com",
    ),
    "capacity nobody has": (
        (*WORLD, claim(exactly={"capacity": {"requests": {"memori": "1Gi"}}})),
        "spec.devices.requests[0].exactly.capacity.requests[memori]",
        "none of the 1 device that it selects has a capacity memori",
        "write memory",
    ),
    "more capacity than anybody has": (
        (*WORLD, claim(exactly={"capacity": {"requests": {"memory": "80Gi"}}})),
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "no selected device has more than 40Gi",
        "write at most 40Gi",
    ),
}


def findings(shell: command_line.CommandLine, objects: tuple[object, ...], *arguments: str) -> tuple[int, list[dict[str, object]]]:
    file = shell.folder / "objects.yaml"
    file.write_text(documents.dump_all(objects))
    ran = shell.run("lint", "-f", str(file), "-o", "json", *arguments)
    assert ran.err == ""
    return ran.status, json.loads(ran.out)


def expect(found: list[dict[str, object]], severity: str, field: str, text: str, fix: str) -> None:
    (one,) = [one for one in found if one["field"] == field]
    assert one["severity"] == severity
    assert text in str(one["message"])
    assert fix in str(one["fix"])
    assert str(one["file"]).endswith("objects.yaml")
    assert one["document"]
    assert one["line"]


@pytest.mark.parametrize("objects, field, text, fix", ERRORS.values(), ids=ERRORS)
def test_an_error_names_field_and_fix_and_is_status_1(
    shell: command_line.CommandLine, objects: tuple[object, ...], field: str, text: str, fix: str
) -> None:
    status, found = findings(shell, objects)
    assert status == 1
    expect(found, "error", field, text, fix)


@pytest.mark.parametrize("objects, field, text, fix", WARNINGS.values(), ids=WARNINGS)
def test_a_warning_fails_only_when_strict(
    shell: command_line.CommandLine, objects: tuple[object, ...], field: str, text: str, fix: str
) -> None:
    status, found = findings(shell, objects)
    expect(found, "warning", field, text, fix)
    assert status == (1 if any(one["severity"] == "error" for one in found) else 0)
    assert findings(shell, objects, "--strict")[0] == 1


def test_the_slices_and_samples_of_the_drivers_have_no_finding(shell: command_line.CommandLine) -> None:
    file = shell.folder / "slices.yaml"
    file.write_text(shell.on_node("slices", "-o", "yaml").out)
    ran = shell.run("lint", "-f", str(file), "--strict")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith("0 errors, 0 warnings\n")


def test_people_get_file_document_field_and_fix_in_three_lines(shell: command_line.CommandLine) -> None:
    file = shell.folder / "claim.yaml"
    file.write_text(documents.dump(claim(exactly={"toleration": []})))
    ran = shell.run("lint", "-f", str(file))
    assert ran.out.splitlines() == [
        f"error: {file}:11 (document 1), ResourceClaim default/c",
        "  spec.devices.requests[0].exactly.toleration: unknown field",
        "  fix: write tolerations, or remove it: kubectl refuses it and the server drops it",
        "1 object: 1 error, 0 warnings",
    ]


@pytest.mark.parametrize(
    "arguments, message", [((), "nothing to check"), (("-f", "/no/such/file"), "cannot be read"), (("--gate", "x"), "write NAME=true")]
)
def test_files_that_cannot_be_read_are_status_2(shell: command_line.CommandLine, arguments: tuple[str, ...], message: str) -> None:
    given = ("-f", str(shell.folder)) if arguments[:1] == ("--gate",) else ()
    ran = shell.run("lint", *given, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


SHARED_NIC = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
ONLY_SHARED = 'device.driver == "gpu.example.com" && device.allowMultipleAllocations == true'


def stored(obj: dict[str, object]) -> dict[str, object]:
    """The object as ``kubectl get -o yaml`` shows it."""
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return {**obj, "metadata": {**metadata, "uid": f"uid-{metadata['name']}", "resourceVersion": "7"}}


def test_with_a_gate_off_new_expressions_and_fields_are_refused_and_stored_ones_hold(shell: command_line.CommandLine) -> None:
    new = (device_class(ONLY_SHARED), devices(SHARED_NIC, count=1))
    off = ("--gate", "DRAConsumableCapacity=false")
    assert findings(shell, new) == (0, [])
    status, found = findings(shell, new, *off)
    assert status == 1
    assert "spec.selectors[0].cel.expression" in [one["field"] for one in found if one["severity"] == "error"]
    assert "spec.devices[0].allowMultipleAllocations" in [one["field"] for one in found if one["severity"] == "warning"]
    assert findings(shell, tuple(stored(one) for one in new), *off) == (0, [])


OTHER = typed("ResourceSlice", "o1", {**pool(count=1), "driver": "nic.example.com", "devices": [{"name": "eth0"}]})
FAILING = 'device.attributes["gpu.example.com"].type == "gpu"'
DRIVER, ATTRIBUTE = "check the driver first", "check that the attribute exists"


@pytest.mark.parametrize(
    "expression, others, fixes",
    [
        (FAILING, (OTHER,), (DRIVER,)),
        ('device.attributes["gpu.example.com"].model == "a"', (), (DRIVER, ATTRIBUTE)),
        ('device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "a"', (OTHER,), (ATTRIBUTE,)),
    ],
    ids=["devices of other drivers fail", "the driver is not checked and an attribute is missing", "the driver is checked"],
)
def test_a_class_gets_the_driver_advice_only_without_a_driver_selector(
    shell: command_line.CommandLine, expression: str, others: tuple[object, ...], fixes: tuple[str, ...]
) -> None:
    _, found = findings(shell, (device_class(expression), devices(PLAIN, count=1), *others))
    [fix] = [str(one["fix"]) for one in found if "fails on" in str(one["message"])]
    assert [one for one in (DRIVER, ATTRIBUTE) if one in fix] == list(fixes)
