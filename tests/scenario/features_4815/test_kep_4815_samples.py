"""KEP-4815's samples: linting names what is wrong with each as printed and how to mend it; mended, a server takes them as they are."""

import json
from collections.abc import Callable

import jsonschema
import pytest

from drakit_cluster import lint as linting
from drakit_cluster import manifests
from drakit_cluster.lint import Finding, Severity
from drakit_cluster.manifests import Document
from drakit_cluster.objects import errors, json_types, mixins
from drakit_cluster.objects.json_types import Object
from fakes import kep_4815_samples, kube_schema
from fakes.single_threaded_cluster import MIXINS, SingleThreadedCluster

SERVED = ("apiVersion", "is not served", "write resource.k8s.io/v1")
APART = ("spec", "only one of devices and sharedCounters", "move sharedCounters to a separate slice")
BASIC = ("spec.devices[0].basic", "unknown field", "move its fields to the device")
REQUIRED = "spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
LABEL = "must be lower-case letters, digits and '-'"

Expected = tuple[str, str, str]
"""A field, a part of what is wrong with it, and a part of the fix."""

AS_PRINTED: dict[str, tuple[Expected, ...]] = {
    "a100-counters": tuple(("spec.sharedCounters[0].counters", f'"memorySlice{n}": {LABEL}', f"write memory-slice-{n}") for n in range(8)),
    "mig-claim": (SERVED, ("spec.spec", "unknown field", "move its fields up to spec")),
    "mixins-of-four-gpus": (BASIC, APART, ("spec.mixins.device[0].basic", "unknown field", "move its fields")),
    "partitions-of-one-gpu": (BASIC, APART),
    "three-mig-devices": (
        BASIC,
        APART,
        ("spec.deviceMixins", "unknown field", "write spec.mixins.device"),
        ("spec.devices[0].name", f'"gpu-0-mig-1g.5gb-0": {LABEL}', "write gpu-0-mig-1g-5gb-0"),
    ),
    "tpu-consumer-claim": (
        SERVED,
        ("spec.devices.requests[0].deviceClassName", "unknown field", "write requests[].exactly.deviceClassName"),
        ("spec.devices.requests[0].selectors", "unknown field", "write requests[].exactly.selectors"),
    ),
    "tpu-consumer-deployment": (
        (f"{REQUIRED}.weight", "unknown field", "a required term has no weight"),
        (f"{REQUIRED}.podAffinityTerm", "unknown field", "move the fields of podAffinityTerm to the term"),
        (f"{REQUIRED}.topologyKey", "Required value", "add topologyKey"),
    ),
    "tpu-slice": (SERVED, BASIC, APART),
    "two-gpus": (
        BASIC,
        APART,
        ("spec.devices[32].composite", "unknown field", "move its fields to the device"),
        ("spec.devices[1].name", LABEL, "write gpu-0-mig-1g-10gb-0-1"),
        ("spec.mixins.counterSet[0].counters[copy-engines].quantity", "unknown field", "write value"),
        ("spec.mixins.counterSet[0].counters", f'"memorySlice0": {LABEL}', "write memory-slice-0"),
        ("spec.mixins.device[2].name", LABEL, "write common-mig-1g-10gb-mock-nvidia-a100-sxm4-40gb"),
        ("spec.mixins.deviceCounterConsumption[0].counter", "unknown field", "write counters"),
        ("spec.mixins.deviceCounterConsumption[1].counters[memory].quantity", "unknown field", "write value"),
        ("spec.mixins.deviceCounterConsumption[1].name", LABEL, "write common-mig-4g-20gb-mock-nvidia-a100-sxm4-40gb"),
    ),
}
MOVED: dict[str, tuple[Expected, ...]] = {
    "mixins-of-four-gpus": (("spec.devices[0].consumesCounter", "unknown field", "write consumesCounters"),),
    "partitions-of-one-gpu": (("spec.devices[4].consumesCounter", "unknown field", "write consumesCounters"),),
    "three-mig-devices": (
        ("spec.devices[0].includes[0].counterSet", "unknown field", "write name"),
        ("spec.devices[0].includes[0].name", "must name a mixin of this slice", "define it in spec.mixins.device"),
    ),
    "tpu-slice": (("spec.devices[0].capacity[tpus]", "want an object, got '16'", 'write {value: "16"}'),),
    "two-gpus": (
        ("spec.devices[0].consumesCounter", "unknown field", "write consumesCounters"),
        ("spec.mixins.device[1].capacity[memory].quantity", "unknown field", "value"),
        ("spec.mixins.device[1].capacity", '"copy-engines": must be a C identifier', "write copyEngines"),
        ("spec.mixins.device[28].attributes[cudaDriverVersion].version", '"12.4": must be a version', 'write "12.4.0"'),
    ),
}
RENAMED: dict[str, tuple[Expected, ...]] = {
    "partitions-of-one-gpu": (
        ("spec.devices[1].consumesCounters[0].counters", "Required value", "write at least one counter"),
        ("spec.devices[1].consumesCounters[1].counterSet", "Required value", "name the counter set"),
    ),
    "tpu-slice": (("spec.devices[0].nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator", '"IN"', "write In"),),
}


def check(found: list[Finding], expected: tuple[Expected, ...]) -> None:
    """Each expected finding is there, as an error."""
    for field, text, fix in expected:
        assert any(one.field == field and text in one.text and fix in one.fix and one.severity is Severity.ERROR for one in found), field


