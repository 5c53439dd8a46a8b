"""A CDI specification document read back: the reverse of ``spec.document``.

A file in the CDI directory can be damaged, or edited by hand, and what is read decides what a claim has. So reading is strict: only what ``spec``
writes is taken. Fields that it does not write, values of another type, a key given twice, and edits that a runtime would refuse are errors.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import NoReturn, cast

from drakit.cdi import spec
from drakit.core import decoding, edits, errors, records

SIZE_MAX = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Mount:
    """A mount as CDI has it: without options where none are given, which is not the default of ``edits.Mount``."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Hook:
    hook_name: edits.HookName
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ContainerEdits:
    env: tuple[str, ...] = ()
    device_nodes: tuple[edits.DeviceNode, ...] = ()
    mounts: tuple[_Mount, ...] = ()
    hooks: tuple[_Hook, ...] = ()
    net_devices: tuple[edits.NetDevice, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Device:
    name: str
    container_edits: _ContainerEdits


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Document:
    cdi_version: str
    kind: str
    devices: tuple[_Device, ...]


def decode(name: edits.CdiName, content: bytes) -> edits.Edits:
    """The edits of the file of this name; raises CdiError saying which field is not as ``spec.encode`` writes it."""
    if len(content) > SIZE_MAX:
        raise errors.CdiError(f"is over {SIZE_MAX} bytes")
    document = _document(content)
    if [document.kind, *(device.name for device in document.devices)] != [name.kind, name.device_name]:
        raise errors.CdiError(f"is not about {name.qualified} alone")
    found = _edits(document.devices[0].container_edits)
    spec.check_edits(found)
    if document.cdi_version != spec.version_for(found):
        raise errors.CdiError(f"cdiVersion: {document.cdi_version!r} is not {spec.version_for(found)!r}, which these edits need")
    return found


def _document(content: bytes) -> _Document:
    try:
        value = json.loads(content.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            raise errors.CdiError("is not a JSON object")
        record = records.freeze_record(value)
    except (ValueError, RecursionError, TypeError) as error:
        raise errors.CdiError(f"is not JSON that can be read ({error})") from error
    try:
        return cast("_Document", decoding.decode(record, [_Document], root="document", size_max=SIZE_MAX))
    except errors.ConfigError as error:
        raise errors.CdiError(str(error)) from error


def _edits(found: _ContainerEdits) -> edits.Edits:
    return edits.Edits(
        env=_env(found.env, "env"),
        device_nodes=found.device_nodes,
        mounts=tuple(
            edits.Mount(host_path=one.host_path, container_path=one.container_path, options=one.options, type=one.type)
            for one in found.mounts
        ),
        hooks=tuple(
            edits.Hook(name=one.hook_name, path=one.path, args=one.args, env=_env(one.env, "hooks.env"), timeout=one.timeout)
            for one in found.hooks
        ),
        net_devices=found.net_devices,
    )


def _env(variables: Sequence[str], field: str) -> dict[str, str]:
    pairs = [variable.partition("=") for variable in variables]
    found = {name: value for name, _, value in pairs}
    if len(found) < len(pairs) or not all(sign for _, sign, _ in pairs):
        raise errors.CdiError(f"{field}: must be NAME=value, each name once")
    return found


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
