"""Documents are what CDI's schema and runtimes accept, in the lowest version that suffices, byte for byte the same for the same edits."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Mapping

import jsonschema
import pytest
import referencing
import referencing.jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from drakit.cdi import spec
from drakit.core import edits, errors
from fakes import journal_samples as samples

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
SCHEMA = GOLDEN / "cdi-schema"
NAME = edits.CdiName(driver="gpu.example.com", claim_uid=samples.uid(1), device="gpu-0-mig-1g-5gb-19-0")
SHARE = edits.CdiName(driver="nic.example.com", claim_uid=samples.uid(2), device="ens1f0", share_id=samples.share(1))

# What a runtime's decoder knows; it refuses a file that has any other field, though the JSON schema would pass it.
KNOWN_FIELDS = {
    "deviceNodes": {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"},
    "mounts": {"hostPath", "containerPath", "options", "type"},
    "hooks": {"hookName", "path", "args", "env", "timeout"},
    "netDevices": {"hostInterfaceName", "name"},
}

GPU = edits.Edits(
    env={"NVIDIA_VISIBLE_DEVICES": "void", "DRAKIT_GPU_UUIDS": "MIG-8d5e4f0a"},
    device_nodes=(
        edits.DeviceNode(path="/dev/nvidia0"),
        edits.DeviceNode(path="/dev/nvidiactl", host_path="/run/nvidia/driver/dev/nvidiactl"),
        edits.DeviceNode(path="/dev/nvidia-caps/nvidia-cap66", type="c", major=237, minor=66, file_mode=0o444, permissions="r"),
    ),
    mounts=(edits.Mount(host_path="/usr/bin/nvidia-smi", container_path="/usr/bin/nvidia-smi"),),
    hooks=(
        edits.Hook(
            name=edits.HookName.CREATE_CONTAINER,
            path="/usr/bin/nvidia-cdi-hook",
            args=("nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"),
            env={"NVIDIA_CTK_DEBUG": "false"},
        ),
    ),
)
NIC = edits.Edits(
    env={"DRAKIT_NIC": "net1"},
    hooks=(edits.Hook(name=edits.HookName.CREATE_RUNTIME, path="/opt/drakit/attach", args=("attach", samples.share(1)), timeout=10),),
)
MOVED = edits.Edits(net_devices=(edits.NetDevice(host_interface_name="ens1f0", name="net1"),))


def validator() -> jsonschema.Draft7Validator:
    """CDI's own schema, its references resolved beside it."""
    load = {name: json.loads((SCHEMA / name).read_text()) for name in ("schema.json", "defs.json")}
    resources = [
        (name, referencing.Resource.from_contents(content, default_specification=referencing.jsonschema.DRAFT7))
        for name, content in load.items()
    ]
    registry: referencing.jsonschema.SchemaRegistry = referencing.Registry().with_resources(resources)
    return jsonschema.Draft7Validator(load["schema.json"], registry=registry)


VALIDATOR = validator()


@pytest.mark.parametrize("example", sorted((SCHEMA / "good").iterdir()), ids=lambda path: path.stem)
def test_the_schema_accepts_its_good_examples(example: pathlib.Path) -> None:
    VALIDATOR.validate(json.loads(example.read_text()))


@pytest.mark.parametrize("example", sorted((SCHEMA / "bad").iterdir()), ids=lambda path: path.stem)
def test_the_schema_refuses_its_bad_examples(example: pathlib.Path) -> None:
    with pytest.raises((jsonschema.ValidationError, json.JSONDecodeError)):
        VALIDATOR.validate(json.loads(example.read_text()))


@pytest.mark.parametrize(
    "golden, name, content", [("cdi-gpu.json", NAME, GPU), ("cdi-nic.json", SHARE, NIC), ("cdi-nic-moved.json", SHARE, MOVED)]
)
def test_the_file_for_the_runtime_is_the_golden_file(golden: str, name: edits.CdiName, content: edits.Edits) -> None:
    assert spec.encode(name, content) == (GOLDEN / golden).read_bytes()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("cdi-*.json")), ids=lambda path: path.stem)
def test_golden_files_fit_the_schema(path: pathlib.Path) -> None:
    VALIDATOR.validate(json.loads(path.read_text()))


names = st.text(st.characters(codec="utf-8", exclude_characters="\0="), min_size=1, max_size=8)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
paths = texts.map("/{}".format)
environments = st.dictionaries(names, texts, max_size=4)
interfaces = st.from_regex(r"[a-z][a-z0-9.-]{0,14}", fullmatch=True)


@st.composite
def device_nodes(draw: st.DrawFn) -> edits.DeviceNode:
    major, minor = draw(st.sampled_from([(None, None), (237, 0), (0, 0), (2**31, 1)]))
    return edits.DeviceNode(
        path=draw(paths),
        host_path=draw(st.just("") | paths),
        type=draw(st.sampled_from(["", "b", "c", "u", "p"])),
        major=major,
        minor=minor,
        file_mode=draw(st.none() | st.integers(min_value=0, max_value=0o7777)),
        permissions=draw(st.sampled_from(["", "r", "rw", "rwm"])),
    )


