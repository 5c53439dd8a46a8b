"""Let one call of this process at a time change the MIG mode or the instances of a GPU: devices without counters have locks of their own."""

import contextlib
import threading
from collections.abc import Iterator

import drakit
from drakit_gpu import port

_LONGEST_WAIT = 30.0


class GpuLocks:
    """One lock for each GPU."""

    def __init__(self) -> None:
        self._locks: dict[port.GpuUuid, threading.Lock] = {}

    @contextlib.contextmanager
    def changing(self, gpu: port.GpuUuid) -> Iterator[None]:
        """Hold the lock of a GPU. Raises DeviceBusyError after 30 s, so that a call that hangs stops no other for ever."""
        lock = self._locks.setdefault(gpu, threading.Lock())
        if not lock.acquire(timeout=_LONGEST_WAIT):
            raise drakit.DeviceBusyError(f"{gpu}: another call has been changing its MIG mode or instances for {_LONGEST_WAIT:.0f} s")
        try:
            yield
        finally:
            lock.release()
