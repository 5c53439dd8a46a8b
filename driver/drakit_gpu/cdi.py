"""The CDI edits of a GPU or MIG device: device nodes, environment, and the user-space files of the NVIDIA driver.

Device nodes carry their numbers, so that a runtime can create them where the host has none. A MIG device needs its parent's node and two capability
nodes, for its GPU instance and its compute instance. CUDA does not see it without them.

A container needs libraries, programs, firmware, and the hooks that let its linker find them. Where NVIDIA's container toolkit is installed below the
driver root, ``nvidia-ctk cdi generate`` lists them. It prints a CDI spec as JSON, of which drakit uses the edits common to all devices: variables,
mounts and hooks. Device nodes, NVIDIA_VISIBLE_DEVICES and the folder of an MPS daemon stay drakit's own; the toolkit would mount the host's MPS
folder over the claim's. The output is read strictly: an unknown field, a hook whose program is not in the driver root, and a mount that is not an
absolute path are errors.

Without the toolkit, drakit lists them itself: every ``lib*.so.<driver version>`` of the library folders, the driver's programs and the GPU's
firmware, each mounted read-only. A library has the path of the host where a container's linker may search it, else one in the folder of Debian's
images. With ``nvidia-cdi-hook`` the container's linker cache is updated and the usual links are created. Without it each library is also mounted
under the names of its links (``libcuda.so.1``). That suffices where the container's linker searches the same folders; an image of another
distribution has to set LD_LIBRARY_PATH.

The result is cached while it is complete and its folders are unchanged. A driver that is installed in part is an error that names the missing files.
"""

import dataclasses
import json
import os
import pathlib
import threading
from collections.abc import Iterator, Mapping, Sequence

from drakit.core import edits, errors, records
from drakit_gpu import host, port, programs

_CHARACTER = "c"
_CONTROL_MINOR = 255
_MODESET_MINOR = 254
_READABLE = 0o444  # a capability is opened for reading; the kernel checks nothing else


def of_gpu(request: str, device: str, gpu: port.Gpu, majors: port.DeviceMajors) -> edits.Edits:
    """Return the edits of a whole GPU."""
    nodes = (
        _node(f"/dev/nvidia{gpu.minor}", majors.nvidia, gpu.minor),
        _node("/dev/nvidiactl", majors.nvidia, _CONTROL_MINOR),
        _node("/dev/nvidia-modeset", majors.nvidia, _MODESET_MINOR),
        _node("/dev/nvidia-uvm", majors.uvm, 0),
        _node("/dev/nvidia-uvm-tools", majors.uvm, 1),
    )
    # "void" keeps NVIDIA's legacy runtime hook from injecting devices of its own choice on top.
    return edits.Edits(env={"NVIDIA_VISIBLE_DEVICES": "void", variable(request, device): gpu.uuid}, device_nodes=nodes)


def of_mig(
    request: str, device: str, gpu: port.Gpu, mig_uuid: str, majors: port.DeviceMajors, minors: port.CapabilityMinors
) -> edits.Edits:
    """Return the edits of a MIG device; raises CallError where the kernel driver has no capabilities, which CUDA needs."""
    if majors.caps is None:
        raise port.CallError(
            port.CALLS["device_majors"], port.Code.NOT_SUPPORTED, "nvidia-caps is not in /proc/devices; MIG devices need it"
        )
    parent = of_gpu(request, device, gpu, majors)
    capabilities = (
        _node(f"/dev/nvidia-caps/nvidia-cap{minor}", majors.caps, minor, _READABLE)
        for minor in (minors.gpu_instance, minors.compute_instance)
    )
    return edits.Edits(env={**parent.env, variable(request, device): mig_uuid}, device_nodes=(*parent.device_nodes, *capabilities))


