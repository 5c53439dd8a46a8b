"""Device metadata files (KEP-5304), which describe its devices to the programs in a container.

There is one file for each request of a claim, ``<folder>/<claim UID>/<request>/metadata.json``, mounted read-only at the path of KEP-5304. It
holds the facts once in each version of the format, newest first.

Invariants:

- A file is complete and on disk when ``add`` returns; a repeated call writes nothing.
- ``update`` writes into the existing file, because running containers have it mounted and would never see a new file.
- A claim's name is part of no path on the host; its request is checked to be a DNS label.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping

from drakit.core import claim, claim_status, edits, errors, names, records
from drakit.core import device as devices

GROUP = "metadata.resource.k8s.io"
VERSIONS = ("v1beta1", "v1alpha1")
KIND = "DeviceMetadata"
CONTAINER_FOLDER = pathlib.PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")
_FOLDER_MODE = 0o755
_FILE_MODE = 0o644

_Facts = dict[str, records.Json]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """The claim and request of a file, and the pod's name for the claim (empty unless it was made from a template)."""

    claim: claim.ClaimRef
    request: str
    pod_claim_name: str = ""

    def __post_init__(self) -> None:
        for part in self.request.split("/"):
            names.check_label(part, "request")

    @property
    def base_request(self) -> str:
        """The request without its sub-request."""
        return self.request.partition("/")[0]


