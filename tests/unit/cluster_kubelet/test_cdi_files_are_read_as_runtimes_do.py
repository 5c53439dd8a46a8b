"""Which CDI files a runtime takes, and what they do to a container."""

import dataclasses
import json
import pathlib

import pytest

from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.runtime import Hook, Mount, SpecCache, UnresolvableError
from drakit_cluster.runtime.specs import merge

ENV: Object = {"env": ["A=1"]}


def _spec(*, version: str = "1.1.0", kind: str = "example.com/gpu", edits: Json = None, name: str = "a", **fields: Json) -> Object:
    device: Object = {"name": name, "containerEdits": ENV if edits is None else edits}
    return {"cdiVersion": version, "kind": kind, "devices": [device], **fields}


def _write(folder: pathlib.Path, name: str, spec: Json) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(spec if isinstance(spec, str) else json.dumps(spec))


def _problem(folder: pathlib.Path, spec: Json, name: str = "x.json") -> str:
    _write(folder, name, spec)
    return "".join(SpecCache([folder]).problems().values())


@pytest.mark.parametrize(
    "spec",
    [
        _spec(version="0.3.0"),
        _spec(version="v0.5.0", name="0a:b_c.d-1"),
        _spec(version="0.5.0", edits={"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "permissions": "rw"}]}),
        _spec(version="0.4.0", edits={"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind", "options": ["ro"]}]}),
        _spec(version="0.6.0", annotations={"a": "b"}),
        _spec(version="0.7.0", edits={"additionalGids": [5], "intelRdt": {"closID": "x"}}),
        _spec(edits={"netDevices": [{"hostInterfaceName": "eth0", "name": "net1"}]}),
        _spec(edits={"hooks": [{"hookName": "createRuntime", "path": "/bin/x", "args": ["x"], "env": ["A=b"], "timeout": 5}]}),
    ],
)
def test_a_valid_file_is_used(tmp_path: pathlib.Path, spec: Object) -> None:
    assert _problem(tmp_path, spec) == ""


