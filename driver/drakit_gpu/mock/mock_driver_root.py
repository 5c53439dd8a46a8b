"""The driver root of a mock machine.

It has empty files with the names and links that an installed driver has, so that the code that finds and mounts a
driver's files is the same as on a real one. Missing files are created one by one, so several processes may do so at once. Only the MPS control
program can be run (see ``mps_control``); it is rewritten where it differs from this version's.
"""

import contextlib
import os
import pathlib
import sys
import tempfile

from drakit import machines
from drakit_gpu import cdi, driver_root
from drakit_gpu.mock import mps_control
from drakit_gpu.sharing.mps import control_daemon

LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm")
_ROOT_FOLDER = "driver-root"
_LIBRARY_FOLDER = "usr/lib64"
_PROGRAM_FOLDER = "usr/bin"
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced")
_FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin")
_PROGRAM_MODE, _FILE_MODE = 0o755, 0o644


def create_driver_root(directory: pathlib.Path, version: str) -> driver_root.DriverRoot:
    """Return the driver root of a mock machine with this driver version; raises OSError where it cannot be created."""
    root = directory / _ROOT_FOLDER
    library_folder = root / _LIBRARY_FOLDER
    for name in LIBRARIES:
        _create_file(library_folder / f"{name}.so.{version}", _FILE_MODE)
        _create_link(library_folder / f"{name}.so.1", f"{name}.so.{version}")
    _create_link(library_folder / "libcuda.so", "libcuda.so.1")
    for name in _PROGRAMS:
        _create_file(root / _PROGRAM_FOLDER / name, _PROGRAM_MODE)
    _write_program(
        root / _PROGRAM_FOLDER / control_daemon.CONTROL, f"#!{sys.executable} -IS\n{pathlib.Path(mps_control.__file__).read_text('utf-8')}"
    )
    for name in _FIRMWARE:
        _create_file(root / cdi.FIRMWARE_FOLDERS[0] / version / name, _FILE_MODE)
    return driver_root.DriverRoot(path=root)


def _create_file(path: pathlib.Path, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))


def _write_program(path: pathlib.Path, text: str) -> None:
    with contextlib.suppress(OSError):
        if machines.read_bytes(path) == text.encode():
            return
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        os.fchmod(descriptor, _PROGRAM_MODE)
        stream.write(text)
    pathlib.Path(beside).replace(path)


def _create_link(path: pathlib.Path, target: str) -> None:
    with contextlib.suppress(FileExistsError):
        path.symlink_to(target)
