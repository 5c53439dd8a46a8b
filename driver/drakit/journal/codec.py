"""lifecycle.Entry as rows of the tables of ``schema``, and back.

What can be searched is a column; everything else is a JSON column of our own form. Rules that keep a file readable by the previous version:
columns and keys are only added, an added one has a default, and a key's meaning never changes. Unknown keys are passed over when read, and moves
after ``begin`` rewrite only ``record`` and ``edits``, so that what a newer version wrote into the other columns stays. Values pass the checks of
``core`` when they are read, so a check there may be tightened only as far as no released version has written what it would refuse.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import edits, lifecycle, names, quantity, records
from drakit.journal import device_codec, fields

Choice = TypeVar("Choice", lifecycle.State, claims.ConfigSource)
_REMEMBERED = 512
_REMEMBERED_INTENTS = 4096  # one of each claim, where devices are shared by many


class ClaimRow(NamedTuple):
    """Columns of ``claims`` but its row number."""

    uid: str
    namespace: str
    name: str
    state: str
    boot_id: str


class GrantRow(NamedTuple):
    """Columns of ``grants`` but its claim; ``share_id`` is empty for an exclusive grant, JSON columns are None where the value is."""

    position: int
    request: str
    pool: str
    device: str
    share_id: str
    admin_access: int
    snapshot: str
    consumed: str
    parameters: str | None
    config_source: str | None
    intent: str
    record: str
    edits: str | None


class DoneRow(NamedTuple):
    """What ``complete`` stores of a grant, and the columns by which its row is found."""

    request: str
    pool: str
    device: str
    share_id: str
    record: str
    edits: str | None


def claim_row(entry: lifecycle.Entry) -> ClaimRow:
    """The row of ``claims``."""
    ref = entry.claim
    return ClaimRow(uid=ref.uid, namespace=ref.namespace, name=ref.name, state=entry.state.value, boot_id=entry.boot_id)


def grant_row(position: int, grant: lifecycle.GrantEntry) -> GrantRow:
    """The row of ``grants``; raises ValueError for a record, intent or parameters with NaN or an infinity."""
    return GrantRow(
        position=position,
        request=grant.request,
        pool=grant.pool,
        device=grant.device.name,
        share_id=grant.share_id or "",
        admin_access=int(grant.admin_access),
        snapshot=_SNAPSHOTS.text(grant.device),
        consumed=fields.dump(device_codec.encode_amounts(grant.consumed_capacity)),
        parameters=None if grant.parameters is None else _record(grant.parameters),
        config_source=None if grant.config_source is None else grant.config_source.value,
        intent=_record(grant.intent),
        record=_record(grant.record),
        edits=_edits(grant.edits),
    )


def done_row(grant: lifecycle.GrantEntry) -> DoneRow:
    """What is stored of a grant once it is prepared; raises ValueError for a record with NaN or an infinity."""
    request, pool, device, share_id = grant.key
    return DoneRow(request=request, pool=pool, device=device, share_id=share_id, record=_record(grant.record), edits=_edits(grant.edits))


def entry(claim: ClaimRow, grants: Sequence[GrantRow]) -> lifecycle.Entry:
    """The entry of a claim's rows; raises UnreadableError, whose message names the claim and the field."""
    path = f"claim {claim.uid}"
    return lifecycle.Entry(
        claim=claims.ClaimRef(uid=names.ClaimUid(claim.uid), namespace=claim.namespace, name=claim.name),
        state=state(claim.state, path),
        grants=tuple(_grant(row, f"{path}: grants[{row.position}]") for row in grants),
        boot_id=claim.boot_id,
    )


def holding(claim: ClaimRow, row: GrantRow) -> lifecycle.Holding:
    """What a claim holds; raises UnreadableError."""
    path = f"claim {claim.uid}"
    in_grant = f"{path}: grants[{row.position}]"
    return lifecycle.Holding(
        claim=claims.ClaimRef(uid=names.ClaimUid(claim.uid), namespace=claim.namespace, name=claim.name),
        state=state(claim.state, path),
        device=_device(row, in_grant),
        share_id=_share_id(row),
        admin_access=bool(row.admin_access),
        consumed_capacity=_consumed(row, in_grant),
    )


def intent(uid: str, position: int, text: str) -> records.Record:
    """The intent of a grant; raises UnreadableError."""
    try:
        return _intent(text)
    except fields.UnreadableError as error:
        raise fields.UnreadableError(f"claim {uid}: grants[{position}].{error}") from error


@functools.lru_cache(maxsize=_REMEMBERED_INTENTS)
def _intent(text: str) -> records.Record:
    """What an intent's text says; the same texts are asked for again and again while their claims live."""
    return fields.record(text, "intent")


def state(text: str, path: str) -> lifecycle.State:
    """The state that a column holds; raises UnreadableError."""
    return _choice(lifecycle.State, text, f"{path}: state")