lists = {
    "device_nodes": st.lists(device_nodes(), max_size=3).map(tuple),
    "mounts": st.lists(
        st.builds(
            edits.Mount,
            host_path=paths,
            container_path=paths,
            options=st.lists(texts, max_size=3).map(tuple),
            type=st.sampled_from(["", "tmpfs"]),
        ),
        max_size=3,
    ).map(tuple),
    "hooks": st.lists(
        st.builds(
            edits.Hook,
            name=st.sampled_from(edits.HookName),
            path=paths,
            args=st.lists(texts, max_size=3).map(tuple),
            env=environments,
            timeout=st.none() | st.integers(min_value=1, max_value=600),
        ),
        max_size=3,
    ).map(tuple),
    "net_devices": st.lists(
        st.builds(edits.NetDevice, host_interface_name=interfaces, name=interfaces),
        max_size=2,
        unique_by=(lambda link: link.host_interface_name, lambda link: link.name),
    ).map(tuple),
}
all_edits = st.builds(edits.Edits, env=environments, **lists).filter(bool)


@settings(deadline=None)
@given(all_edits)
def test_any_edits_of_a_driver_fit_schema_and_decoder(content: edits.Edits) -> None:
    document = json.loads(spec.encode(NAME, content))
    VALIDATOR.validate(document)
    assert document.keys() == {"cdiVersion", "kind", "devices"}
    (device,) = document["devices"]
    assert device.keys() == {"name", "containerEdits"}
    found = device["containerEdits"]
    assert found
    assert found.keys() <= {"env", *KNOWN_FIELDS}
    for kind, known in KNOWN_FIELDS.items():
        assert all(item.keys() <= known for item in found.get(kind, []))
    assert all(re.match("[^=]+=", entry) for entry in found.get("env", []))
    assert document["cdiVersion"] == ("1.1.0" if content.net_devices else "0.5.0")


@settings(deadline=None)
@given(all_edits)
def test_any_edits_of_a_driver_are_read_back_equal(content: edits.Edits) -> None:
    assert spec.decode(NAME, spec.encode(NAME, content)) == content


@settings(deadline=None)
@given(environments.filter(bool))
def test_every_variable_reaches_the_container_as_it_was(variables: Mapping[str, str]) -> None:
    document = json.loads(spec.encode(NAME, edits.Edits(env=variables)))
    entries = document["devices"][0]["containerEdits"]["env"]
    assert dict(entry.split("=", 1) for entry in entries) == variables


def test_a_value_may_hold_equals_signs_and_newlines() -> None:
    document = json.loads(spec.encode(NAME, edits.Edits(env={"OPTIONS": "a=b\nc=d", "EMPTY": ""})))
    assert document["devices"] == [{"name": NAME.device_name, "containerEdits": {"env": ["EMPTY=", "OPTIONS=a=b\nc=d"]}}]


def test_bytes_do_not_depend_on_the_order_of_variables() -> None:
    assert spec.encode(NAME, edits.Edits(env={"A": "1", "B": "2"})) == spec.encode(NAME, edits.Edits(env={"B": "2", "A": "1"}))


@pytest.mark.parametrize(
    "content, version",
    [
        (edits.Edits(env={"A": "1"}), "0.5.0"),
        (edits.Edits(device_nodes=(edits.DeviceNode(path="/dev/a"),)), "0.5.0"),
        (edits.Edits(device_nodes=(edits.DeviceNode(path="/dev/a", host_path="/dev/b"),)), "0.5.0"),
        (edits.Edits(mounts=(edits.Mount(host_path="/a", container_path="/a", type="tmpfs"),)), "0.5.0"),
        (edits.Edits(hooks=(edits.Hook(name=edits.HookName.PRESTART, path="/a"),)), "0.5.0"),
        (MOVED, "1.1.0"),
        (edits.Edits(env={"A": "1"}, net_devices=MOVED.net_devices), "1.1.0"),
    ],
)
def test_the_cdi_version_is_the_lowest_that_has_every_used_field(content: edits.Edits, version: str) -> None:
    assert spec.version_for(content) == version
    assert json.loads(spec.encode(NAME, content))["cdiVersion"] == version


def node(**changes: object) -> edits.Edits:
    return edits.Edits(device_nodes=(edits.DeviceNode(**{"path": "/dev/a", **changes}),))  # type: ignore[arg-type]  # fields are the cases


def hook(**changes: object) -> edits.Edits:
    return edits.Edits(hooks=(edits.Hook(**{"name": edits.HookName.POSTSTOP, "path": "/a", **changes}),))  # type: ignore[arg-type]


def mount(host: str = "/a", container: str = "/a", option: str = "ro") -> edits.Edits:
    return edits.Edits(mounts=(edits.Mount(host_path=host, container_path=container, options=(option,)),))


