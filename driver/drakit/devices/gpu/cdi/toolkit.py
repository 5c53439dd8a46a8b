"""What a container needs of the driver, as NVIDIA's own container toolkit says: ``nvidia-ctk cdi generate``, where it is installed.

It is run from the driver root, without a shell and within a bound of time, and prints a CDI spec as JSON. Of that the edits common to all devices are
taken: variables, mounts and hooks. Device nodes are drakit's own, as is NVIDIA_VISIBLE_DEVICES, and so is the place of an MPS daemon: the toolkit
would mount the host's there, over the claim's own or beside it. What is printed is read strictly: an unknown field, a hook whose program is not in
the driver root, or a mount from elsewhere than an absolute path is an error.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping

from drakit.core import edits, errors, records
from drakit.devices.gpu.cdi import driver_root, programs

PROGRAM = "nvidia-ctk"
_SECONDS = 30.0
_TOP = frozenset({"cdiVersion", "kind", "devices", "containerEdits", "annotations"})
_EDITS = frozenset({"env", "deviceNodes", "mounts", "hooks", "additionalGids"})
_MOUNT = frozenset({"hostPath", "containerPath", "options", "type"})
_HOOK = frozenset({"hookName", "path", "args", "env", "timeout"})
_OWN = frozenset({"NVIDIA_VISIBLE_DEVICES"})
_OWN_PLACES = frozenset({"/tmp/nvidia-mps"})  # noqa: S108 - where a container finds an MPS daemon
_DEFAULT_OPTIONS = ("ro", "nosuid", "nodev", "bind")

_Object = Mapping[str, records.Json]


def generate(root: driver_root.DriverRoot, program: pathlib.Path) -> edits.Edits:
    """The edits common to all GPUs; raises HardwareError for a program that fails and for output that is not as it should be."""
    text = programs.run(program, "cdi", "generate", "--format=json", "--mode=nvml", f"--driver-root={root.path}", seconds=_SECONDS)
    try:
        return read(json.loads(text), root)
    except (ValueError, TypeError) as error:
        raise errors.HardwareError(PROGRAM, f"printed what is not a CDI spec: {error}") from error


def read(spec: records.Json, root: driver_root.DriverRoot) -> edits.Edits:
    """The common edits of a CDI spec; raises ValueError or TypeError that name the field."""
    common = _object(_object(spec, "spec", _TOP).get("containerEdits"), "containerEdits", _EDITS)
    env = dict(_variable(one) for one in _texts(common.get("env"), "env"))
    mounts = (_mount(_object(one, "mounts", _MOUNT), root) for one in _list(common.get("mounts"), "mounts"))
    return edits.Edits(
        env={name: value for name, value in env.items() if name not in _OWN},
        mounts=tuple(mount for mount in mounts if mount.container_path not in _OWN_PLACES),
        hooks=tuple(_hook(_object(one, "hooks", _HOOK), root) for one in _list(common.get("hooks"), "hooks")),
    )


def _mount(told: _Object, root: driver_root.DriverRoot) -> edits.Mount:
    host = pathlib.Path(_text(told, "hostPath"))
    container = pathlib.PurePosixPath(_text(told, "containerPath"))
    if not host.is_absolute() or not container.is_absolute() or ".." in (*host.parts, *container.parts):
        raise ValueError(f"mounts: {host} and {container} must be absolute paths")
    options = tuple(_texts(told.get("options"), "options")) or _DEFAULT_OPTIONS
    path = root.host(host) if host.is_relative_to(root.path) else str(host)
    return edits.Mount(host_path=path, container_path=str(container), options=options, type=_text(told, "type", required=False))


def _hook(told: _Object, root: driver_root.DriverRoot) -> edits.Hook:
    """A hook with the program's path on the host: the toolkit tells the path it would have if the driver root were the host's."""
    name = pathlib.Path(_text(told, "path")).name
    program = root.program(name)
    if program is None:
        raise ValueError(f"hooks: {name} is not installed below {root.path}")
    timeout = told.get("timeout")
    return edits.Hook(
        name=edits.HookName(_text(told, "hookName")),
        path=root.host(program),
        args=tuple(_texts(told.get("args"), "args")),
        env=dict(_variable(one) for one in _texts(told.get("env"), "env")),
        timeout=timeout if isinstance(timeout, int) else None,
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"env: {text!r} is not NAME=value")
    return name, value


def _object(value: records.Json, field: str, known: frozenset[str]) -> _Object:
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} must be an object")
    if unknown := value.keys() - known:
        raise ValueError(f"{field} has the unknown field {min(unknown)}")
    return value


def _list(value: records.Json, field: str) -> Iterator[records.Json]:
    if value is not None and not isinstance(value, list):
        raise TypeError(f"{field} must be a list")
    yield from value or ()


def _texts(value: records.Json, field: str) -> Iterator[str]:
    for one in _list(value, field):
        if not isinstance(one, str):
            raise TypeError(f"{field} must hold texts")
        yield one


def _text(told: _Object, field: str, *, required: bool = True) -> str:
    value = told.get(field)
    if not isinstance(value, str | None) or (required and not value):
        raise TypeError(f"{field} must be a text")
    return value or ""
