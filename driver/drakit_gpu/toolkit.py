"""The files of a container as NVIDIA's container toolkit lists them: the output of ``nvidia-ctk cdi generate``, read strictly."""

import dataclasses
import json
import pathlib
from typing import Annotated

import drakit
from drakit import wire
from drakit_gpu import driver_root, programs

TOOLKIT = "nvidia-ctk"
_TOOLKIT_SECONDS = 30.0
_OWN = frozenset({"NVIDIA_VISIBLE_DEVICES"})
_OWN_PLACES = frozenset({"/tmp/nvidia-mps"})  # noqa: S108 - where a container finds an MPS daemon
_DEFAULT_OPTIONS = ("ro", "nosuid", "nodev", "bind")

_FORMAT = wire.Format()
_IGNORED = wire.Converter(lambda value: value, lambda value: value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Mount:
    host_path: str
    container_path: str
    options: tuple[str, ...] | None = None
    type: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Hook:
    hook_name: str
    path: str
    args: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    timeout: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Edits:
    env: tuple[str, ...] | None = None
    mounts: tuple[_Mount, ...] | None = None
    hooks: tuple[_Hook, ...] | None = None
    device_nodes: Annotated[object, _IGNORED] = None
    additional_gids: Annotated[object, _IGNORED] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spec:
    container_edits: _Edits
    cdi_version: Annotated[object, _IGNORED] = None
    kind: Annotated[object, _IGNORED] = None
    devices: Annotated[object, _IGNORED] = None
    annotations: Annotated[object, _IGNORED] = None


def from_toolkit(root: driver_root.DriverRoot, program: pathlib.Path) -> drakit.Edits:
    """Return the toolkit's edits common to all GPUs; raises HardwareError where it fails or prints invalid output."""
    text = programs.run_program(
        program, "cdi", "generate", "--format=json", "--mode=nvml", f"--driver-root={root.path}", seconds=_TOOLKIT_SECONDS
    )
    try:
        return read_toolkit_spec(json.loads(text), root)
    except (ValueError, drakit.ConfigError) as error:
        raise drakit.HardwareError(TOOLKIT, f"printed an invalid CDI spec: {error}") from error


def read_toolkit_spec(spec: drakit.Json, root: driver_root.DriverRoot) -> drakit.Edits:
    """Return the common edits of a CDI spec; raises ConfigError or ValueError that name the field."""
    common = _FORMAT.decode(_Spec, spec).container_edits
    mounts = (_toolkit_mount(mount, root) for mount in common.mounts or ())
    return drakit.Edits(
        env={name: value for name, value in _variables(common.env).items() if name not in _OWN},
        mounts=tuple(mount for mount in mounts if mount.container_path not in _OWN_PLACES),
        hooks=tuple(_toolkit_hook(hook, root) for hook in common.hooks or ()),
    )


def _toolkit_mount(mount: _Mount, root: driver_root.DriverRoot) -> drakit.Mount:
    host, container = pathlib.Path(mount.host_path), pathlib.PurePosixPath(mount.container_path)
    if not host.is_absolute() or not container.is_absolute() or ".." in (*host.parts, *container.parts):
        raise ValueError(f"mounts: {host} and {container} must be absolute paths")
    path = root.host(host) if host.is_relative_to(root.path) else str(host)
    return drakit.Mount(host_path=path, container_path=str(container), options=mount.options or _DEFAULT_OPTIONS, type=mount.type or "")


def _toolkit_hook(hook: _Hook, root: driver_root.DriverRoot) -> drakit.Hook:
    """Return a hook with its program's path on the host; the toolkit prints the path as if the driver root were the host's root."""
    name = pathlib.Path(hook.path).name
    program = root.program(name) if name else None
    if program is None:
        raise ValueError(f"hooks: {name} is not installed below {root.path}")
    return drakit.Hook(
        name=drakit.HookName(hook.hook_name),
        path=root.host(program),
        args=hook.args or (),
        env=_variables(hook.env),
        timeout=hook.timeout,
    )


def _variables(texts: tuple[str, ...] | None) -> dict[str, str]:
    for text in texts or ():
        if not text.partition("=")[0] or "=" not in text:
            raise ValueError(f"env: {text!r} is not NAME=value")
    return dict(text.split("=", 1) for text in texts or ())