def links(*pairs: tuple[str, str]) -> edits.Edits:
    return edits.Edits(net_devices=tuple(edits.NetDevice(host_interface_name=host, name=name) for host, name in pairs))


@pytest.mark.parametrize(
    "content, message",
    [
        (edits.Edits(), "edits: empty"),
        (edits.Edits(env={"": "x"}), r"edits\.env\[''\]: a name must not be empty"),
        (edits.Edits(env={"A=B": "x"}), r"edits\.env\['A=B'\]: a name must not"),
        (edits.Edits(env={"A": "x\0y"}), r"edits\.env\['A'\]: .* contains a NUL"),
        (edits.Edits(env={"A": "\ud800"}), r"edits\.env\['A'\]: .* is not valid Unicode"),
        (node(path=""), r"deviceNodes\[0\]\.path: '' is not an absolute path"),
        (node(path="dev/a"), r"deviceNodes\[0\]\.path"),
        (node(host_path="dev/a"), r"deviceNodes\[0\]\.hostPath"),
        (node(type="x"), r"deviceNodes\[0\]\.type: 'x' is not one of"),
        (node(permissions="rx"), r"deviceNodes\[0\]\.permissions: 'rx'"),
        (node(major=1), r"deviceNodes\[0\]: give major and minor"),
        (node(major=-1, minor=0), r"deviceNodes\[0\]\.major: -1 is out of range"),
        (node(file_mode=0o10000), r"deviceNodes\[0\]\.fileMode"),
        (mount(host=""), r"mounts\[0\]\.hostPath: is required"),
        (mount(container="a"), r"mounts\[0\]\.containerPath: 'a' is not an absolute path"),
        (mount(option="\0"), r"mounts\[0\]: .* contains a NUL"),
        (hook(path="hook"), r"hooks\[0\]\.path: 'hook' is not an absolute path"),
        (hook(args=("\0",)), r"hooks\[0\]\.args: .* contains a NUL"),
        (hook(env={"=": ""}), r"hooks\[0\]\.env\['='\]"),
        (hook(timeout=0), r"hooks\[0\]\.timeout: 0 is not a number of seconds"),
        (links(("eth0", "")), r"netDevices\[0\]\.name: '' is not an interface name"),
        (links(("x" * 16, "net1")), r"netDevices\[0\]\.hostInterfaceName"),
        (links(("a/b", "net1")), r"netDevices\[0\]\.hostInterfaceName"),
        (links(("eth0", "..")), r"netDevices\[0\]\.name"),
        (links(("eth0", "net1"), ("eth0", "net2")), "netDevices: hostInterfaceName 'eth0' is used 2 times"),
        (links(("eth0", "net1"), ("eth1", "net1")), "netDevices: name 'net1' is used 2 times"),
    ],
)
def test_edits_that_a_runtime_would_refuse_are_refused_by_field(content: edits.Edits, message: str) -> None:
    with pytest.raises(errors.CdiError, match=message):
        spec.encode(NAME, content)


@pytest.mark.parametrize("driver", ["3com.example.com", "GPU.example.com", "", "a_b.example.com", "x" * 64, "../x"])
def test_a_driver_that_cannot_be_a_cdi_vendor_is_refused(driver: str) -> None:
    with pytest.raises(errors.CdiError, match=r"driver: .* cannot be a CDI vendor"):
        spec.check_driver(driver)


@settings(deadline=None)
@given(all_edits)
def test_encoding_name_and_bytes_together_gives_the_same_single_line(content: edits.Edits) -> None:
    assert spec.file(SHARE, content) == (spec.file_name(SHARE), spec.encode(SHARE, content))
    assert spec.encode(SHARE, content).count(b"\n") == 1


@pytest.mark.parametrize("ask", [spec.encode, spec.file])
def test_no_invalid_uid_name_or_share_id_reaches_a_file_name(ask: Callable[[edits.CdiName, edits.Edits], object]) -> None:
    with pytest.raises(errors.CdiError, match=r"device: '\.\./x' is not a DNS label"):
        ask(dataclasses.replace(NAME, device="../x"), GPU)


def test_file_names_are_distinct_and_fit_the_file_system() -> None:
    long = [
        edits.CdiName(driver="d" * 63, claim_uid=samples.uid(1), device="g" * 63, share_id=samples.share(1), request=f"{'r' * 62}{last}")
        for last in "ab"
    ]
    file_names = [spec.file_name(name) for name in (*long, NAME, SHARE)]
    assert len(set(file_names)) == 4
    assert all(len(name) <= 255 and name.endswith(".json") for name in file_names)
    assert all(name.startswith(f"{'d' * 63}-claim_{samples.uid(1)}-") for name in file_names[:2])
    assert file_names[2] == f"gpu.example.com-claim_{samples.uid(1)}-gpu-0-mig-1g-5gb-19-0.json"
    assert file_names[3] == f"nic.example.com-claim_{samples.uid(2)}-ens1f0-{samples.share(1)}.json"
