"""Find and load libnvidia-ml.so.1, also one that is installed or upgraded while this process runs.

A library is loaded by the real path of its file, which contains the driver's version. So after an upgrade the new library is loaded beside the old
one; by the path of its link the dynamic loader would return the old one. The old library stays mapped, because a thread may still run in it.
"""

import ctypes
import pathlib

from drakit_gpu import driver_root, nvml_errors

NAME = "libnvidia-ml.so.1"


def load(path: pathlib.Path | None, root: driver_root.DriverRoot) -> object:
    """Return the library at this path (None: the one below the driver root, or what the dynamic loader finds).

    Raises CallError (LIBRARY_NOT_FOUND), which names the folders that were searched.
    """
    file = path or root.library(NAME)
    try:
        return ctypes.CDLL(NAME if file is None else str(file.resolve()))
    except OSError as error:
        if file is None:
            fix = f"install the NVIDIA driver, or set gpu.driver_root, gpu.library_folders or gpu.library; {root.searched()}"
        else:
            fix = f"cannot load {file}: {error}; gpu.library and gpu.driver_root must lead to the driver's {NAME}"
        raise nvml_errors.CallError(nvml_errors.CALLS["session_error"], nvml_errors.Code.LIBRARY_NOT_FOUND, fix) from error
