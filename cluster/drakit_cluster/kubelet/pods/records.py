"""The kubelet's record of a claim on its node, and the checkpoint file.

The file has a real kubelet's form: ``{"Data": text, "Checksum": CRC-32 of the text}``. It does not say whether a claim is
prepared: a restarted kubelet must not trust devices from before a reboot.
"""

import json
import os
import pathlib
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from drakit_cluster.api.storage.store import Key
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


class CheckpointError(Exception):
    """An unreadable checkpoint, with which the kubelet does not start."""


@dataclass(frozen=True, kw_only=True)
class PreparedDevice:
    """One device of a driver's answer. Empty ``requests`` mean every request of the claim; ``share_id`` is None if it was not set."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(kw_only=True)
class ClaimRecord:
    """One claim in use. ``drivers`` holds every driver of the allocation. A driver that returned no devices is included, because its
    claim is unprepared too, unless it is one of those that are not called then (``not_unprepared``, KEP-5945).

    ``prepared`` and ``unpreparing`` are not saved.
    """

    key: Key
    uid: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    not_unprepared: frozenset[str] = frozenset()
    prepared: bool = False
    unpreparing: bool = False

    def devices(self, request: str) -> list[tuple[str, PreparedDevice]]:
        """Return the drivers and devices for ``request`` of the claim, or for the whole claim if it is empty."""
        return [
            (driver, device)
            for driver, devices in self.drivers.items()
            for device in devices
            if not request or not device.requests or request in device.requests
        ]


class Checkpoint:
    """The checkpoint file. Writes are atomic and synced to disk."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def save(self, records: Iterable[ClaimRecord]) -> None:
        """Replace the content. Raises OSError if the write fails; the old content then remains."""
        states = [_encode(record) for record in records]
        data = json.dumps({"kind": KIND, "apiVersion": API_VERSION, "ClaimInfoStateList": states})
        content = json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())})
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        temporary = pathlib.Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def load(self) -> list[ClaimRecord]:
        """Return the saved records, none if there is no file; raise CheckpointError for a damaged one."""
        try:
            content = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        try:
            outer: Json = json.loads(content)
            data = json_types.text(outer, "Data")
            if zlib.crc32(data.encode()) != json_types.number(outer, "Checksum"):
                raise CheckpointError(f"{self._path}: wrong checksum: drain the node and remove the file")
            inner: Json = json.loads(data)
        except ValueError as error:
            raise CheckpointError(f"{self._path}: not readable: drain the node and remove the file") from error
        return [_decode(state) for state in json_types.objects(inner, "ClaimInfoStateList")]


def _encode(record: ClaimRecord) -> Object:
    drivers: Object = {driver: {"Devices": [_encode_device(device) for device in devices]} for driver, devices in record.drivers.items()}
    return {
        "ClaimUID": record.uid,
        "ClaimName": record.key.name,
        "Namespace": record.key.namespace,
        "PodUIDs": json_types.from_strings(sorted(record.pods)),
        "DriverState": drivers,
        "DriversNotUnprepared": json_types.from_strings(sorted(record.not_unprepared)),
    }


def _encode_device(device: PreparedDevice) -> Object:
    return {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "ShareID": device.share_id,
        "RequestNames": json_types.from_strings(device.requests),
        "CDIDeviceIDs": json_types.from_strings(device.cdi_ids),
    }


def _decode(state: Object) -> ClaimRecord:
    drivers = json_types.mapping(state, "DriverState")
    return ClaimRecord(
        key=Key(json_types.text(state, "Namespace"), json_types.text(state, "ClaimName")),
        uid=json_types.text(state, "ClaimUID"),
        pods=set(json_types.strings(state, "PodUIDs")),
        not_unprepared=frozenset(json_types.strings(state, "DriversNotUnprepared")),
        drivers={driver: tuple(map(_decode_device, json_types.objects(drivers, driver, "Devices"))) for driver in drivers},
    )


def _decode_device(device: Object) -> PreparedDevice:
    return PreparedDevice(
        requests=tuple(json_types.strings(device, "RequestNames")),
        pool=json_types.text(device, "PoolName"),
        device=json_types.text(device, "DeviceName"),
        cdi_ids=tuple(json_types.strings(device, "CDIDeviceIDs")),
        share_id=json_types.text(device, "ShareID") or None,
    )
