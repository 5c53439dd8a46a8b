"""The driver root of a mock machine: empty files with the names and links that an installed driver has.

So the code that finds and mounts a driver's files is the same on a mock machine. The root is in the machine's directory. Files are created one by one
where missing, so several processes may create it at once. Only the MPS control program can be run (see ``mps_control``); it is rewritten where it
differs from this version's.
"""

import contextlib
import os
import pathlib
import sys
import tempfile

from drakit.devices.gpu.cdi import driver_files
from drakit.devices.gpu.mock import mps_control
from drakit.devices.gpu.sharing.mps import child_daemons

LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm")
_FOLDER = "driver-root"
_LIBRARIES_IN = "usr/lib64"
_PROGRAMS_IN = "usr/bin"
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced")
_FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin")
_PROGRAM_MODE, _FILE_MODE = 0o755, 0o644


def create(directory: pathlib.Path, version: str) -> driver_files.DriverRoot:
    """Return the driver root of a mock machine with this driver version; raises OSError where it cannot be made."""
    root = directory / _FOLDER
    libraries_in = root / _LIBRARIES_IN
    for name in LIBRARIES:
        _file(libraries_in / f"{name}.so.{version}", _FILE_MODE)
        _link(libraries_in / f"{name}.so.1", f"{name}.so.{version}")
    _link(libraries_in / "libcuda.so", "libcuda.so.1")
    for name in _PROGRAMS:
        _file(root / _PROGRAMS_IN / name, _PROGRAM_MODE)
    _program(
        root / _PROGRAMS_IN / child_daemons.CONTROL, f"#!{sys.executable} -IS\n{pathlib.Path(mps_control.__file__).read_text('utf-8')}"
    )
    for name in _FIRMWARE:
        _file(root / driver_files.FIRMWARE_FOLDERS[0] / version / name, _FILE_MODE)
    return driver_files.DriverRoot(path=root)


def _file(path: pathlib.Path, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))


def _program(path: pathlib.Path, text: str) -> None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text("utf-8") == text:
            return
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        os.fchmod(descriptor, _PROGRAM_MODE)
        stream.write(text)
    pathlib.Path(beside).replace(path)


def _link(path: pathlib.Path, target: str) -> None:
    with contextlib.suppress(FileExistsError):
        path.symlink_to(target)
