"""Live commands drop nothing in silence: whatever a server of any version withholds is named, with what it means for the answer."""

import json
from collections.abc import Mapping, Sequence

import pytest
import yaml

from drakit_cluster.objects.json_types import Json, Object
from fakes import command_line, stub_api
from fakes.stub_api import StubApi

VERSIONS = tuple(stub_api.RULES)
SLICE: Object = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "x.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}, {"name": "d1"}],
    },
}
CLASS: Object = {"metadata": {"name": "x"}, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "x.example.com"'}}]}}
NODE: Object = {"metadata": {"name": "n1"}}
RULE: Object = {
    "metadata": {"name": "r"},
    "spec": {"deviceSelector": {"device": "d0"}, "taint": {"key": "example.com/broken", "effect": "NoSchedule"}},
}
CLAIM: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "one", "namespace": "demo"},
    "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}]}},
}
OBJECTS: Mapping[str, Sequence[Object]] = {
    "resourceslices": [SLICE],
    "deviceclasses": [CLASS],
    "nodes": [NODE],
    "devicetaintrules": [RULE],
}


class Ran:
    """A command's end, and its answer in JSON."""

    def __init__(self, ran: command_line.Result) -> None:
        self.status, self.out, self.err = ran.status, ran.out, ran.err
        self.answer = json.loads(ran.out) if ran.out.startswith("{") else {}
        self.notes: list[str] = self.answer.get("notes", [])

    @property
    def device(self) -> str:
        (decision,) = self.answer["decisions"]
        return str(decision["claims"][0]["allocation"]["devices"]["results"][0]["device"])


def allocate(shell: command_line.CommandLine, api: StubApi, *arguments: str, objects: Sequence[Object] = (CLAIM,)) -> Ran:
    file = shell.folder / "asked.yaml"
    file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    with stub_api.serving(api, shell.folder) as kubeconfig:
        return Ran(shell.run("allocate", str(file), "--kubeconfig", str(kubeconfig), *(arguments or ("-o", "json"))))


@pytest.mark.parametrize("version", VERSIONS)
def test_taint_rules_are_read_at_the_version_that_the_server_serves(shell: command_line.CommandLine, version: str) -> None:
    ran = allocate(shell, StubApi(version=version, objects=OBJECTS))
    assert (ran.status, ran.device, ran.answer.get("certain", True)) == (0, "d1", True)
    off = {"1.34": ["DRADeviceTaints"], "1.35": ["DRADeviceTaintRules", "DRADeviceTaints"], "1.36": ["DRADeviceTaintRules"]}
    assert ran.notes == [f"feature gate {gate} is taken to be on, because there is DeviceTaintRule r" for gate in off.get(version, ())]


