"""How claims share a GPU: the request policies (KEP-5075) of a shared device."""

import dataclasses
from collections.abc import Mapping

import drakit

MEMORY = "memory"
SHARES = "shares"
SHARES_MAX = 1000
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharePolicy:
    """The request policies (KEP-5075) of a device that several claims share.

    ``memory`` divides memory, ``number`` (0: no limit) is that of shares, ``partitions`` shares MIG devices as well as whole GPUs.

    Memory is allocated in steps of 1Mi, and a device may have a number of shares. A claim that requests nothing gets:

    - with memory alone: all of it, so that a claim that does not know about sharing is alone on its device;
    - with a number alone: one share and no memory, because memory is not divided;
    - with both: one share and an equal part of the memory.

    Engines are not divided, so a shared device has no capacities for them.
    """

    memory: bool = False
    number: int = 0
    partitions: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.number <= SHARES_MAX:
            raise drakit.SettingsError(f"must be from 0 to {SHARES_MAX}", key="gpu.shares")
        if self.partitions and not self.whole:
            raise drakit.SettingsError("needs gpu.share_memory or gpu.shares, which say how", key="gpu.share_mig")

    @property
    def whole(self) -> bool:
        """Whether whole GPUs are shared."""
        return self.memory or self.number > 0

    @property
    def mig(self) -> bool:
        """Whether MIG devices are shared."""
        return self.whole and self.partitions

    def capacity(self, memory: drakit.Quantity | None) -> Mapping[str, drakit.Capacity]:
        """Return the capacities of a shared device with this memory (None: unknown)."""
        amounts = {} if memory is None or memory.value < _MIB else {MEMORY: self._memory(memory.value // _MIB)}
        if self.number:
            most = drakit.Quantity.of(self.number)
            span = drakit.ValidRange(min=drakit.ONE, step=drakit.ONE, max=most)
            amounts[SHARES] = drakit.Capacity(value=most, policy=drakit.RequestPolicy(default=drakit.ONE, valid_range=span))
        return amounts

    def _memory(self, steps: int) -> drakit.Capacity:
        least = 1 if self.memory else 0
        default = max(steps // (self.number or 1), least) if self.memory else 0
        span = drakit.ValidRange(min=_mebibytes(least), step=_mebibytes(1), max=_mebibytes(steps))
        return drakit.Capacity(value=_mebibytes(steps), policy=drakit.RequestPolicy(default=_mebibytes(default), valid_range=span))


NOT_SHARED = SharePolicy()


def _mebibytes(number: int) -> drakit.Quantity:
    return drakit.Quantity.binary(number * _MIB)
