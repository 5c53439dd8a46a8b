"""CDI spec files: validation, and the resolution of device names. Source: the CDI specification 1.1.0, and tests of containerd 2.4.

A directory later in the list takes precedence over an earlier one. A device that two files of one directory define is unresolvable, and so
is a device of an invalid file. The files are read when a device is requested, and cached until they change.
"""

import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drakit.inputs import documents
from drakit.telemetry import logs
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.runtime.edits import DeviceNode, Edits, SpecError, check, edits_of

_log = logs.get_logger(__name__)

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_SUFFIXES = (".json", ".yaml")


class UnresolvableError(Exception):
    """Names that no valid file defines. A runtime reports any fault of a CDI file with this error."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A valid file. ``edits`` apply to every container that gets one of its devices."""

    path: pathlib.Path
    kind: str
    edits: Edits
    devices: dict[str, Edits]


def parse(path: pathlib.Path, content: bytes) -> Spec:
    """Return the spec in a file; raise SpecError."""
    try:
        document = json_types.parse(content) if path.suffix == ".json" else documents.load(content.decode())
    except (ValueError, RecursionError) as error:
        raise SpecError(f"cannot be parsed: {error}") from error
    root = check(document)
    kind = json_types.text(root, "kind")
    vendor, slash, name = kind.partition("/")
    if not (slash and _VENDOR.fullmatch(vendor) and _CLASS.fullmatch(name)):
        raise SpecError(f"spec.kind: must be vendor/class, not {kind!r}")
    spec = Spec(path=path, kind=kind, edits=edits_of(root.get("containerEdits")), devices=_devices(root))
    version, needed = json_types.text(root, "cdiVersion").removeprefix("v"), _least_version(root, spec)
    if version not in VERSIONS:
        raise SpecError(f"spec.cdiVersion: {version} is not known; known are {', '.join(VERSIONS)}")
    if VERSIONS.index(version) < VERSIONS.index(needed):
        raise SpecError(f"spec.cdiVersion: what the file uses needs {needed}, not {version}")
    return spec


def _devices(root: Object) -> dict[str, Edits]:
    devices = {json_types.text(device, "name"): edits_of(device.get("containerEdits")) for device in json_types.objects(root, "devices")}
    for index, (name, edits) in enumerate(devices.items()):
        if not _DEVICE.fullmatch(name):
            raise SpecError(f"spec.devices[{index}].name: {name!r} is not a valid device name")
        if edits.is_empty:
            raise SpecError(f"spec.devices[{index}].containerEdits: empty device edits")
    if not devices:
        raise SpecError("spec.devices: no devices")
    return devices


def _least_version(root: Object, spec: Spec) -> str:
    """Return the lowest version that has every feature the file uses."""
    edits = [spec.edits, *spec.devices.values()]
    annotated = "annotations" in root or any("annotations" in device for device in json_types.objects(root, "devices"))
    if any(edit.net_devices for edit in edits):
        return "1.1.0"
    if any(edit.additional_gids or edit.rdt for edit in edits):
        return "0.7.0"
    if annotated or "." in spec.kind.partition("/")[2]:
        return "0.6.0"
    if any(not name[0].isalpha() for name in spec.devices) or any(node.host_path for edit in edits for node in edit.device_nodes):
        return "0.5.0"
    return "0.4.0" if any(mount.type for edit in edits for mount in edit.mounts) else "0.3.0"


_Stamp = tuple[int, int, int]


class SpecCache:
    """The spec files of some directories. Not thread-safe."""

    def __init__(self, directories: Sequence[pathlib.Path]) -> None:
        self._directories = tuple(directories)
        self._cache: dict[pathlib.Path, tuple[_Stamp, Spec | SpecError]] = {}

    def edits(self, names: Sequence[str]) -> list[Edits]:
        """Return the edits of qualified names ``vendor/class=device``, each file's own before those of its first device.

        Raises UnresolvableError with all names that are not defined.
        """
        resolved = self._resolve()
        if missing := [name for name in names if name not in resolved]:
            raise UnresolvableError(f"unresolvable CDI devices {', '.join(missing)}")
        edits: list[Edits] = []
        applied: set[pathlib.Path] = set()
        for name in names:
            spec = resolved[name]
            if spec.path not in applied:
                applied.add(spec.path)
                edits.append(spec.edits)
            edits.append(spec.devices[name.partition("=")[2]])
        return edits

    def defined(self) -> frozenset[str]:
        """Return the qualified names of all devices that can be resolved."""
        return frozenset(self._resolve())

    def problems(self) -> dict[pathlib.Path, str]:
        """Return why files are ignored."""
        self._resolve()
        return {path: str(parsed) for path, (_, parsed) in self._cache.items() if isinstance(parsed, SpecError)}

    def _resolve(self) -> dict[str, Spec]:
        present: set[pathlib.Path] = set()
        resolved: dict[str, Spec] = {}
        for directory in self._directories:
            in_directory: dict[str, Spec] = {}
            conflicts: set[str] = set()
            for path in _spec_files(directory):
                present.add(path)
                spec = self._spec(path)
                for name in spec.devices if spec else ():
                    qualified = f"{spec.kind}={name}" if spec else ""
                    conflicts |= {qualified} & in_directory.keys()
                    if spec:
                        in_directory[qualified] = spec
            for name in conflicts:
                _log.warning("CDI device defined twice", device=name, path=str(directory))
            resolved = {name: spec for name, spec in (resolved | in_directory).items() if name not in conflicts}
        for path in self._cache.keys() - present:
            del self._cache[path]
        return resolved

    def _spec(self, path: pathlib.Path) -> Spec | None:
        try:
            state = path.stat()
            stamp = (state.st_ino, state.st_mtime_ns, state.st_size)
            cached = self._cache.get(path)
            if cached is None or cached[0] != stamp:
                cached = (stamp, _try_parse(path))
                self._cache[path] = cached
        except OSError as error:
            _log.warning("CDI file not readable", path=str(path), error=str(error))
            return None
        return cached[1] if isinstance(cached[1], Spec) else None


def _try_parse(path: pathlib.Path) -> Spec | SpecError:
    try:
        return parse(path, path.read_bytes())
    except SpecError as error:
        _log.warning("CDI file ignored", path=str(path), error=str(error))
        return error


def _spec_files(directory: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    except FileNotFoundError:
        return []


def merge(edits: Sequence[Edits]) -> Edits:
    """Return all edits as one, as a runtime applies them: a later variable, device node or mount replaces one of the same name or path."""
    env: dict[str, str] = {}
    nodes: dict[str, DeviceNode] = {}
    for edit in edits:
        env |= {value.partition("=")[0]: value for value in edit.env}
        nodes |= {node.path: node for node in edit.device_nodes}
    mounts = {mount.container_path: mount for edit in edits for mount in edit.mounts}
    return Edits(
        env=tuple(env.values()),
        device_nodes=tuple(nodes.values()),
        mounts=tuple(mounts[path] for path in sorted(mounts)),
        hooks=tuple(hook for edit in edits for hook in edit.hooks),
        net_devices=any(edit.net_devices for edit in edits),
        additional_gids=tuple(dict.fromkeys(gid for edit in edits for gid in edit.additional_gids if gid)),
        rdt=any(edit.rdt for edit in edits),
    )
