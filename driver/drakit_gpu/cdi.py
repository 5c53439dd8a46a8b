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
import os
import pathlib
import threading
from collections.abc import Iterator, Mapping, Sequence

import drakit
from drakit_gpu import driver_root, nvml_errors, port, toolkit

_CHARACTER = "c"
_CONTROL_MINOR = 255
_MODESET_MINOR = 254
_READABLE = 0o444  # a capability is opened for reading; the kernel checks nothing else


def of_gpu(request: str, device: str, gpu: port.Gpu, majors: port.DeviceMajors) -> drakit.Edits:
    """Return the edits of a whole GPU."""
    nodes = (
        _node(f"/dev/nvidia{gpu.minor}", majors.nvidia, gpu.minor),
        _node("/dev/nvidiactl", majors.nvidia, _CONTROL_MINOR),
        _node("/dev/nvidia-modeset", majors.nvidia, _MODESET_MINOR),
        _node("/dev/nvidia-uvm", majors.uvm, 0),
        _node("/dev/nvidia-uvm-tools", majors.uvm, 1),
    )
    # "void" keeps NVIDIA's legacy runtime hook from injecting devices of its own choice on top.
    return drakit.Edits(env={"NVIDIA_VISIBLE_DEVICES": "void", variable(request, device): gpu.uuid}, device_nodes=nodes)


def of_mig(
    request: str, device: str, gpu: port.Gpu, mig_uuid: str, majors: port.DeviceMajors, minors: port.CapabilityMinors
) -> drakit.Edits:
    """Return the edits of a MIG device; raises CallError where the kernel driver has no capabilities, which CUDA needs."""
    if majors.caps is None:
        raise nvml_errors.CallError(
            nvml_errors.CALLS["device_majors"], nvml_errors.Code.NOT_SUPPORTED, "nvidia-caps is not in /proc/devices; MIG devices need it"
        )
    parent = of_gpu(request, device, gpu, majors)
    capabilities = (
        _node(f"/dev/nvidia-caps/nvidia-cap{minor}", majors.caps, minor, _READABLE)
        for minor in (minors.gpu_instance, minors.compute_instance)
    )
    return drakit.Edits(env={**parent.env, variable(request, device): mig_uuid}, device_nodes=(*parent.device_nodes, *capabilities))


def merged(*parts: drakit.Edits) -> drakit.Edits:
    """Return several edits as one. If two variables have the same name, the later one wins."""
    return drakit.Edits(
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


def _node(path: str, major: int, minor: int, mode: int | None = None) -> drakit.DeviceNode:
    return drakit.DeviceNode(path=path, type=_CHARACTER, major=major, minor=minor, file_mode=mode)


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

    def __init__(self, root: driver_root.DriverRoot, *, use_toolkit: bool = True) -> None:
        self._root = root
        self._use_toolkit = use_toolkit
        self._lock = threading.Lock()
        self._cached: tuple[str, Mapping[str, int], drakit.Edits] | None = None

    def of(self, version: str) -> drakit.Edits:
        """Return the edits of a driver version; raises RetryError while files are missing, HardwareError where nvidia-ctk fails."""
        with self._lock:
            cached = self._cached
            if cached is None or cached[0] != version or any(_changed(place) != changed for place, changed in cached[1].items()):
                before = {str(place): _changed(str(place)) for place in self._places(version)}
                program = self._root.program(toolkit.TOOLKIT) if self._use_toolkit else None
                listed = enumerate_files(self._root, version) if program is None else toolkit.from_toolkit(self._root, program)
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
        yield from (tool for name in (toolkit.TOOLKIT, HOOK) if (tool := self._root.program(name)) is not None)
        yield from (self._root.path / place / version for place in FIRMWARE_FOLDERS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Library:
    """A library: its real file, its path in a container, and the links beside it there: name and target."""

    file: pathlib.Path
    path: pathlib.PurePosixPath
    links: Mapping[str, str]


def enumerate_files(root: driver_root.DriverRoot, version: str) -> drakit.Edits:
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
    return drakit.Edits(mounts=tuple(mounts), hooks=tuple(_hooks(root, hook, libraries)) if hook is not None else ())


def _libraries(root: driver_root.DriverRoot, version: str) -> Sequence[_Library]:
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


def _links(root: driver_root.DriverRoot, entry: pathlib.Path, file: pathlib.Path) -> Mapping[str, str]:
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


def _mount(root: driver_root.DriverRoot, file: pathlib.Path, container_path: str) -> drakit.Mount:
    return drakit.Mount(host_path=root.host(file), container_path=container_path)


def _hooks(root: driver_root.DriverRoot, hook: pathlib.Path, libraries: Sequence[_Library]) -> Iterator[drakit.Hook]:
    links = [f"{target}::{library.path.with_name(link)}" for library in libraries for link, target in library.links.items()]
    folders = list(dict.fromkeys(str(library.path.parent) for library in libraries))
    for command, option, values in (("create-symlinks", "--link", links), ("update-ldcache", "--folder", folders)):
        if values:
            arguments = (part for value in values for part in (option, value))
            yield drakit.Hook(name=drakit.HookName.CREATE_CONTAINER, path=root.host(hook), args=(HOOK, command, *arguments))


def _check_complete(listed: drakit.Edits, version: str, root: driver_root.DriverRoot) -> None:
    names = {pathlib.PurePosixPath(mount.container_path).name for mount in listed.mounts}
    missing = [f"{name}.{version}" for name in _REQUIRED if f"{name}.{version}" not in names]
    if missing:
        raise drakit.RetryError(
            f"the driver's files are incomplete: {', '.join(missing)} not found below {root.path}; is it still being installed? "
            f"If it is elsewhere, set gpu.library_folders; {root.searched()}",
            after=_RETRY_SECONDS,
        )


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns  # noqa: PTH116 - every prepare looks at all places, and a Path costs more than the call
    except OSError:
        return 0
