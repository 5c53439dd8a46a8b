"""``drakit slices``: both forms, their sizes, and objects that an API server would take."""

import json

import pytest
import yaml

from drakit_cluster.api import patching, registry
from drakit_cluster.objects import features, json_types, resources
from fakes import command_line, kube_schema


def rows(text: str) -> dict[tuple[str, str], list[str]]:
    """The table by driver and form."""
    return {(cells[0], cells[1]): cells[2:] for cells in map(str.split, text.splitlines()[1:])}


def test_the_table_compares_both_forms_of_both_drivers(shell: command_line.CommandLine) -> None:
    table = rows(shell.on_node("slices").out)
    assert set(table) == {(f"{family}.drakit.dev", form) for family in ("gpu", "nic") for form in ("flat", "mixins")}
    flat, mixins = table["gpu.drakit.dev", "flat"], table["gpu.drakit.dev", "mixins"]
    assert flat[1:3] == mixins[1:3] == ["52", "2"]
    assert int(mixins[3]) < int(flat[3]) / 2
    assert mixins[4] == f"{100 * int(mixins[3]) / int(flat[3]):.0f}%"


@pytest.mark.parametrize("form", ["flat", "mixins"])
def test_the_sizes_reported_are_those_of_the_objects_printed(shell: command_line.CommandLine, form: str) -> None:
    ran = shell.on_node("slices", "--form", form, "--family", "gpu", "-o", "json")
    items = json.loads(ran.out)["items"]
    size = sum(len(json.dumps(item, separators=(",", ":")).encode()) for item in items)
    left_out = "# left out, because these feature gates are off by default: DRAListTypeAttributes\n"
    assert ran.err == f"# gpu.drakit.dev {form}: {len(items)} slices, {size} bytes\n{left_out}"
    assert rows(shell.on_node("slices").out)["gpu.drakit.dev", form][3] == str(size)
    assert any("mixins" in item["spec"] for item in items) is (form == "mixins")


def test_flat_slices_match_the_schema_of_kubernetes(shell: command_line.CommandLine) -> None:
    documents = list(yaml.load_all(shell.on_node("slices", "-o", "yaml").out, Loader=yaml.CSafeLoader))
    assert len(documents) == 3
    for document in documents:
        kube_schema.validate(document)


def test_yaml_and_json_have_the_same_content(shell: command_line.CommandLine) -> None:
    as_json = json.loads(shell.on_node("slices", "-o", "json").out)["items"]
    assert as_json == list(yaml.load_all(shell.on_node("slices", "-o", "yaml").out, Loader=yaml.CSafeLoader))


@pytest.mark.parametrize("form", ["flat", "mixins"])
def test_the_slices_can_be_applied_and_applied_again(shell: command_line.CommandLine, form: str) -> None:
    documents = list(yaml.load_all(shell.on_node("slices", "--form", form, "-o", "yaml").out, Loader=yaml.CSafeLoader))
    server = registry.Registry(gates=features.FeatureGates.of({"DRAResourceSliceMixins": True}))
    for document in documents * 2:
        server.patch(resources.SLICE, document["metadata"]["name"], document, kind=patching.PatchKind.APPLY, manager="kubectl")
    names = [json_types.text(one, "metadata", "name") for one in server.list(resources.SLICE).items]
    assert names == sorted(document["metadata"]["name"] for document in documents)
    assert names[:2] == ["00000-gpu.drakit.dev-node-1", "00000-nic.drakit.dev-node-1"]