@pytest.mark.parametrize(
    "spec,problem",
    [
        ("{", "cannot be parsed"),
        ([], "spec: want an object"),
        (_spec(surprise=1), "spec.surprise: unknown field"),
        (_spec(version="1.2.0"), "spec.cdiVersion: 1.2.0 is not known"),
        (_spec(version="0.3.0", name="0a"), "spec.cdiVersion: what the file uses needs 0.5.0, not 0.3.0"),
        (_spec(version="0.5.0", annotations={"a": "b"}), "needs 0.6.0"),
        (_spec(version="0.5.0", kind="example.com/gpu.mig"), "needs 0.6.0"),
        (_spec(version="0.6.0", edits={"additionalGids": [5]}), "needs 0.7.0"),
        (_spec(version="1.0.0", edits={"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}), "needs 1.1.0"),
        (_spec(kind="gpu"), "spec.kind: must be vendor/class, not 'gpu'"),
        (_spec(kind="0example/gpu"), "spec.kind"),
        (_spec(name="a b"), "spec.devices[0].name: 'a b' is not a valid device name"),
        (_spec(name="-a"), "is not a valid device name"),
        (_spec(edits={}), "spec.devices[0].containerEdits: empty device edits"),
        (_spec(edits={"env": []}), "empty device edits"),
        (_spec(edits={"surprise": 1}), "spec.devices[0].containerEdits.surprise: unknown field"),
        (_spec(edits={"env": ["A"]}), 'spec.devices[0].containerEdits.env[0]: Invalid value: "A": must be NAME=value'),
        (_spec(edits={"env": "A=b"}), "env: want a list"),
        (_spec(edits={"env": [1]}), "env[0]: want a string"),
        (_spec(edits={"deviceNodes": [{"path": ""}]}), "deviceNodes[0].path: Required value"),
        (_spec(edits={"deviceNodes": [{"path": "/a", "type": "z"}]}), 'type: Unsupported value: "z"'),
        (_spec(edits={"deviceNodes": [{"path": "/a", "permissions": "rx"}]}), 'permissions: Invalid value: "rx": may hold r, w and m'),
        (_spec(edits={"deviceNodes": [{"path": "/a", "major": "1"}]}), "major: want a 64-bit integer"),
        (_spec(edits={"mounts": [{"hostPath": "/a"}]}), "mounts[0].containerPath: Required value"),
        (_spec(edits={"hooks": [{"hookName": "onMonday", "path": "/a"}]}), 'hookName: Unsupported value: "onMonday"'),
        (_spec(edits={"netDevices": [{"name": "b"}]}), "hostInterfaceName: Required value"),
        (_spec(edits={"intelRdt": {"closID": "../x"}}), 'closID: Invalid value: "../x": must be a file name'),
        (_spec(edits={"additionalGids": [-1]}), "additionalGids[0]: Invalid value: -1: must be a group id"),
        (_spec() | {"devices": []}, "spec.devices: no devices"),
        (_spec() | {"devices": [{"name": "a", "containerEdits": ENV}] * 2}, 'spec.devices[1]: Duplicate value: "a"'),
    ],
)
def test_an_invalid_file_is_skipped_with_a_reason(tmp_path: pathlib.Path, spec: Json, problem: str) -> None:
    assert problem in _problem(tmp_path, spec)
    with pytest.raises(UnresolvableError, match=r"unresolvable CDI devices example\.com/gpu=a"):
        SpecCache([tmp_path]).edits(["example.com/gpu=a"])


def test_all_unresolvable_names_are_named(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, "x.json", _spec())
    with pytest.raises(UnresolvableError, match=r"unresolvable CDI devices example\.com/gpu=b, other\.com/nic=c"):
        SpecCache([tmp_path]).edits(["example.com/gpu=b", "example.com/gpu=a", "other.com/nic=c"])


def test_a_device_in_two_files_of_a_folder_is_unresolvable(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, "x.json", _spec())
    _write(tmp_path, "y.yaml", "cdiVersion: 0.5.0\nkind: example.com/gpu\ndevices:\n- name: a\n  containerEdits: {env: [A=2]}\n")
    with pytest.raises(UnresolvableError):
        SpecCache([tmp_path]).edits(["example.com/gpu=a"])


def test_a_later_folder_takes_precedence(tmp_path: pathlib.Path) -> None:
    _write(tmp_path / "etc", "x.json", _spec())
    _write(tmp_path / "run", "x.json", _spec(edits={"env": ["A=2"]}))
    cache = SpecCache([tmp_path / "etc", tmp_path / "run"])
    assert merge(cache.edits(["example.com/gpu=a"])).env == ("A=2",)


def test_files_without_a_cdi_suffix_are_ignored(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, "x.json.tmp", "{")
    _write(tmp_path, ".y.swp", "{")
    assert SpecCache([tmp_path, tmp_path / "missing"]).problems() == {}


def test_a_new_file_and_a_changed_file_are_noticed(tmp_path: pathlib.Path) -> None:
    cache = SpecCache([tmp_path])
    _write(tmp_path, "x.json", _spec())
    assert merge(cache.edits(["example.com/gpu=a"])).env == ("A=1",)
    _write(tmp_path, "x.json", _spec(edits={"env": ["A=two"]}))
    assert merge(cache.edits(["example.com/gpu=a"])).env == ("A=two",)
    (tmp_path / "x.json").unlink()
    with pytest.raises(UnresolvableError):
        cache.edits(["example.com/gpu=a"])


def test_a_device_that_is_listed_twice_changes_nothing_more_but_runs_its_hooks_twice(tmp_path: pathlib.Path) -> None:
    hook: Object = {"hookName": "createRuntime", "path": "/bin/x"}
    edits: Object = {
        "env": ["A=1"],
        "mounts": [{"hostPath": "/1", "containerPath": "/b"}],
        "deviceNodes": [{"path": "/dev/a"}],
        "hooks": [hook],
    }
    _write(tmp_path, "x.json", _spec() | {"devices": [{"name": "a", "containerEdits": edits}]})
    cache = SpecCache([tmp_path])
    once, twice = (merge(cache.edits(["example.com/gpu=a"] * times)) for times in (1, 2))
    assert once.hooks == (Hook(name="createRuntime", path="/bin/x"),)
    assert twice == dataclasses.replace(once, hooks=once.hooks * 2)


def test_a_files_own_edits_come_once_and_first_and_later_ones_replace(tmp_path: pathlib.Path) -> None:
    hook: Object = {"hookName": "createRuntime", "path": "/bin/x"}
    first: Object = {
        "env": ["A=1", "B=1"],
        "mounts": [{"hostPath": "/1", "containerPath": "/b"}],
        "hooks": [hook],
        "additionalGids": [0, 7],
    }
    second: Object = {
        "env": ["B=2"],
        "mounts": [{"hostPath": "/2", "containerPath": "/b"}, {"hostPath": "/2", "containerPath": "/a"}],
        "additionalGids": [7],
        "deviceNodes": [{"path": "/dev/a"}],
    }
    spec: Object = _spec() | {
        "containerEdits": {"env": ["A=0", "COMMON=yes"], "hooks": [hook], "deviceNodes": [{"path": "/dev/a", "permissions": "r"}]},
        "devices": [{"name": "a", "containerEdits": first}, {"name": "b", "containerEdits": second}],
    }
    _write(tmp_path, "x.json", spec)
    merged = merge(SpecCache([tmp_path]).edits(["example.com/gpu=a", "example.com/gpu=b"]))
    assert merged.env == ("A=1", "COMMON=yes", "B=2")
    assert merged.mounts == (Mount(container_path="/a", host_path="/2"), Mount(container_path="/b", host_path="/2"))
    assert merged.hooks == (Hook(name="createRuntime", path="/bin/x"),) * 2
    assert merged.additional_gids == (7,)
    assert [(node.path, node.permissions) for node in merged.device_nodes] == [("/dev/a", "")]
