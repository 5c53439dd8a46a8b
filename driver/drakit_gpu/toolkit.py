"""The files of a container as NVIDIA's container toolkit lists them: the output of ``nvidia-ctk cdi generate``, read strictly."""

import json
import pathlib
from collections.abc import Iterator, Mapping

import drakit
from drakit_gpu import driver_root, programs

TOOLKIT = "nvidia-ctk"
_TOOLKIT_SECONDS = 30.0
_TOP = frozenset({"cdiVersion", "kind", "devices", "containerEdits", "annotations"})
_EDITS = frozenset({"env", "deviceNodes", "mounts", "hooks", "additionalGids"})
_MOUNT = frozenset({"hostPath", "containerPath", "options", "type"})
_HOOK = frozenset({"hookName", "path", "args", "env", "timeout"})
_OWN = frozenset({"NVIDIA_VISIBLE_DEVICES"})
_OWN_PLACES = frozenset({"/tmp/nvidia-mps"})  # noqa: S108 - where a container finds an MPS daemon
_DEFAULT_OPTIONS = ("ro", "nosuid", "nodev", "bind")

_Object = Mapping[str, drakit.Json]


def from_toolkit(root: driver_root.DriverRoot, program: pathlib.Path) -> drakit.Edits:
    """Return the toolkit's edits common to all GPUs; raises HardwareError where it fails or prints invalid output."""
    text = programs.run_program(
        program, "cdi", "generate", "--format=json", "--mode=nvml", f"--driver-root={root.path}", seconds=_TOOLKIT_SECONDS
    )
    try:
        return read_toolkit_spec(json.loads(text), root)
    except (ValueError, TypeError) as error:
        raise drakit.HardwareError(TOOLKIT, f"printed an invalid CDI spec: {error}") from error


def read_toolkit_spec(spec: drakit.Json, root: driver_root.DriverRoot) -> drakit.Edits:
    """Return the common edits of a CDI spec; raises ValueError or TypeError that name the field."""
    common = _object(_object(spec, "spec", _TOP).get("containerEdits"), "containerEdits", _EDITS)
    env = dict(_variable(text) for text in _texts(common.get("env"), "env"))
    mounts = (_toolkit_mount(_object(entry, "mounts", _MOUNT), root) for entry in _list(common.get("mounts"), "mounts"))
    return drakit.Edits(
        env={name: value for name, value in env.items() if name not in _OWN},
        mounts=tuple(mount for mount in mounts if mount.container_path not in _OWN_PLACES),
        hooks=tuple(_toolkit_hook(_object(entry, "hooks", _HOOK), root) for entry in _list(common.get("hooks"), "hooks")),
    )


def _toolkit_mount(spec: _Object, root: driver_root.DriverRoot) -> drakit.Mount:
    host = pathlib.Path(_text(spec, "hostPath"))
    container = pathlib.PurePosixPath(_text(spec, "containerPath"))
    if not host.is_absolute() or not container.is_absolute() or ".." in (*host.parts, *container.parts):
        raise ValueError(f"mounts: {host} and {container} must be absolute paths")
    options = tuple(_texts(spec.get("options"), "options")) or _DEFAULT_OPTIONS
    path = root.host(host) if host.is_relative_to(root.path) else str(host)
    return drakit.Mount(host_path=path, container_path=str(container), options=options, type=_text(spec, "type", required=False))


def _toolkit_hook(spec: _Object, root: driver_root.DriverRoot) -> drakit.Hook:
    """Return a hook with its program's path on the host; the toolkit prints the path as if the driver root were the host's root."""
    name = pathlib.Path(_text(spec, "path")).name
    program = root.program(name)
    if program is None:
        raise ValueError(f"hooks: {name} is not installed below {root.path}")
    timeout = spec.get("timeout")
    return drakit.Hook(
        name=drakit.HookName(_text(spec, "hookName")),
        path=root.host(program),
        args=tuple(_texts(spec.get("args"), "args")),
        env=dict(_variable(text) for text in _texts(spec.get("env"), "env")),
        timeout=timeout if isinstance(timeout, int) else None,
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"env: {text!r} is not NAME=value")
    return name, value


def _object(value: drakit.Json, field: str, fields: frozenset[str]) -> _Object:
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} must be an object")
    if unknown := value.keys() - fields:
        raise ValueError(f"{field} has the unknown field {min(unknown)}")
    return value


def _list(value: drakit.Json, field: str) -> Iterator[drakit.Json]:
    if value is not None and not isinstance(value, list):
        raise TypeError(f"{field} must be a list")
    yield from value or ()


def _texts(value: drakit.Json, field: str) -> Iterator[str]:
    for text in _list(value, field):
        if not isinstance(text, str):
            raise TypeError(f"{field} must hold texts")
        yield text


def _text(spec: _Object, field: str, *, required: bool = True) -> str:
    value = spec.get(field)
    if not isinstance(value, str | None) or (required and not value):
        raise TypeError(f"{field} must be a text")
    return value or ""