def merged(*parts: edits.Edits) -> edits.Edits:
    """Return several edits as one. If two variables have the same name, the later one wins."""
    return edits.Edits(
        env={name: value for part in parts for name, value in part.env.items()},
        device_nodes=tuple(node for part in parts for node in part.device_nodes),
        mounts=tuple(mount for part in parts for mount in part.mounts),
        hooks=tuple(hook for part in parts for hook in part.hooks),
    )


def variable(request: str, device: str) -> str:
    """Return the name of the variable with the device's UUID, for example ``GPU_DEVICE_TRAINER_GPU_0``.

    It has the request, which the workload knows, and the device, whose name is unique on the node. So two claims in one container never set the same
    variable.
    """
    return f"GPU_DEVICE_{request}_{device}".upper().replace("-", "_").replace("/", "_")


def _node(path: str, major: int, minor: int, mode: int | None = None) -> edits.DeviceNode:
    return edits.DeviceNode(path=path, type=_CHARACTER, major=major, minor=minor, file_mode=mode)


HOOK = "nvidia-cdi-hook"
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
FIRMWARE_FOLDERS = ("lib/firmware/nvidia", "usr/lib/firmware/nvidia")
_REQUIRED = ("libcuda.so", "libnvidia-ml.so")
_RETRY_SECONDS = 10.0
_CONTAINER_PROGRAMS = pathlib.PurePosixPath("/usr/bin")