def test_rules_are_ignored_with_a_note_while_their_gate_is_off(shell: command_line.CommandLine) -> None:
    ran = allocate(shell, StubApi(version="1.36", objects=OBJECTS), "--gate", "DRADeviceTaintRules=false", "-o", "json")
    assert (ran.device, ran.notes) == ("d0", ["DeviceTaintRule r: feature gate DRADeviceTaintRules is off, although the server stored it"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("discovery", [200, 403])
def test_taint_rules_that_may_not_be_listed_make_the_answer_uncertain(
    shell: command_line.CommandLine, version: str, discovery: int
) -> None:
    api = StubApi(version=version, objects=OBJECTS, statuses={"devicetaintrules": 403}, discovery=discovery)
    ran = allocate(shell, api)
    assert (ran.status, ran.device, ran.answer["certain"]) == (0, "d0", False)
    consequence = "devices that a rule taints count as free of that taint"
    fix = "allow this user to list devicetaintrules.resource.k8s.io"
    assert ran.notes == [f"devicetaintrules may not be listed (403) and are not considered, so {consequence}: {fix}"]
    assert ran.notes[0] in " ".join(ran.err.split())
    shown = allocate(shell, api, "--why")
    assert "warning: this answer may be wrong: devicetaintrules may not be listed (403)" in shown.out


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_without_taint_rules_taints_nothing_and_says_so(shell: command_line.CommandLine, version: str) -> None:
    for discovery in (200, 403):
        ran = allocate(shell, StubApi(version=version, objects=OBJECTS, serves_rules=False, discovery=discovery))
        assert (ran.status, ran.device, ran.answer["certain"]) == (0, "d0", True)
        assert ran.notes[0].startswith("devicetaintrules are not served (404) and are not considered, so no rule taints a device")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize(
    "plural, consequence",
    [
        ("nodes", "the nodes are those that slices name, and their labels, taints and cordons are not known"),
        ("pods", "extended resources that running pods use count as free"),
        ("deviceclasses", "only the classes of the files are known"),
    ],
)
def test_a_kind_that_cannot_be_listed_is_named_with_its_consequence(
    shell: command_line.CommandLine, version: str, status: int, plural: str, consequence: str
) -> None:
    own_class: Object = {**CLASS, "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    api = StubApi(version=version, objects=OBJECTS, statuses={plural: status})
    ran = allocate(shell, api, objects=[own_class, CLAIM])
    assert (ran.status, ran.device, ran.answer["certain"]) == (0, "d1", False)
    reason = "may not be listed (403)" if status == 403 else "are not served (404)"
    [note] = [note for note in ran.notes if note.startswith(f"{plural} {reason} and are not considered, so {consequence}")]
    assert note in " ".join(ran.err.split())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("plural", ["resourceslices", "resourceclaims"])
def test_without_slices_or_claims_there_is_no_answer(shell: command_line.CommandLine, version: str, status: int, plural: str) -> None:
    ran = allocate(shell, StubApi(version=version, objects=OBJECTS, statuses={plural: status}))
    assert (ran.status, ran.out) == (2, "")
    reason = "may not be listed (403)" if status == 403 else "are not served (404)"
    assert f"{plural} {reason}, so nothing can be decided" in " ".join(ran.err.split())


def test_groups_that_the_server_does_not_serve_leave_no_doubt_without_rights(shell: command_line.CommandLine) -> None:
    ran = allocate(shell, StubApi(version="1.37", objects=OBJECTS, statuses={"podgroups": 403}))
    assert (ran.status, ran.device, ran.notes) == (0, "d1", [])


@pytest.mark.parametrize("plural", ["resourceslices", "resourceclaims", "nodes", "pods", "devicetaintrules", "deviceclasses"])
def test_a_server_error_is_never_taken_for_an_empty_list(shell: command_line.CommandLine, plural: str) -> None:
    ran = allocate(shell, StubApi(version="1.37", objects=OBJECTS, statuses={plural: 500}))
    assert (ran.status, ran.out) == (2, "")
    assert f"{plural}: the API server answered 500" in " ".join(ran.err.split())


BROKEN: Json = [1]
HELD: Object = {
    "metadata": {"name": "held", "namespace": "demo", "uid": "u"},
    "spec": {},
    "status": {"allocation": {"devices": {"results": [{"request": "a", "driver": "x.example.com", "pool": "n1", "device": "d1"}]}}},
}


@pytest.mark.parametrize(
    "plural, broken, named",
    [
        ("resourceslices", {"metadata": {"name": "odd"}, "spec": {"devices": "many"}}, "odd: "),
        ("resourceclaims", {"metadata": {"name": "odd", "namespace": "demo"}, "status": {"allocation": 5}}, "demo/odd: "),
        ("devicetaintrules", {"metadata": {"name": "odd"}, "spec": []}, "odd: "),
        ("deviceclasses", {"metadata": {}}, "an object without a name: metadata.name is missing"),
        ("nodes", BROKEN, "an item is not an object"),
        ("pods", {"metadata": 7}, "an object without a name: metadata.name is missing"),
    ],
)
def test_an_object_that_cannot_be_read_is_named(shell: command_line.CommandLine, plural: str, broken: Object, named: str) -> None:
    objects = {**OBJECTS, plural: [*OBJECTS.get(plural, ()), broken]}
    ran = allocate(shell, StubApi(version="1.37", objects=objects))
    assert (ran.status, ran.device, ran.answer["certain"]) == (0, "d1", False)
    assert "cannot be read and count as absent" in ran.notes[0]
    assert named in ran.notes[0]


def test_a_list_without_items_is_named(shell: command_line.CommandLine) -> None:
    ran = allocate(shell, StubApi(version="1.37", objects=OBJECTS, answers={"devicetaintrules": {"kind": "List"}}))
    assert (ran.answer["certain"], ran.device) == (False, "d0")
    assert ran.notes[0].startswith("the list of devicetaintrules has no items and is ignored, so devices that a rule taints count as free")


def test_unknown_fields_and_gates_in_use_are_noted_once(shell: command_line.CommandLine) -> None:
    grouped: Json = [{"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["g"]}]
    odd: Object = {
        **SLICE,
        "spec": {**_spec(), "devices": [{"name": "d0", "shape": 1}, {"name": "d1", "shape": 1, "consumesCounters": grouped}]},
    }
    ran = allocate(shell, StubApi(version="1.37", objects={**OBJECTS, "resourceslices": [odd]}))
    groups = "spec.devices[1].consumesCounters[0].compatibilityGroups"
    assert ran.notes == [
        f"feature gate DRADeviceCompatibilityGroups is taken to be on, because ResourceSlice s has {groups}",
        "ResourceSlice s: spec.devices[0].shape is ignored: drakit does not know it",
    ]
    assert ran.answer["certain"] is False


def _spec() -> Object:
    spec = SLICE["spec"]
    assert isinstance(spec, dict)
    return spec


def test_an_object_of_the_files_replaces_that_of_the_cluster_with_a_note(shell: command_line.CommandLine) -> None:
    own: Object = {**SLICE, "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {**_spec(), "devices": [{"name": "mine"}]}}
    ran = allocate(shell, StubApi(version="1.37", objects=OBJECTS), objects=[own, CLAIM])
    assert (ran.device, ran.notes) == ("mine", ["ResourceSlice s is that of the files, not that of the cluster"])


@pytest.mark.parametrize(
    "command",
    [
        ("free", "--kubeconfig"),
        ("simulate", "--mix", "gpu=1:1", "--tasks", "2", "--kubeconfig"),
        ("plan", "--ask", "gpu=1", "--move", "--kubeconfig"),
        ("plan", "--ask", "gpu=1", "--buy", "server-a30", "--kubeconfig"),
    ],
)
def test_every_command_that_reads_a_cluster_says_what_it_could_not_read(shell: command_line.CommandLine, command: Sequence[str]) -> None:
    api = StubApi(version="1.37", objects=OBJECTS, statuses={"devicetaintrules": 403})
    with stub_api.serving(api, shell.folder) as kubeconfig:
        ran = Ran(shell.run(*command, str(kubeconfig), "-o", "json"))
        shown = shell.run(*command, str(kubeconfig))
    assert ran.answer["certain"] is False, ran.err
    assert ran.notes[0].startswith("devicetaintrules may not be listed (403)")
    assert "this answer may be wrong: devicetaintrules may not be listed (403)" in " ".join(shown.out.split())
