"""Encode lifecycle.Entry as rows of the tables of ``sqlite``, and decode them.

Searched values are columns. Everything else is in JSON columns (``core.encoding.wire``), with the field names of the API and of CDI. These rules keep
a file readable by the previous version: columns and keys are only added, an added one has a default, and a key's meaning never changes. Unknown keys
are ignored on reading. Moves after ``begin`` rewrite only ``record`` and ``edits``, so values that a newer version wrote in other columns stay.
Values pass the checks of ``core`` when they are read, so a check there must keep accepting every value that a released version wrote.

An amount is stored as canonical text where that is exact, else as the integer count of nanos: canonical text would round ``1.0000001Ki``, and
storing a share must not change its amount.
"""

import datetime
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import edits, errors, lifecycle, names, quantity, records
from drakit.core.encoding import device_json, json_errors, wire
from drakit.core.slices import node_selection

Choice = TypeVar("Choice", lifecycle.State, claims.ConfigSource)


class UnreadableError(Exception):
    """Stored text that this version cannot decode; the message names the field."""


def _decode_amount(value: object) -> quantity.Quantity:
    if isinstance(value, int) and not isinstance(value, bool):
        return quantity.Quantity(value)
    if isinstance(value, str):
        return quantity.Quantity.parse(value)
    raise json_errors.wrong("an amount", value)


def _encode_amount(value: quantity.Quantity) -> str | int:
    return str(value) if abs(value.nanos) <= quantity.MAX_NANOS else value.nanos


def _decode_time(value: object) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(str(value))
    except ValueError as error:
        raise errors.ConfigError(str(error)) from error


_DEVICE_CACHE_SIZE = 512
_AMOUNTS_CACHE_SIZE = 512
_INTENT_CACHE_SIZE = 4096  # Shared devices have one intent for each claim.
# The mappings of records are read-only, which the encoder does not know.
_COMPACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=dict)
FORMAT = wire.Format(
    ignore_unknown=True,
    converters={
        quantity.Quantity: wire.Converter(_decode_amount, _encode_amount),
        datetime.datetime: wire.Converter(_decode_time, datetime.datetime.isoformat),
        pathlib.Path: wire.Converter(lambda value: pathlib.Path(wire.TEXT.decode(value)), str),
        devices.AttributeValue: device_json.ATTRIBUTE,
        node_selection.DeviceNodes | None: wire.Converter(node_selection.of_device, node_selection.to_record),
    },
    fields={
        **device_json.FIELDS,
        (edits.Mount, "options"): wire.Field(absent=()),
        (edits.Hook, "name"): wire.Field(name="hookName"),
    },
)
AMOUNTS = FORMAT.converter(Mapping[str, quantity.Quantity])
_DEVICE = FORMAT.converter(devices.Device)
_EDITS = FORMAT.converter(edits.Edits)


def dump(value: object) -> str:
    """Return compact ASCII JSON. Raises ValueError for NaN and infinities, which JSON cannot express."""
    return _COMPACT.encode(value)


def read(converter: wire.Converter, text: str, path: str) -> Any:
    """Return the decoded JSON text. Raises UnreadableError, whose message begins with the path of the field."""
    try:
        return wire.decode(converter, records.parse_strict(text), path)
    except errors.ConfigError as error:
        raise UnreadableError(str(error)) from error
    except ValueError as error:
        raise UnreadableError(f"{path}: not JSON ({error})") from error


def record(text: str, path: str) -> records.Record:
    """Return the decoded text as a frozen JSON object. Raises UnreadableError."""
    try:
        value = records.parse_strict(text)
    except ValueError as error:
        raise UnreadableError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UnreadableError(str(json_errors.wrong("an object", value).with_prefix(path)))
    return records.freeze_record(value)


class ClaimRow(NamedTuple):
    """The columns of ``claims`` except its row number."""

    uid: str
    namespace: str
    name: str
    state: str
    boot_id: str


class GrantRow(NamedTuple):
    """The columns of ``grants`` except its claim. ``share_id`` is empty for an exclusive grant; a JSON column is None if the value is None.

    ``pool`` is the node's own pool for all devices of a node. Their names are unique, and the snapshot has the suffix of the pool's name.
    """

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


class PreparedRow(NamedTuple):
    """The columns that ``complete`` writes for a grant, and the columns that identify its row."""

    request: str
    pool: str
    device: str
    share_id: str
    record: str
    edits: str | None


def claim_row(entry: lifecycle.Entry) -> ClaimRow:
    """Return the row of ``claims`` for an entry."""
    ref = entry.claim
    return ClaimRow(uid=ref.uid, namespace=ref.namespace, name=ref.name, state=entry.state.value, boot_id=entry.boot_id)


def grant_row(position: int, grant: lifecycle.GrantEntry) -> GrantRow:
    """Return the row of ``grants`` for a grant. Raises ValueError for a record, intent or parameters with NaN or an infinity."""
    return GrantRow(
        position=position,
        request=grant.request,
        pool=grant.device.node_pool(grant.pool),
        device=grant.device.name,
        share_id=grant.share_id or "",
        admin_access=int(grant.admin_access),
        snapshot=_SNAPSHOTS.text(grant.device),
        consumed=dump(AMOUNTS.encode(grant.consumed_capacity)),
        parameters=None if grant.parameters is None else dump(grant.parameters),
        config_source=None if grant.config_source is None else grant.config_source.value,
        intent=dump(grant.intent),
        record=dump(grant.record),
        edits=None if grant.edits is None else dump(_EDITS.encode(grant.edits)),
    )


