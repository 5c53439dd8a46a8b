"""The container edits of CDI, decoded from a spec file. Source: the CDI specification 1.1.0 (SPEC.md, schema).

Decoding is strict, as in the runtimes: an unknown field, a wrong type or an unknown hook name makes the whole file invalid.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import decoding
from drakit_cluster.objects.schema.shape import ListOf, struct
from drakit_cluster.objects.validation import failure, fields, rules
from drakit_cluster.objects.validation.failure import Failure

_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_EDITS = struct(
    "env:[] additionalGids:[int]",
    deviceNodes=ListOf(item=struct("path! hostPath type major:int minor:int fileMode:int permissions uid:int gid:int")),
    netDevices=ListOf(item=struct("hostInterfaceName! name!")),
    mounts=ListOf(item=struct("hostPath! containerPath! type options:[]")),
    hooks=ListOf(item=struct("hookName! path! args:[] env:[] timeout:int")),
    intelRdt=struct("closID l3CacheSchema:any memBwSchema:any schemata:any enableMonitoring:any"),
)
_SPEC = struct(
    "cdiVersion! kind! annotations:any", devices=ListOf(item=struct("name! annotations:any", containerEdits=_EDITS)), containerEdits=_EDITS
)


class SpecError(Exception):
    """A CDI file that a runtime ignores; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class DeviceNode:
    """A device node in the container. ``host_path`` is empty where it equals ``path``; ``major`` and ``minor`` of 0 with no type are unset."""

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
class Edits:
    """The container edits of one device, or of a whole file. ``env`` holds ``NAME=value``. ``net_devices`` and ``rdt`` say whether there are any."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: bool = False
    additional_gids: tuple[int, ...] = ()
    rdt: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there are no edits."""
        return self == Edits()


def _env(variable: str, path: str) -> Iterator[Failure]:
    if variable.find("=") < 1:
        yield failure.invalid(path, variable, "must be NAME=value")


def _permissions(permissions: str, path: str) -> Iterator[Failure]:
    if not set(permissions) <= set("rwm"):
        yield failure.invalid(path, permissions, "may hold r, w and m")


def _class_of_service(name: str, path: str) -> Iterator[Failure]:
    if name in (".", "..") or any(character in name for character in "/\n"):
        yield failure.invalid(path, name, "must be a file name")


def _group(group: Json, path: str) -> Iterator[Failure]:
    if isinstance(group, int) and group < 0:
        yield failure.invalid(path, group, "must be a group id")


_EDITS_RULE = rules.all_of(
    rules.texts("env", _env),
    rules.items(
        "deviceNodes", rules.all_of(rules.word("type", ("b", "c", "u", "p"), optional=True), rules.text(_permissions, "permissions"))
    ),
    rules.items("hooks", rules.all_of(rules.word("hookName", _HOOKS), rules.texts("env", _env))),
    rules.items("additionalGids", _group),
    rules.if_set(rules.text(_class_of_service, "closID"), "intelRdt"),
)
_RULE = rules.all_of(
    rules.if_set(_EDITS_RULE, "containerEdits"), rules.items("devices", rules.if_set(_EDITS_RULE, "containerEdits"), key=rules.by("name"))
)


def check(document: Json) -> Object:
    """Return the content of a spec file; raise SpecError for the first field that a runtime rejects."""
    decoder = decoding.Decoder()
    try:
        spec = decoder.decode(_SPEC, document, "spec")
    except errors.BadRequestError as error:
        raise SpecError(str(error)) from error
    if decoder.unknown:
        raise SpecError(f"{decoder.unknown[0]}: unknown field")
    for failed in itertools.chain(fields.check(_SPEC, spec, "spec"), _RULE(spec, "spec")):
        raise SpecError(f"{failed.field}: {failed.message}")
    return json_types.mapping(spec)


def edits_of(value: Json) -> Edits:
    """Return the container edits of a checked file."""
    return Edits(
        env=tuple(json_types.strings(value, "env")),
        device_nodes=tuple(map(_device_node, json_types.objects(value, "deviceNodes"))),
        mounts=tuple(map(_mount, json_types.objects(value, "mounts"))),
        hooks=tuple(map(_hook, json_types.objects(value, "hooks"))),
        net_devices=bool(json_types.objects(value, "netDevices")),
        additional_gids=tuple(group for group in json_types.items(value, "additionalGids") if isinstance(group, int)),
        rdt=json_types.at(value, "intelRdt") is not None,
    )


def _device_node(node: Object) -> DeviceNode:
    return DeviceNode(
        path=json_types.text(node, "path"),
        host_path=json_types.text(node, "hostPath"),
        type=json_types.text(node, "type"),
        major=json_types.number(node, "major"),
        minor=json_types.number(node, "minor"),
        permissions=json_types.text(node, "permissions"),
        uid=json_types.number(node, "uid") if "uid" in node else None,
        gid=json_types.number(node, "gid") if "gid" in node else None,
    )


def _mount(mount: Object) -> Mount:
    return Mount(
        host_path=json_types.text(mount, "hostPath"),
        container_path=json_types.text(mount, "containerPath"),
        type=json_types.text(mount, "type"),
        options=tuple(json_types.strings(mount, "options")),
    )


def _hook(hook: Object) -> Hook:
    return Hook(
        name=json_types.text(hook, "hookName"),
        path=json_types.text(hook, "path"),
        args=tuple(json_types.strings(hook, "args")),
        env=tuple(json_types.strings(hook, "env")),
        timeout=json_types.number(hook, "timeout") if "timeout" in hook else None,
    )
