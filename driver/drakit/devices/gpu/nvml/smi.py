"""What only nvidia-smi can do: NVML's interface has no call to change the time slice of a GPU.

``nvidia-smi compute-policy -i <UUID> --set-timeslice <0..3>``, run from the driver root with the NVML library of that root loaded first, because
another one may not fit the kernel driver.
"""

from collections.abc import Mapping

from drakit.devices.gpu import port
from drakit.devices.gpu.cdi import driver_root, programs

_SECONDS = 15.0
_CALL = "set_time_slice"
_NUMBERS: Mapping[port.TimeSlice, str] = {
    port.TimeSlice.DEFAULT: "0",
    port.TimeSlice.SHORT: "1",
    port.TimeSlice.MEDIUM: "2",
    port.TimeSlice.LONG: "3",
}


class Smi:
    """nvidia-smi of a driver root."""

    def __init__(self, root: driver_root.DriverRoot) -> None:
        self._root = root

    def set_time_slice(self, gpu: port.GpuUuid, interval: port.TimeSlice) -> None:
        """Change the time slice of a GPU; raises CallError, NOT_SUPPORTED where nvidia-smi is missing or says so."""
        program = self._root.program("nvidia-smi")
        if program is None:
            raise port.CallError(port.CALLS[_CALL], port.Code.NOT_SUPPORTED, f"no nvidia-smi below {self._root.path}")
        library = self._root.library("libnvidia-ml.so.1")
        env = {} if library is None else {"LD_PRELOAD": str(library)}
        try:
            programs.run(program, "compute-policy", "-i", gpu, "--set-timeslice", _NUMBERS[interval], seconds=_SECONDS, env=env)
        except programs.ProgramError as error:
            unsupported = "not supported" in str(error).lower()
            raise port.CallError(port.CALLS[_CALL], port.Code.NOT_SUPPORTED if unsupported else port.Code.UNKNOWN, str(error)) from error