def prepared_row(grant: lifecycle.GrantEntry) -> PreparedRow:
    """Return the stored values of a prepared grant. Raises ValueError for a record with NaN or an infinity."""
    content = None if grant.edits is None else dump(_EDITS.encode(grant.edits))
    return PreparedRow(*grant.key, record=dump(grant.record), edits=content)


def entry(claim: ClaimRow, grants: Sequence[GrantRow]) -> lifecycle.Entry:
    """Return the entry of a claim's rows. Raises UnreadableError, whose message names the claim and the field."""
    path = f"claim {claim.uid}"
    return lifecycle.Entry(
        claim=claims.ClaimRef(uid=names.ClaimUid(claim.uid), namespace=claim.namespace, name=claim.name),
        state=choice(lifecycle.State, claim.state, f"{path}: state"),
        grants=tuple(_grant(row, f"{path}: grants[{row.position}]") for row in grants),
        boot_id=claim.boot_id,
    )


def holding(claim: ClaimRow, row: GrantRow) -> lifecycle.Holding:
    """Return the device that a claim holds by one grant. Raises UnreadableError."""
    path = f"claim {claim.uid}"
    in_grant = f"{path}: grants[{row.position}]"
    return lifecycle.Holding(
        claim=claims.ClaimRef(uid=names.ClaimUid(claim.uid), namespace=claim.namespace, name=claim.name),
        state=choice(lifecycle.State, claim.state, f"{path}: state"),
        device=_device(row.device, row.snapshot, in_grant),
        share_id=_share_id(row),
        admin_access=bool(row.admin_access),
        consumed_capacity=_consumed(row, in_grant),
    )


def held_device(uid: str, namespace: str, name: str, position: int, pool: str, device: str, snapshot: str) -> lifecycle.HeldDevice:
    """Return the device of a grant, its pool and its claim. Raises UnreadableError."""
    held = _device(device, snapshot, f"claim {uid}: grants[{position}]")
    return held, held.pool_on(pool), claims.ClaimRef(uid=names.ClaimUid(uid), namespace=namespace, name=name)


def intent(uid: str, position: int, text: str) -> records.Record:
    """Return the intent of a grant. Raises UnreadableError."""
    try:
        return _intent(text)
    except UnreadableError as error:
        raise UnreadableError(f"claim {uid}: grants[{position}].{error}") from error


@functools.lru_cache(maxsize=_INTENT_CACHE_SIZE)
def _intent(text: str) -> records.Record:
    """Return the decoded intent, cached because it is read repeatedly while its claim exists."""
    return record(text, "intent")


def _grant(row: GrantRow, path: str) -> lifecycle.GrantEntry:
    device = _device(row.device, row.snapshot, path)
    return lifecycle.GrantEntry(
        request=row.request,
        pool=device.pool_on(row.pool),
        device=device,
        share_id=_share_id(row),
        consumed_capacity=_consumed(row, path),
        admin_access=bool(row.admin_access),
        parameters=None if row.parameters is None else record(row.parameters, f"{path}.parameters"),
        config_source=None if row.config_source is None else choice(claims.ConfigSource, row.config_source, f"{path}.config_source"),
        intent=record(row.intent, f"{path}.intent"),
        record=record(row.record, f"{path}.record"),
        edits=None if row.edits is None else read(_EDITS, row.edits, f"{path}.edits"),
    )


def _device(name: str, snapshot: str, path: str) -> devices.Device:
    try:
        device = _snapshot(snapshot)
    except UnreadableError as error:
        raise UnreadableError(f"{path}.{error}") from error
    if device.name != name:
        raise UnreadableError(f"{path}.device: {name!r} is not the snapshot's {device.name!r}")
    return device


@functools.lru_cache(maxsize=_DEVICE_CACHE_SIZE)
def _snapshot(text: str) -> devices.Device:
    """Return the decoded device, cached because a journal has the same few devices in many grants."""
    device: devices.Device = read(_DEVICE, text, "snapshot")
    return device


class _SnapshotCache:
    """A cache of encoded devices by identity: devices are frozen, and the same objects of an inventory are granted repeatedly."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[devices.Device, str]] = {}

    def text(self, device: devices.Device) -> str:
        cached = self._by_id.get(id(device))
        if cached is not None:
            return cached[1]
        if len(self._by_id) >= _DEVICE_CACHE_SIZE:
            self._by_id.clear()
        text = dump(_DEVICE.encode(device))
        # The cache keeps the device alive, so that no other object can get its id.
        self._by_id[id(device)] = (device, text)
        return text


_SNAPSHOTS = _SnapshotCache()


def _share_id(row: GrantRow) -> names.ShareId | None:
    return names.ShareId(row.share_id) if row.share_id else None


def _consumed(row: GrantRow, path: str) -> Mapping[str, quantity.Quantity]:
    try:
        return _amounts(row.consumed)
    except UnreadableError as error:
        raise UnreadableError(f"{path}.{error}") from error


@functools.lru_cache(maxsize=_AMOUNTS_CACHE_SIZE)
def _amounts(text: str) -> Mapping[str, quantity.Quantity]:
    """Return the decoded amounts, cached because most shares of a device are equal."""
    amounts: Mapping[str, quantity.Quantity] = read(AMOUNTS, text, "consumed")
    return amounts


def choice(kind: type[Choice], text: str, path: str) -> Choice:
    """Return the member of an enum by a column's text. Raises UnreadableError."""
    try:
        return kind(text)
    except ValueError as error:
        raise UnreadableError(f"{path}: {error}") from error