@pytest.mark.parametrize(
    "name, stage, expected",
    [
        (name, stage, expected)
        for stage, table in ((kep_4815_samples.original, AS_PRINTED), (kep_4815_samples.moved, MOVED), (kep_4815_samples.renamed, RENAMED))
        for name, expected in table.items()
    ],
)
def test_linting_a_sample_as_printed_names_each_field_and_its_fix(
    name: str, stage: Callable[[str], list[Document]], expected: tuple[Expected, ...]
) -> None:
    check(linting.lint(stage(name), MIXINS), expected)


@pytest.mark.parametrize("name", AS_PRINTED)
def test_lint_names_fragments_of_slices_and_omitted_parts(name: str) -> None:
    found = linting.lint(manifests.read(f"{name}.yaml", kep_4815_samples.printed(name), samples=True), MIXINS)
    check(found, AS_PRINTED[name])
    lines = kep_4815_samples.printed(name).splitlines()
    dots = [f"line {number}: the dots stand for omitted fields" for number, line in enumerate(lines, 1) if line.strip() == "..."]
    assert [one.text for one in found if "the dots" in one.text] == dots
    whole = lines[0].startswith(("apiVersion:", "kind:"))
    assert any(one.text == "this is a part only: spec of a ResourceSlice" for one in found) is not whole


def test_a_sample_that_is_not_yaml_is_an_error_with_its_line() -> None:
    with pytest.raises(manifests.ManifestError, match=r"tpu-4x4-claim\.yaml: is not YAML.*line 13.*expression: a quote within quotes\?"):
        kep_4815_samples.original("tpu-4x4-claim")


def test_samples_with_omitted_parts_are_not_yaml_as_printed() -> None:
    for name in ("tpu-slice", "three-mig-devices"):
        with pytest.raises(manifests.ManifestError, match="is not YAML"):
            manifests.read(name, kep_4815_samples.printed(name))


def test_a_selector_for_a_domain_that_no_driver_has_is_found_beside_the_slices() -> None:
    [claim] = kep_4815_samples.mended("tpu-consumer-claim")
    [request] = json_types.objects(claim, "spec", "devices", "requests")
    [selector] = json_types.objects(request, "exactly", "selectors")
    selector["cel"] = {"expression": 'device.capacity["tpu.google.com"].tpus == quantity("8")'}
    expression = "device.driver == 'tpu.dra.example.com'"
    of_driver: Object = {"selectors": [{"cel": {"expression": expression}}]}
    kind: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "tpu.google.com"},
        "spec": of_driver,
    }
    found = linting.lint(_documents([*kep_4815_samples.mended("tpu-slice"), kind, claim]), MIXINS)
    field = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    check(found, ((field, "fails on 7 of 7 devices", "check that the attribute exists"),))


def test_a_full_gpu_that_draws_more_memory_than_its_counter_set_has_is_found() -> None:
    counters, devices = kep_4815_samples.mended("two-gpus")
    [whole] = json_types.objects(counters, "spec", "mixins", "counterSet")
    json_types.mapping(whole, "counters")["memory"] = {"value": "40192Mi"}
    field = "spec.devices[0].consumesCounters[0].counters[memory].value"
    check(linting.lint(_documents([counters, devices]), MIXINS), ((field, "consumes 40Gi", "write at most 40192Mi"),))


def test_partitions_that_draw_from_a_mixin_instead_of_a_counter_set_are_found() -> None:
    counters, devices = kep_4815_samples.mended("partitions-of-one-gpu")
    [consumed] = json_types.objects(json_types.objects(devices, "spec", "devices")[1], "consumesCounters")
    consumed["counterSet"] = "gpu-pool-mixin"
    field = "spec.devices[1].consumesCounters[0].counterSet"
    check(linting.lint(_documents([counters, devices]), MIXINS), ((field, "no counter set gpu-pool-mixin", "gpu-0-pool"),))


@pytest.mark.parametrize("name", kep_4815_samples.NAMES)
def test_a_corrected_sample_is_stored_and_lint_finds_no_error(name: str) -> None:
    found = kep_4815_samples.mended(name)
    cluster = SingleThreadedCluster()
    cluster.apply(*found)
    assert [one.text for one in linting.lint(_documents(found), MIXINS) if one.severity is Severity.ERROR] == []


@pytest.mark.parametrize("name", kep_4815_samples.NAMES)
def test_a_corrected_sample_without_mixins_is_the_slice_kubernetes_describes(name: str) -> None:
    for one in kep_4815_samples.mended(name):
        kube_schema.validate(one | {"spec": mixins.flatten(json_types.mapping(one, "spec"))})


def test_the_required_anti_affinity_of_the_deployment_is_written_as_a_preferred_one() -> None:
    [printed] = kep_4815_samples.original("tpu-consumer-deployment")
    with pytest.raises(jsonschema.ValidationError, match="topologyKey"):
        kube_schema.validate(printed.body)
    with pytest.raises(errors.InvalidError, match="topologyKey: Required value"):
        SingleThreadedCluster().apply(printed.body)


def _documents(found: list[Object]) -> list[Document]:
    return [document for place, one in enumerate(found) for document in manifests.read(f"{place}.yaml", json.dumps(one))]
