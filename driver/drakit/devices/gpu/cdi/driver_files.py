"""The driver's user-space files in a container: libraries, programs, firmware, and the hooks that make them findable.

Where NVIDIA's container toolkit is installed below the driver root, it says what is needed (``toolkit``). Else the files are found here: every
``lib*.so.<driver version>`` of the library folders, the driver's programs and the GPU's firmware, each mounted read-only at the path it has. With
``nvidia-cdi-hook`` the container's linker cache is updated and the usual links are made. Without it each library is mounted under its links'
names too (``libcuda.so.1``), which is all that a linker needs that searches the same folders; in an image of another distribution, whose linker
does not search them, LD_LIBRARY_PATH has to be set by the image.

What is found is kept only while it is complete and its folders are unchanged. A driver that is half installed is an error that names what is missing.
"""

import pathlib
import threading
from collections.abc import Iterator, Mapping

from drakit.core import edits, errors
from drakit.devices.gpu.cdi import driver_root, toolkit

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

_Signature = tuple[object, ...]


class DriverFiles:
    """The files of a driver root as edits; safe between threads. ``use_toolkit`` lets nvidia-ctk say what they are."""

    def __init__(self, root: driver_root.DriverRoot, *, use_toolkit: bool = True) -> None:
        self._root = root
        self._use_toolkit = use_toolkit
        self._lock = threading.Lock()
        self._known: tuple[_Signature, edits.Edits] | None = None

    def of(self, version: str) -> edits.Edits:
        """What a container needs of a driver version; raises RetryError for one that is not completely there, HardwareError from nvidia-ctk."""
        with self._lock:
            signature = self._signature(version)
            if self._known is None or self._known[0] != signature:
                found = self._find(version)
                _check_complete(found, version, self._root)
                self._known = (signature, found)
            return self._known[1]

    def _find(self, version: str) -> edits.Edits:
        program = self._root.program(toolkit.PROGRAM) if self._use_toolkit else None
        return enumerate_files(self._root, version) if program is None else toolkit.generate(self._root, program)

    def _signature(self, version: str) -> _Signature:
        """What changes when files come or go: the version, and the moments at which the folders and the tools changed."""
        tools = (self._root.program(name) for name in (toolkit.PROGRAM, HOOK))
        firmware = (self._root.path / place / version for place in FIRMWARE_FOLDERS)
        places = [*self._root.library_folders(), *(self._root.path / folder for folder in driver_root.PROGRAM_FOLDERS), *firmware]
        return (version, *((str(place), _changed(place)) for place in (*places, *tools) if place is not None))


def enumerate_files(root: driver_root.DriverRoot, version: str) -> edits.Edits:
    """The files of a driver version below its root, as edits."""
    libraries = {file: tuple(_links(file)) for folder in root.library_folders() for file in _libraries(folder, version)}
    mounts = [_mount(root, file, root.inside(file)) for file in libraries]
    hook = root.program(HOOK)
    if hook is None:
        mounts += [_mount(root, file, root.inside(link)) for file, links in libraries.items() for link in links]
    for name in PROGRAMS:
        program = root.program(name)
        if program is not None:
            mounts.append(_mount(root, program, str(_CONTAINER_PROGRAMS / name)))
    mounts += [_mount(root, file, root.inside(file)) for file in _firmware(root, version)]
    return edits.Edits(mounts=tuple(mounts), hooks=tuple(_hooks(root, hook, libraries)) if hook is not None else ())


def _libraries(folder: pathlib.Path, version: str) -> Iterator[pathlib.Path]:
    found = (file for file in folder.glob(f"lib*.so.{version}") if file.is_file() and not file.is_symlink())
    yield from sorted(found)


def _links(file: pathlib.Path) -> Iterator[pathlib.Path]:
    """The links beside a library that lead to it, directly or over another: its soname, and the name that is linked against."""
    stem = file.name.partition(".so.")[0]
    for link in sorted(file.parent.glob(f"{stem}.so*")):
        if link.is_symlink() and link.resolve() == file.resolve():
            yield link


def _firmware(root: driver_root.DriverRoot, version: str) -> Iterator[pathlib.Path]:
    for place in FIRMWARE_FOLDERS:
        found = sorted((root.path / place / version).glob("gsp*.bin"))
        if found:
            yield from found
            return


def _mount(root: driver_root.DriverRoot, file: pathlib.Path, container_path: str) -> edits.Mount:
    return edits.Mount(host_path=root.host(file), container_path=container_path)


def _hooks(
    root: driver_root.DriverRoot, hook: pathlib.Path, libraries: Mapping[pathlib.Path, tuple[pathlib.Path, ...]]
) -> Iterator[edits.Hook]:
    links = [f"{link.readlink()}::{root.inside(link)}" for found in libraries.values() for link in found]
    folders = list(dict.fromkeys(root.inside(file.parent) for file in libraries))
    for command, option, values in (("create-symlinks", "--link", links), ("update-ldcache", "--folder", folders)):
        if values:
            arguments = (part for value in values for part in (option, value))
            yield edits.Hook(name=edits.HookName.CREATE_CONTAINER, path=root.host(hook), args=(HOOK, command, *arguments))


def _check_complete(found: edits.Edits, version: str, root: driver_root.DriverRoot) -> None:
    names = {pathlib.PurePosixPath(mount.container_path).name for mount in found.mounts}
    missing = [f"{name}.{version}" for name in _REQUIRED if f"{name}.{version}" not in names]
    if missing:
        raise errors.RetryError(
            f"the driver's files are incomplete: {', '.join(missing)} not found below {root.path}; is it still being installed?",
            after=_RETRY_SECONDS,
        )


def _changed(place: pathlib.Path) -> int:
    try:
        return place.stat().st_mtime_ns
    except OSError:
        return 0