def _grant(row: GrantRow, path: str) -> lifecycle.GrantEntry:
    return lifecycle.GrantEntry(
        request=row.request,
        pool=row.pool,
        device=_device(row, path),
        share_id=_share_id(row),
        consumed_capacity=_consumed(row, path),
        admin_access=bool(row.admin_access),
        parameters=None if row.parameters is None else fields.record(row.parameters, f"{path}.parameters"),
        config_source=None if row.config_source is None else _choice(claims.ConfigSource, row.config_source, f"{path}.config_source"),
        intent=fields.record(row.intent, f"{path}.intent"),
        record=fields.record(row.record, f"{path}.record"),
        edits=None if row.edits is None else decode_edits(fields.Fields.parse(row.edits, f"{path}.edits")),
    )


def _device(row: GrantRow, path: str) -> devices.Device:
    try:
        device = _snapshot(row.snapshot)
    except fields.UnreadableError as error:
        raise fields.UnreadableError(f"{path}.{error}") from error
    if device.name != row.device:
        raise fields.UnreadableError(f"{path}.device: {row.device!r} is not the snapshot's {device.name!r}")
    return device


@functools.lru_cache(maxsize=_REMEMBERED)
def _snapshot(text: str) -> devices.Device:
    """The device that a text describes; a journal holds the same few devices again and again."""
    return device_codec.decode(fields.Fields.parse(text, "snapshot"))


class _Snapshots:
    """The texts of devices written lately, known by identity: devices are frozen, and what an inventory offers is granted again and again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[devices.Device, str]] = {}

    def text(self, item: devices.Device) -> str:
        """The JSON text of a device."""
        known = self._known.get(id(item))
        if known is not None:
            return known[1]
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        text = fields.dump(device_codec.encode(item))
        # The device is kept beside its text, so that no other can get its identity.
        self._known[id(item)] = (item, text)
        return text


_SNAPSHOTS = _Snapshots()


def _share_id(row: GrantRow) -> names.ShareId | None:
    return names.ShareId(row.share_id) if row.share_id else None


def _consumed(row: GrantRow, path: str) -> dict[str, quantity.Quantity]:
    return device_codec.decode_amounts(fields.Fields.parse(row.consumed, f"{path}.consumed"))


def _edits(content: edits.Edits | None) -> str | None:
    return None if content is None else fields.dump(encode_edits(content))


def _record(value: records.Record) -> str:
    return fields.dump(records.thaw(value))


def _choice(kind: type[Choice], text: str, path: str) -> Choice:
    try:
        return kind(text)
    except ValueError as error:
        raise fields.UnreadableError(f"{path}: {error}") from error


def encode_edits(content: edits.Edits) -> dict[str, object]:
    """All edits as a JSON object."""
    return fields.compact(
        env=dict(content.env),
        deviceNodes=[_node(node) for node in content.device_nodes],
        mounts=[_mount(mount) for mount in content.mounts],
        hooks=[_hook(hook) for hook in content.hooks],
        netDevices=[{"hostInterfaceName": link.host_interface_name, "name": link.name} for link in content.net_devices],
    )


def decode_edits(source: fields.Fields) -> edits.Edits:
    """The edits of a JSON object; raises UnreadableError."""
    return edits.Edits(
        env=source.text_map("env"),
        device_nodes=tuple(_decode_node(node) for node in source.children("deviceNodes")),
        mounts=tuple(_decode_mount(mount) for mount in source.children("mounts")),
        hooks=tuple(_decode_hook(hook) for hook in source.children("hooks")),
        net_devices=tuple(
            edits.NetDevice(host_interface_name=link.text("hostInterfaceName"), name=link.text("name"))
            for link in source.children("netDevices")
        ),
    )


def _node(node: edits.DeviceNode) -> dict[str, object]:
    return fields.compact(
        path=node.path,
        hostPath=node.host_path,
        type=node.type,
        major=node.major,
        minor=node.minor,
        fileMode=node.file_mode,
        permissions=node.permissions,
    )


def _decode_node(source: fields.Fields) -> edits.DeviceNode:
    return edits.DeviceNode(
        path=source.text("path"),
        host_path=source.text("hostPath"),
        type=source.text("type"),
        major=source.whole("major"),
        minor=source.whole("minor"),
        file_mode=source.whole("fileMode"),
        permissions=source.text("permissions"),
    )


def _mount(mount: edits.Mount) -> dict[str, object]:
    return fields.compact(hostPath=mount.host_path, containerPath=mount.container_path, options=list(mount.options), type=mount.type)


def _decode_mount(source: fields.Fields) -> edits.Mount:
    return edits.Mount(
        host_path=source.text("hostPath"),
        container_path=source.text("containerPath"),
        options=source.texts("options"),
        type=source.text("type"),
    )


def _hook(hook: edits.Hook) -> dict[str, object]:
    return fields.compact(hookName=hook.name.value, path=hook.path, args=list(hook.args), env=dict(hook.env), timeout=hook.timeout)


def _decode_hook(source: fields.Fields) -> edits.Hook:
    try:
        name = edits.HookName(source.text("hookName"))
    except ValueError as error:
        raise fields.UnreadableError(f"{source.path}.hookName: {error}") from error
    return edits.Hook(
        name=name, path=source.text("path"), args=source.texts("args"), env=source.text_map("env"), timeout=source.whole("timeout")
    )