class MetadataFiles:
    """The files of one driver on one node, in a folder of their own. Safe between threads; calls for one claim must not overlap between processes.

    ``synced=False`` writes without fsync: for volatile drivers, whose claims are prepared again after a power cut.
    """

    def __init__(self, folder: pathlib.Path, driver: str, *, synced: bool = True) -> None:
        self._folder = folder
        self._driver = driver
        self._synced = synced
        self._lock = threading.Lock()

    def add(self, subject: Subject, pool: str, device: devices.Device) -> edits.Mount:
        """Add a device to the request's file and return the mount that shows it to a container. Raises CdiError."""
        path = self._path(subject.claim.uid, subject.base_request)
        with self._lock, _refused(path):
            facts = self._read(path) or _new(subject)
            request = _request(facts)
            device_facts = self._device_facts(pool, device)
            entries = {_key(entry): entry for entry in _objects(request.get("devices"))}
            before = entries.get(_key(device_facts), {})
            entries[_key(device_facts)] = {**device_facts, **{key: value for key, value in before.items() if key == "networkData"}}
            request["devices"] = list(entries.values())
            _replace(path, _encode(facts), synced=self._synced)
        return edits.Mount(host_path=str(path), container_path=str(self._container_path(subject)), options=("ro", "bind"))

    def shows(self, mount: edits.Mount) -> bool:
        """Whether ``add`` returned this mount."""
        return pathlib.PurePath(mount.host_path).is_relative_to(self._folder)

    def update(self, uid: names.ClaimUid, pool: str, device: str, network: claim_status.NetworkStatus) -> bool:
        """Write a device's network facts for running containers; return whether a file of the claim has the device. Raises CdiError."""
        folder = self._path(uid, "request").parent.parent
        with self._lock, _refused(folder):
            written = [self._update(path, (pool, device), _network(network)) for path in sorted(folder.glob("*/metadata.json"))]
        return any(written)

    def pod_claim_name(self, uid: names.ClaimUid, request: str) -> str:
        """Return the pod's name for the claim from the request's file; empty without one."""
        path = self._path(uid, request.partition("/")[0])
        with self._lock, _refused(path):
            return str((self._read(path) or {}).get("podClaimName", ""))

    def remove(self, uid: names.ClaimUid) -> None:
        """Remove all files of a claim; nothing to remove is success. Raises CdiError."""
        folder = self._path(uid, "request").parent.parent
        with self._lock, _refused(folder), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
            if self._synced:
                _sync(self._folder)

    def _update(self, path: pathlib.Path, key: tuple[str, str], network: records.Json) -> bool:
        facts = self._read(path) or {}
        entry = next((candidate for candidate in _objects(_request(facts).get("devices")) if _key(candidate) == key), None)
        if entry is None:
            return False
        if entry.get("networkData") != network:
            entry["networkData"] = network
            metadata = _object(facts["metadata"])
            metadata["generation"] = int(str(metadata.get("generation", 1))) + 1
            _overwrite(path, _encode(facts))
        return True

    def _path(self, uid: names.ClaimUid, base_request: str) -> pathlib.Path:
        if not names.is_uid(uid):
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, f"{uid!r} is not a UUID", field="claim.uid")
        return self._folder / uid / names.check_label(base_request, "request") / "metadata.json"

    def _container_path(self, subject: Subject) -> pathlib.PurePosixPath:
        """``resourceclaims/<claim>/...`` for a claim that the pod names, ``resourceclaimtemplates/<pod's name>/...`` for one made for it."""
        kind, name = (
            ("resourceclaimtemplates", subject.pod_claim_name) if subject.pod_claim_name else ("resourceclaims", subject.claim.name)
        )
        return CONTAINER_FOLDER / kind / name / subject.base_request / f"{self._driver}-metadata.json"

    def _device_facts(self, pool: str, device: devices.Device) -> _Facts:
        attributes: records.Json = {name: _attribute(device.attributes[name]) for name in sorted(device.attributes)}
        return {"driver": self._driver, "pool": pool, "name": device.name, **({"attributes": attributes} if attributes else {})}

    def _read(self, path: pathlib.Path) -> _Facts | None:
        """Return the facts of a file; None if it is missing or unreadable, in which case it is written again."""
        try:
            decoded, _ = json.JSONDecoder().raw_decode(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            return None
        if not isinstance(decoded, dict) or not isinstance(decoded.get("metadata"), dict) or not _objects(decoded.get("requests")):
            return None
        decoded.pop("apiVersion", None)
        return decoded


def _new(subject: Subject) -> _Facts:
    ref = subject.claim
    named: _Facts = {"podClaimName": subject.pod_claim_name} if subject.pod_claim_name else {}
    return {
        "kind": KIND,
        "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid, "generation": 1},
        **named,
        "requests": [{"name": subject.request, "devices": []}],
    }


def _encode(facts: Mapping[str, records.Json]) -> bytes:
    """Encode the facts in every version of the format, one JSON object after the other."""
    return "".join(json.dumps({"apiVersion": f"{GROUP}/{version}", **facts}, indent=2) + "\n" for version in VERSIONS).encode()


def _attribute(value: devices.AttributeValue) -> records.Json:
    if isinstance(value, tuple):
        return {f"{_kind(value[0])}s": [_plain(element) for element in value]}
    return {_kind(value): _plain(value)}


def _kind(value: devices.Scalar) -> str:
    return {bool: "bool", int: "int", devices.Version: "version"}.get(type(value), "string")


def _plain(value: devices.Scalar) -> str | int | bool:
    return value.text if isinstance(value, devices.Version) else value


def _network(network: claim_status.NetworkStatus) -> records.Json:
    facts: dict[str, records.Json] = {
        "interfaceName": network.interface,
        "ips": list(network.addresses),
        "hardwareAddress": network.hardware_address,
    }
    return {key: value for key, value in facts.items() if value}


def _key(facts: Mapping[str, records.Json]) -> tuple[str, str]:
    return str(facts.get("pool")), str(facts.get("name"))


def _request(facts: _Facts) -> _Facts:
    """The one request that a file is about."""
    return next(iter(_objects(facts.get("requests"))), {})


def _objects(value: records.Json) -> list[_Facts]:
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def _object(value: records.Json) -> _Facts:
    return value if isinstance(value, dict) else {}


def _replace(path: pathlib.Path, content: bytes, *, synced: bool) -> None:
    """Replace a file atomically; a file with this content already is kept, because containers may have it mounted."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _FILE_MODE)
            if synced:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent) if synced else ():
        _sync(folder)


def _overwrite(path: pathlib.Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _refused(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.CdiError(f"{path}: {error.strerror or error}") from error
