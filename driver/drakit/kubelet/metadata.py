"""Write device metadata files (KEP-5304), which describe its devices to the programs in a container.

There is one file for each request of a claim, ``<folder>/<claim UID>/<request>/metadata.json``, mounted read-only at the path of KEP-5304. It has the
metadata in each version of the format, newest first.

Invariants:

- A file appears complete; a repeated call writes nothing. Files are not synced: a power cut starts another boot, in which every claim is prepared
  again, and a damaged file is written again.
- ``update`` writes into the existing file, because running containers have it mounted and would never see a new file.
- No host path contains a claim's name; its request is checked to be a DNS label.
"""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from drakit.core import claim, claim_status, edits, errors, lifecycle, names, records
from drakit.core import device as devices
from drakit.core.encoding import device_json

GROUP = "metadata.resource.k8s.io"
VERSIONS = ("v1beta1", "v1alpha1")
KIND = "DeviceMetadata"
CONTAINER_FOLDER = pathlib.PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")
_FOLDER_MODE = 0o755
_FILE_MODE = 0o644

_Json = dict[str, Any]


class MetadataFiles:
    """The ``ports.DeviceMetadata`` of one driver on one node: its files, in a folder of their own.

    Thread-safe; calls for one claim must not overlap between processes.
    """

    def __init__(self, folder: pathlib.Path, driver: str) -> None:
        self._folder = folder
        self._driver = driver
        self._lock = threading.Lock()

    def add(
        self, ref: claim.ClaimRef, pod_claim_name: str, grant: lifecycle.GrantEntry, more: Mapping[str, devices.AttributeValue]
    ) -> edits.Mount:
        """Add a device to the request's file, and return the mount of the file for a container. Raises CdiError.

        ``pod_claim_name`` is the pod's name for the claim, empty unless the claim was made from a template. ``more`` are attributes that extend and
        override those of the device.
        """
        base_request, *_ = (names.check_label(part, "request") for part in grant.request.split("/"))
        path = self._claim_folder(ref.uid) / base_request / "metadata.json"
        with self._lock, _as_cdi_errors(path):
            document = _read(path) or _new_document(ref, pod_claim_name, grant.request)
            entry: _Json = {"driver": self._driver, "pool": grant.pool, "name": grant.device.name}
            if attributes := {**grant.device.attributes, **more}:
                entry["attributes"] = {name: device_json.ATTRIBUTE.encode(attributes[name]) for name in sorted(attributes)}
            entries = {(existing["pool"], existing["name"]): existing for existing in document["requests"][0]["devices"]}
            before = entries.get((grant.pool, grant.device.name), {})
            entries[grant.pool, grant.device.name] = {**entry, **{key: value for key, value in before.items() if key == "networkData"}}
            document["requests"][0]["devices"] = list(entries.values())
            _replace(path, _encode(document))
        kind, name = ("resourceclaimtemplates", pod_claim_name) if pod_claim_name else ("resourceclaims", ref.name)
        container_path = CONTAINER_FOLDER / kind / name / base_request / f"{self._driver}-metadata.json"
        return edits.Mount(host_path=str(path), container_path=str(container_path), options=("ro", "bind"))

    def shows(self, mount: edits.Mount) -> bool:
        """Return whether ``add`` returned this mount."""
        return pathlib.PurePath(mount.host_path).is_relative_to(self._folder)

    def update(self, uid: names.ClaimUid, device: str, network: claim_status.NetworkStatus) -> bool:
        """Write a device's network data for running containers, and return whether a file of the claim has the device. Raises CdiError."""
        folder = self._claim_folder(uid)
        with self._lock, _as_cdi_errors(folder):
            written = [_update(path, device, _network(network)) for path in sorted(folder.glob("*/metadata.json"))]
        return any(written)

    def remove(self, uid: names.ClaimUid) -> None:
        """Remove all files of a claim, if there are any. Raises CdiError."""
        folder = self._claim_folder(uid)
        with self._lock, _as_cdi_errors(folder), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def make_folder(self) -> None:
        """Create the folder, so that other programs of the node can watch it before the first claim. If that fails, ``add`` says why."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    def sweep(self, known: Collection[names.ClaimUid]) -> None:
        """Remove the files of all other claims, which a power cut may have brought back. A folder that cannot be removed stays."""
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _claim_folder(self, uid: names.ClaimUid) -> pathlib.Path:
        if not names.is_uid(uid):
            raise errors.ClaimError(errors.ClaimFault.MALFORMED, f"{uid!r} is not a UUID", field="claim.uid")
        return self._folder / uid


def _read(path: pathlib.Path) -> _Json | None:
    """Return the document of a file; None if it is missing or not as ``add`` writes it, so that it is written again."""
    try:
        decoded, _ = json.JSONDecoder().raw_decode(path.read_text("utf-8"))
        del decoded["apiVersion"]
        # What is read of it later.
        {decoded["metadata"]["generation"] + 1, *((entry["pool"], entry["name"]) for entry in decoded["requests"][0]["devices"])}
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None
    document: _Json = decoded
    return document


def _update(path: pathlib.Path, device: str, network: Mapping[str, records.Json]) -> bool:
    document = _read(path)
    entries = document["requests"][0]["devices"] if document is not None else ()
    entry = next((candidate for candidate in entries if candidate["name"] == device), None)
    if document is None or entry is None:
        return False
    if entry.get("networkData") != network:
        entry["networkData"] = network
        document["metadata"]["generation"] += 1
        _overwrite(path, _encode(document))
    return True


def _new_document(ref: claim.ClaimRef, pod_claim_name: str, request: str) -> _Json:
    return {
        "kind": KIND,
        "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid, "generation": 1},
        **({"podClaimName": pod_claim_name} if pod_claim_name else {}),
        "requests": [{"name": request, "devices": []}],
    }


def _encode(document: _Json) -> bytes:
    """Return the document in every version of the format, one JSON object a line."""
    # No indentation, because with it the standard library's encoder runs in Python.
    return "".join(json.dumps({"apiVersion": f"{GROUP}/{version}", **document}) + "\n" for version in VERSIONS).encode()


def _network(network: claim_status.NetworkStatus) -> Mapping[str, records.Json]:
    fields: dict[str, records.Json] = {
        "interfaceName": network.interface,
        "ips": list(network.addresses),
        "hardwareAddress": network.hardware_address,
    }
    return {key: value for key, value in fields.items() if value}


def _replace(path: pathlib.Path, content: bytes) -> None:
    """Replace a file atomically; a file with equal content is kept, because containers may have it mounted."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        before = path.read_bytes()
        # An earlier release wrote the same objects with indentation.
        if before == content or _objects(before.decode()) == _objects(content.decode()):
            return
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _FILE_MODE)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _objects(text: str) -> list[object]:
    """Return the JSON objects of a file, in any layout. Raises ValueError for other text."""
    objects, decoder = list[object](), json.JSONDecoder()
    while text := text.lstrip():
        decoded, end = decoder.raw_decode(text)
        objects.append(decoded)
        text = text[end:]
    return objects


def _overwrite(path: pathlib.Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


@contextlib.contextmanager
def _as_cdi_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.CdiError(f"{path}: {error.strerror or error}") from error
