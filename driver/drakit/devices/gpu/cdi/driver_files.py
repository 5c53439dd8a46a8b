"""The NVIDIA driver as it is installed on the node, and its user-space files for a container.

The driver root is the machine's root, or a folder where a container carries the driver. A file of the driver has three paths: as this process sees it
(below ``path``), as the host's container runtime sees it (below ``on_host``), and as the container sees it (below ``/``). ``run`` starts one of its
programs without a shell and without this process's environment, and limits its time and its output.

A container needs libraries, programs, firmware, and the hooks that let its linker find them. Where NVIDIA's container toolkit is installed below the
driver root, ``nvidia-ctk cdi generate`` lists them. It prints a CDI spec as JSON, of which drakit uses the edits common to all devices: variables,
mounts and hooks. Device nodes, NVIDIA_VISIBLE_DEVICES and the folder of an MPS daemon stay drakit's own; the toolkit would mount the host's MPS
folder over the claim's. The output is read strictly: an unknown field, a hook whose program is not in the driver root, and a mount that is not an
absolute path are errors.

Without the toolkit, drakit lists them itself: every ``lib*.so.<driver version>`` of the library folders, the driver's programs and the GPU's
firmware, each mounted read-only at its own path. With ``nvidia-cdi-hook`` the container's linker cache is updated and the usual links are created.
Without it each library is also mounted under the names of its links (``libcuda.so.1``). That suffices where the container's linker searches the same
folders; an image of another distribution has to set LD_LIBRARY_PATH.

The result is cached while it is complete and its folders are unchanged. A driver that is installed in part is an error that names the missing files.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.core import edits, errors, records

PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin", "opt/bin", "usr/local/nvidia/toolkit", "usr/local/nvidia/bin")
LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
)
_ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverRoot:
    """The folder below which the driver is installed; ``on_host`` is its path on the host, where that differs."""

    path: pathlib.Path = _ROOT
    on_host: pathlib.Path | None = None

    def program(self, name: str) -> pathlib.Path | None:
        """Return the path of a program of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in PROGRAM_FOLDERS)

    def library(self, name: str) -> pathlib.Path | None:
        """Return the path of a library of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in LIBRARY_FOLDERS)

    def first(self, places: Iterable[str]) -> pathlib.Path | None:
        """Return the first of these files that exists."""
        return next((file for place in places if (file := self.path / place).is_file()), None)

    def library_folders(self) -> Iterator[pathlib.Path]:
        """Return the existing library folders, each once: ``lib64`` is often a link to ``usr/lib64``."""
        seen: set[pathlib.Path] = set()
        for place in LIBRARY_FOLDERS:
            folder = self.path / place
            if folder.is_dir() and (real := folder.resolve()) not in seen:
                seen.add(real)
                yield folder

    def host(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver on the host."""
        return str((self.on_host or self.path) / file.relative_to(self.path))

    def inside(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver in a container."""
        return str(_ROOT / file.relative_to(self.path))


OUTPUT_MAX = 4 << 20
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MESSAGE_MAX = 300


class ProgramError(errors.HardwareError):
    """A program that failed, was too slow or printed too much; ``status`` is its exit status, None where it has none."""

    def __init__(self, program: str, message: str, *, status: int | None = None) -> None:
        super().__init__(program, message)
        self.status = status


def run(
    program: pathlib.Path,
    *arguments: str,
    seconds: float,
    env: Mapping[str, str] | None = None,
    words: str = "",
    before: Sequence[str] = (),
) -> str:
    """Run a program and return its output. ``words`` is its input, ``before`` a command line that starts it.

    Raises ProgramError; a program that is too slow is killed with all its children.
    """
    command = [*before, str(program), *arguments]
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _PATH, **(env or {})},
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(program.name, f"cannot run {program}: {error.strerror}") from error
    with running:
        try:
            output, error_output = running.communicate(words, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            _kill(running)
            raise ProgramError(program.name, f"did not end within {seconds:g} s") from error
    if running.returncode:
        raise ProgramError(program.name, f"failed with {running.returncode}: {_short(error_output or output)}", status=running.returncode)
    if len(output) > OUTPUT_MAX:
        raise ProgramError(program.name, f"printed over {OUTPUT_MAX} characters")
    return output


def _kill(running: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def _short(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_MAX]


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
    """The files of a driver root as edits; thread-safe. With ``use_toolkit``, nvidia-ctk lists them where it is installed."""

    def __init__(self, root: DriverRoot, *, use_toolkit: bool = True) -> None:
        self._root = root
        self._use_toolkit = use_toolkit
        self._lock = threading.Lock()
        self._known: tuple[_Signature, edits.Edits] | None = None

    def of(self, version: str) -> edits.Edits:
        """Return the edits of a driver version; raises RetryError while files are missing, HardwareError where nvidia-ctk fails."""
        with self._lock:
            signature = self._signature(version)
            if self._known is None or self._known[0] != signature:
                found = self._find(version)
                _check_complete(found, version, self._root)
                self._known = (signature, found)
            return self._known[1]

    def _find(self, version: str) -> edits.Edits:
        program = self._root.program(TOOLKIT) if self._use_toolkit else None
        return enumerate_files(self._root, version) if program is None else from_toolkit(self._root, program)

    def _signature(self, version: str) -> _Signature:
        """Return a value that changes when files do: the version, and the modification times of the folders and tools."""
        tools = (self._root.program(name) for name in (TOOLKIT, HOOK))
        firmware = (self._root.path / place / version for place in FIRMWARE_FOLDERS)
        places = [*self._root.library_folders(), *(self._root.path / folder for folder in PROGRAM_FOLDERS), *firmware]
        return (version, *((str(place), _changed(place)) for place in (*places, *tools) if place is not None))


def enumerate_files(root: DriverRoot, version: str) -> edits.Edits:
    """Return the files of a driver version below its root, as edits."""
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
    """Return the links to a library in its folder, direct or not: its soname and its link name."""
    stem = file.name.partition(".so.")[0]
    for link in sorted(file.parent.glob(f"{stem}.so*")):
        if link.is_symlink() and link.resolve() == file.resolve():
            yield link


def _firmware(root: DriverRoot, version: str) -> Iterator[pathlib.Path]:
    for place in FIRMWARE_FOLDERS:
        found = sorted((root.path / place / version).glob("gsp*.bin"))
        if found:
            yield from found
            return


def _mount(root: DriverRoot, file: pathlib.Path, container_path: str) -> edits.Mount:
    return edits.Mount(host_path=root.host(file), container_path=container_path)


def _hooks(root: DriverRoot, hook: pathlib.Path, libraries: Mapping[pathlib.Path, tuple[pathlib.Path, ...]]) -> Iterator[edits.Hook]:
    links = [f"{link.readlink()}::{root.inside(link)}" for found in libraries.values() for link in found]
    folders = list(dict.fromkeys(root.inside(file.parent) for file in libraries))
    for command, option, values in (("create-symlinks", "--link", links), ("update-ldcache", "--folder", folders)):
        if values:
            arguments = (part for value in values for part in (option, value))
            yield edits.Hook(name=edits.HookName.CREATE_CONTAINER, path=root.host(hook), args=(HOOK, command, *arguments))


def _check_complete(found: edits.Edits, version: str, root: DriverRoot) -> None:
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


def from_toolkit(root: DriverRoot, program: pathlib.Path) -> edits.Edits:
    """Return the toolkit's edits common to all GPUs; raises HardwareError where it fails or prints invalid output."""
    text = run(program, "cdi", "generate", "--format=json", "--mode=nvml", f"--driver-root={root.path}", seconds=_TOOLKIT_SECONDS)
    try:
        return read_toolkit_spec(json.loads(text), root)
    except (ValueError, TypeError) as error:
        raise errors.HardwareError(TOOLKIT, f"printed an invalid CDI spec: {error}") from error


def read_toolkit_spec(spec: records.Json, root: DriverRoot) -> edits.Edits:
    """Return the common edits of a CDI spec; raises ValueError or TypeError that name the field."""
    common = _object(_object(spec, "spec", _TOP).get("containerEdits"), "containerEdits", _EDITS)
    env = dict(_variable(text) for text in _texts(common.get("env"), "env"))
    mounts = (_toolkit_mount(_object(item, "mounts", _MOUNT), root) for item in _list(common.get("mounts"), "mounts"))
    return edits.Edits(
        env={name: value for name, value in env.items() if name not in _OWN},
        mounts=tuple(mount for mount in mounts if mount.container_path not in _OWN_PLACES),
        hooks=tuple(_toolkit_hook(_object(item, "hooks", _HOOK), root) for item in _list(common.get("hooks"), "hooks")),
    )


def _toolkit_mount(spec: _Object, root: DriverRoot) -> edits.Mount:
    host = pathlib.Path(_text(spec, "hostPath"))
    container = pathlib.PurePosixPath(_text(spec, "containerPath"))
    if not host.is_absolute() or not container.is_absolute() or ".." in (*host.parts, *container.parts):
        raise ValueError(f"mounts: {host} and {container} must be absolute paths")
    options = tuple(_texts(spec.get("options"), "options")) or _DEFAULT_OPTIONS
    path = root.host(host) if host.is_relative_to(root.path) else str(host)
    return edits.Mount(host_path=path, container_path=str(container), options=options, type=_text(spec, "type", required=False))


def _toolkit_hook(spec: _Object, root: DriverRoot) -> edits.Hook:
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


def _object(value: records.Json, field: str, known: frozenset[str]) -> _Object:
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} must be an object")
    if unknown := value.keys() - known:
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
