"""A driver whose containers are told what their devices are: device metadata files for drivers that ask for them (``device_metadata``).

The wrapped driver's verbs do their work, and beside it keep the files; so the engine's promises (order, locks, what a crash leaves) hold for files
as for hardware, and the mount is remembered and restored with the other edits.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from drakit.core import advanced, claim_status, errors, inventory, names, ports, records
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.kubelet import metadata
from drakit.node import inventory_cache
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[Any]
WriteStatus = Callable[[claims.ClaimRef, claim_status.DeviceStatus], None]
FOLDER = "device-metadata"
REMEMBERED = 1024


class PodClaimNames:
    """A ``ports.ClaimSource`` that remembers by what names pods know the claims that were fetched last."""

    def __init__(self, source: ports.ClaimSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._names: dict[names.ClaimUid, str] = {}

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """The claim as it is now; raises as the source does."""
        claim = self._source.fetch(ref)
        with self._lock:
            self._names.pop(ref.uid, None)
            self._names[ref.uid] = claim.pod_claim_name
            if len(self._names) > REMEMBERED:
                del self._names[next(iter(self._names))]
        return claim

    def name(self, uid: names.ClaimUid) -> str | None:
        """The pod's name for a claim, empty for one that was not made for a pod; None where it is not remembered."""
        with self._lock:
            return self._names.get(uid)


class MetadataDriver(drivers.Driver[Any]):
    """Another driver with device metadata files beside its devices."""

    def __init__(self, author: inventory_cache.Author, files: metadata.MetadataFiles, named: PodClaimNames) -> None:
        self.name = author.name
        self.config_types = author.config_types  # type: ignore[misc] # a class attribute of every driver but this one
        self.drakit_author = author
        self._files = files
        self._named = named

    def prepare(self, grant: Grant) -> drivers.Prepared:
        return self._with_file(grant, self.drakit_author.prepare(grant))

    def prepare_claim(self, grants: Sequence[Grant]) -> Sequence[drivers.Prepared]:
        prepared = advanced.prepare_claim(self.drakit_author, grants)
        return [self._with_file(grant, made) for grant, made in zip(grants, prepared, strict=True)]

    def _with_file(self, grant: Grant, prepared: drivers.Prepared) -> drivers.Prepared:
        known = self._named.name(grant.claim.uid)
        name = self._files.pod_claim_name(grant.claim.uid, grant.request) if known is None else known
        subject = metadata.Subject(claim=grant.claim, request=grant.request, pod_claim_name=name)
        device = grant.device
        if prepared.metadata:
            device = dataclasses.replace(device, attributes={**device.attributes, **prepared.metadata})
        mount = self._files.add(subject, grant.pool, device)
        edits = dataclasses.replace(prepared.edits, mounts=(*prepared.edits.mounts, mount))
        return dataclasses.replace(prepared, edits=edits, metadata={})

    def unprepare(self, grant: Grant) -> None:
        self._files.remove(grant.claim.uid)
        self.drakit_author.unprepare(grant)

    def discover(self) -> inventory.Inventory:
        return self.drakit_author.discover()

    def plan(self, grant: Grant) -> records.Record:
        return self.drakit_author.plan(grant)

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        return self.drakit_author.planned(device)

    def recall(self, grant: Grant) -> records.Record:
        if not isinstance(self.drakit_author, advanced.IntentRecovery):
            return records.empty()
        if grant.found is None:
            return self.drakit_author.recall(grant)
        # The mount that was added here is none that the author gave.
        own = tuple(mount for mount in grant.found.mounts if not self._files.shows(mount))
        return self.drakit_author.recall(dataclasses.replace(grant, found=dataclasses.replace(grant.found, mounts=own)))

    def watch(self, context: contexts.DriverContext) -> None:
        self.drakit_author.watch(context)

    def start(self, context: contexts.DriverContext) -> None:
        self.drakit_author.start(context)

    def stop(self) -> None:
        self.drakit_author.stop()


def updating_metadata(files: metadata.MetadataFiles, pool: str, status: WriteStatus) -> WriteStatus:
    """A claim_engine of device status that also tells running containers the network facts in it."""

    def carry(claim: claims.ClaimRef, told: claim_status.DeviceStatus) -> None:
        status(claim, told)
        if told.network is not None:
            try:
                files.update(claim.uid, told.pool or pool, told.device, told.network)
            except errors.DrakitError as error:
                _log.warning("containers are not told of their network", claim=str(claim), claim_uid=claim.uid, error=str(error))

    return carry


def with_metadata(
    author: inventory_cache.Author, source: ports.ClaimSource, home: pathlib.Path
) -> tuple[inventory_cache.Author, ports.ClaimSource, metadata.MetadataFiles | None]:
    """The driver and the source of its claims, and where the driver asks for device metadata both with it, and the files."""
    if not author.device_metadata:
        return author, source, None
    files, named = metadata.MetadataFiles(home / FOLDER, author.name, synced=not author.volatile), PodClaimNames(source)
    return MetadataDriver(author, files, named), named, files