class DriverFiles:
    """The files of a driver root as edits; thread-safe. With ``use_toolkit``, nvidia-ctk lists them where it is installed."""

    def __init__(self, root: host.DriverRoot, *, use_toolkit: bool = True) -> None:
        self._root = root
        self._use_toolkit = use_toolkit
        self._lock = threading.Lock()
        self._cached: tuple[str, Mapping[str, int], edits.Edits] | None = None

    def of(self, version: str) -> edits.Edits:
        """Return the edits of a driver version; raises RetryError while files are missing, HardwareError where nvidia-ctk fails."""
        with self._lock:
            cached = self._cached
            if cached is None or cached[0] != version or any(_changed(place) != changed for place, changed in cached[1].items()):
                before = {str(place): _changed(str(place)) for place in self._places(version)}
                program = self._root.program(TOOLKIT) if self._use_toolkit else None
                listed = enumerate_files(self._root, version) if program is None else from_toolkit(self._root, program)
                _check_complete(listed, version, self._root)
                self._cached = cached = version, before, listed
            return cached[2]

    def revision(self, version: str) -> str:
        """Return a text that changes when ``of`` may return other files; it costs a few calls of stat."""
        return repr((version, {str(place): _changed(str(place)) for place in self._places(version)}))

    def _places(self, version: str) -> Iterator[pathlib.Path]:
        """Return the places that change when the files do: folders, existing and possible, the tools and the firmware."""
        yield from self._root.places()
        yield from self._root.library_folders()
        yield from (tool for name in (TOOLKIT, HOOK) if (tool := self._root.program(name)) is not None)
        yield from (self._root.path / place / version for place in FIRMWARE_FOLDERS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Library:
    """A library: its real file, its path in a container, and the links beside it there: name and target."""

    file: pathlib.Path
    path: pathlib.PurePosixPath
    links: Mapping[str, str]


def enumerate_files(root: host.DriverRoot, version: str) -> edits.Edits:
    """Return the files of a driver version below its root, as edits."""
    libraries = _libraries(root, version)
    mounts = [_mount(root, library.file, str(library.path)) for library in libraries]
    hook = root.program(HOOK)
    if hook is None:
        mounts += [_mount(root, library.file, str(library.path.with_name(link))) for library in libraries for link in library.links]
    for name in PROGRAMS:
        program = root.program(name)
        if program is not None:
            mounts.append(_mount(root, program, str(_CONTAINER_PROGRAMS / name)))
    for place in FIRMWARE_FOLDERS:
        folder = root.resolve(root.path / place / version)
        images = [] if folder is None else sorted(folder.glob("gsp*.bin"))
        if images:
            mounts += [_mount(root, root.resolve(file) or file, f"/{place}/{version}/{file.name}") for file in images]
            break
    return edits.Edits(mounts=tuple(mounts), hooks=tuple(_hooks(root, hook, libraries)) if hook is not None else ())


def _libraries(root: host.DriverRoot, version: str) -> Sequence[_Library]:
    """Return the libraries of a driver version. A link counts only where its file is in none of the folders, as in NixOS."""
    folders = root.library_folders()
    libraries: dict[pathlib.PurePosixPath, _Library] = {}
    for folder, inside in folders.items():
        for entry in sorted(folder.glob(f"lib*.so.{version}")):
            file = root.resolve(entry)
            if file is not None and file.is_file() and (file == entry or file.parent not in folders):
                path = pathlib.PurePosixPath(inside, entry.name)
                libraries.setdefault(path, _Library(file=file, path=path, links=_links(root, entry, file)))
    return tuple(libraries.values())


def _links(root: host.DriverRoot, entry: pathlib.Path, file: pathlib.Path) -> Mapping[str, str]:
    """Return the links to a library in its folder, direct or not, with their targets: its soname and its link name."""
    stem = entry.name.partition(".so.")[0]
    links: dict[str, str] = {}
    for link in sorted(entry.parent.glob(f"{stem}.so*")):
        if link != entry and link.is_symlink() and root.resolve(link) == file:
            target = link.readlink()
            links[link.name] = entry.name if target.is_absolute() or len(target.parts) > 1 else target.name
    if f"{stem}.so" in _REQUIRED:
        # CUDA opens these by name, and before the first ldconfig nothing has that name.
        links.setdefault(f"{stem}.so.1", entry.name)
    return links


def _mount(root: host.DriverRoot, file: pathlib.Path, container_path: str) -> edits.Mount:
    return edits.Mount(host_path=root.host(file), container_path=container_path)


def _hooks(root: host.DriverRoot, hook: pathlib.Path, libraries: Sequence[_Library]) -> Iterator[edits.Hook]:
    links = [f"{target}::{library.path.with_name(link)}" for library in libraries for link, target in library.links.items()]
    folders = list(dict.fromkeys(str(library.path.parent) for library in libraries))
    for command, option, values in (("create-symlinks", "--link", links), ("update-ldcache", "--folder", folders)):
        if values:
            arguments = (part for value in values for part in (option, value))
            yield edits.Hook(name=edits.HookName.CREATE_CONTAINER, path=root.host(hook), args=(HOOK, command, *arguments))


def _check_complete(listed: edits.Edits, version: str, root: host.DriverRoot) -> None:
    names = {pathlib.PurePosixPath(mount.container_path).name for mount in listed.mounts}
    missing = [f"{name}.{version}" for name in _REQUIRED if f"{name}.{version}" not in names]
    if missing:
        raise errors.RetryError(
            f"the driver's files are incomplete: {', '.join(missing)} not found below {root.path}; is it still being installed? "
            f"If it is elsewhere, set gpu.library_folders; {root.searched()}",
            after=_RETRY_SECONDS,
        )


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns  # noqa: PTH116 - every prepare looks at all places, and a Path costs more than the call
    except OSError:
        return 0


TOOLKIT = "nvidia-ctk"
_TOOLKIT_SECONDS = 30.0
_TOP = frozenset({"cdiVersion", "kind", "devices", "containerEdits", "annotations"})
_EDITS = frozenset({"env", "deviceNodes", "mounts", "hooks", "additionalGids"})
_MOUNT = frozenset({"hostPath", "containerPath", "options", "type"})
_HOOK = frozenset({"hookName", "path", "args", "env", "timeout"})
_OWN = frozenset({"NVIDIA_VISIBLE_DEVICES"})
_OWN_PLACES = frozenset({"/tmp/nvidia-mps"})  # noqa: S108 - where a container finds an MPS daemon
_DEFAULT_OPTIONS = ("ro", "nosuid", "nodev", "bind")

_Object = Mapping[str, records.Json]


def from_toolkit(root: host.DriverRoot, program: pathlib.Path) -> edits.Edits:
    """Return the toolkit's edits common to all GPUs; raises HardwareError where it fails or prints invalid output."""
    text = programs.run_program(
        program, "cdi", "generate", "--format=json", "--mode=nvml", f"--driver-root={root.path}", seconds=_TOOLKIT_SECONDS
    )
    try:
        return read_toolkit_spec(json.loads(text), root)
    except (ValueError, TypeError) as error:
        raise errors.HardwareError(TOOLKIT, f"printed an invalid CDI spec: {error}") from error


def read_toolkit_spec(spec: records.Json, root: host.DriverRoot) -> edits.Edits:
    """Return the common edits of a CDI spec; raises ValueError or TypeError that name the field."""
    common = _object(_object(spec, "spec", _TOP).get("containerEdits"), "containerEdits", _EDITS)
    env = dict(_variable(text) for text in _texts(common.get("env"), "env"))
    mounts = (_toolkit_mount(_object(entry, "mounts", _MOUNT), root) for entry in _list(common.get("mounts"), "mounts"))
    return edits.Edits(
        env={name: value for name, value in env.items() if name not in _OWN},
        mounts=tuple(mount for mount in mounts if mount.container_path not in _OWN_PLACES),
        hooks=tuple(_toolkit_hook(_object(entry, "hooks", _HOOK), root) for entry in _list(common.get("hooks"), "hooks")),
    )


def _toolkit_mount(spec: _Object, root: host.DriverRoot) -> edits.Mount:
    host = pathlib.Path(_text(spec, "hostPath"))
    container = pathlib.PurePosixPath(_text(spec, "containerPath"))
    if not host.is_absolute() or not container.is_absolute() or ".." in (*host.parts, *container.parts):
        raise ValueError(f"mounts: {host} and {container} must be absolute paths")
    options = tuple(_texts(spec.get("options"), "options")) or _DEFAULT_OPTIONS
    path = root.host(host) if host.is_relative_to(root.path) else str(host)
    return edits.Mount(host_path=path, container_path=str(container), options=options, type=_text(spec, "type", required=False))


def _toolkit_hook(spec: _Object, root: host.DriverRoot) -> edits.Hook:
    """Return a hook with its program's path on the host; the toolkit prints the path as if the driver root were the host's root."""
    name = pathlib.Path(_text(spec, "path")).name
    program = root.program(name)
    if program is None:
        raise ValueError(f"hooks: {name} is not installed below {root.path}")
    timeout = spec.get("timeout")
    return edits.Hook(
        name=edits.HookName(_text(spec, "hookName")),
        path=root.host(program),
        args=tuple(_texts(spec.get("args"), "args")),
        env=dict(_variable(text) for text in _texts(spec.get("env"), "env")),
        timeout=timeout if isinstance(timeout, int) else None,
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"env: {text!r} is not NAME=value")
    return name, value


def _object(value: records.Json, field: str, fields: frozenset[str]) -> _Object:
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} must be an object")
    if unknown := value.keys() - fields:
        raise ValueError(f"{field} has the unknown field {min(unknown)}")
    return value


def _list(value: records.Json, field: str) -> Iterator[records.Json]:
    if value is not None and not isinstance(value, list):
        raise TypeError(f"{field} must be a list")
    yield from value or ()


def _texts(value: records.Json, field: str) -> Iterator[str]:
    for text in _list(value, field):
        if not isinstance(text, str):
            raise TypeError(f"{field} must hold texts")
        yield text


def _text(spec: _Object, field: str, *, required: bool = True) -> str:
    value = spec.get(field)
    if not isinstance(value, str | None) or (required and not value):
        raise TypeError(f"{field} must be a text")
    return value or ""
