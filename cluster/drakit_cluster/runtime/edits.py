"""Container edits of CDI as values, and their decoding from a spec file. Source: the CDI specification 1.1.0 (SPEC.md, schema).

Decoding is strict, as in the runtimes: an unknown field, a wrong type or an unknown hook name makes the whole file invalid.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

HOOK_NAMES = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})
_NODE_TYPES = frozenset({"", "b", "c", "u", "p"})
_PERMISSIONS = frozenset("rwm")
_Item = TypeVar("_Item")


class SpecError(Exception):
    """A CDI file that a runtime ignores; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class DeviceNode:
    """A device node in the container. ``host_path`` is empty where it is ``path``; ``major`` and ``minor`` of 0 with no type are unset."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A mount in the container."""

    container_path: str
    host_path: str
    type: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A program of the OCI life cycle; ``timeout`` is in seconds, None without one. ``args`` begin with the program's own name."""

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@dataclass(frozen=True, kw_only=True)
class NetDevice:
    """A network interface of the host to be moved into the container under ``name``."""

    host_interface: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Edits:
    """What one device, or a whole file, changes in a container. ``env`` holds ``NAME=value``."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()
    rdt: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is changed."""
        return self == Edits()


def check_fields(value: Json, allowed: Iterable[str], where: str) -> Object:
    """Return ``value`` as an object that has no other fields than ``allowed``; raise SpecError."""
    if not isinstance(value, dict):
        raise SpecError(f"{where}: must be an object")
    if unknown := sorted(value.keys() - set(allowed)):
        raise SpecError(f"{where}: unknown field {unknown[0]}")
    return value


def text(holder: Object, field: str, where: str, *, required: bool = False) -> str:
    """Return a string field, empty if absent; raise SpecError for another type, or for an empty required one."""
    value = holder.get(field)
    if value is not None and not isinstance(value, str):
        raise SpecError(f"{where}.{field}: must be a string")
    if required and not value:
        raise SpecError(f"{where}.{field}: must not be empty")
    return value or ""


def _number(holder: Object, field: str, where: str) -> int | None:
    value = holder.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise SpecError(f"{where}.{field}: must be an integer")
    return value


def items(holder: Object, field: str, where: str) -> list[Json]:
    """Return a list field, empty if absent; raise SpecError for another type."""
    value = holder.get(field)
    if value is not None and not isinstance(value, list):
        raise SpecError(f"{where}.{field}: must be a list")
    return value or []


def _strings(holder: Object, field: str, where: str) -> tuple[str, ...]:
    values = items(holder, field, where)
    for value in values:
        if not isinstance(value, str):
            raise SpecError(f"{where}.{field}: must hold strings")
    return tuple(json_types.strings(values))


def _each(holder: Object, field: str, where: str, decode: Callable[[Json, str], _Item]) -> tuple[_Item, ...]:
    return tuple(decode(value, f"{where}.{field}[{index}]") for index, value in enumerate(items(holder, field, where)))


def _env(holder: Object, where: str) -> tuple[str, ...]:
    values = _strings(holder, "env", where)
    for index, value in enumerate(values):
        if value.find("=") < 1:
            raise SpecError(f"{where}.env[{index}]: must be NAME=value, not {value!r}")
    return values


def _device_node(value: Json, where: str) -> DeviceNode:
    node = check_fields(value, ("path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"), where)
    kind, permissions = text(node, "type", where), text(node, "permissions", where)
    if kind not in _NODE_TYPES:
        raise SpecError(f"{where}.type: must be one of b, c, u, p, not {kind!r}")
    if not set(permissions) <= _PERMISSIONS:
        raise SpecError(f"{where}.permissions: may hold r, w and m, not {permissions!r}")
    return DeviceNode(
        path=text(node, "path", where, required=True),
        host_path=text(node, "hostPath", where),
        type=kind,
        major=_number(node, "major", where) or 0,
        minor=_number(node, "minor", where) or 0,
        permissions=permissions,
        uid=_number(node, "uid", where),
        gid=_number(node, "gid", where),
    )


def _mount(value: Json, where: str) -> Mount:
    mount = check_fields(value, ("hostPath", "containerPath", "type", "options"), where)
    return Mount(
        host_path=text(mount, "hostPath", where, required=True),
        container_path=text(mount, "containerPath", where, required=True),
        type=text(mount, "type", where),
        options=_strings(mount, "options", where),
    )


def _hook(value: Json, where: str) -> Hook:
    hook = check_fields(value, ("hookName", "path", "args", "env", "timeout"), where)
    name = text(hook, "hookName", where, required=True)
    if name not in HOOK_NAMES:
        raise SpecError(f"{where}.hookName: unknown hook {name!r}")
    return Hook(
        name=name,
        path=text(hook, "path", where, required=True),
        args=_strings(hook, "args", where),
        env=_env(hook, where),
        timeout=_number(hook, "timeout", where),
    )


def _net_device(value: Json, where: str) -> NetDevice:
    device = check_fields(value, ("hostInterfaceName", "name"), where)
    return NetDevice(
        host_interface=text(device, "hostInterfaceName", where, required=True), name=text(device, "name", where, required=True)
    )


def _check_rdt(value: Json, where: str) -> bool:
    rdt = check_fields(value, ("closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring"), where)
    closid = text(rdt, "closID", where)
    if closid in (".", "..") or any(sign in closid for sign in "/\n"):
        raise SpecError(f"{where}.closID: must be a file name, not {closid!r}")
    return True


def decode_edits(value: Json, where: str) -> Edits:
    """Return container edits; raise SpecError."""
    fields = ("env", "deviceNodes", "netDevices", "mounts", "hooks", "intelRdt", "additionalGids")
    edits = check_fields(value, fields, where)
    return Edits(
        env=_env(edits, where),
        device_nodes=_each(edits, "deviceNodes", where, _device_node),
        mounts=_each(edits, "mounts", where, _mount),
        hooks=_each(edits, "hooks", where, _hook),
        net_devices=_each(edits, "netDevices", where, _net_device),
        additional_gids=_each(edits, "additionalGids", where, _gid),
        rdt="intelRdt" in edits and _check_rdt(edits["intelRdt"], f"{where}.intelRdt"),
    )


def _gid(value: Json, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SpecError(f"{where}: must be a group id")
    return value
