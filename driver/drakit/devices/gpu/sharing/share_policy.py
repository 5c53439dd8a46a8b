"""On what terms a device is shared by several claims: what a share takes of it, as request policies (KEP-5075).

Memory is given out in steps of 1Mi, and a device may have a number of shares. What a claim gets that does not ask:

- memory alone: all of it, so that a claim that knows nothing of sharing is alone on its device;
- a number alone: one share and no memory, that is, memory is not divided;
- both: one share and as much memory as every share would get.

Engines are not divided, so a shared device has no capacities for them.
"""

import dataclasses
from collections.abc import Mapping

from drakit.core import capacity as capacities
from drakit.core import errors, quantity

MEMORY = "memory"
SHARES = "shares"
SHARES_MAX = 1000
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharePolicy:
    """``memory`` divides memory, ``number`` (0: no limit) is that of shares, ``partitions`` shares MIG devices as well as whole GPUs."""

    memory: bool = False
    number: int = 0
    partitions: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.number <= SHARES_MAX:
            raise errors.SettingsError(f"must be from 0 to {SHARES_MAX}", key="gpu.shares")
        if self.partitions and not self.whole:
            raise errors.SettingsError("needs gpu.share_memory or gpu.shares, which say how", key="gpu.share_mig")

    @property
    def whole(self) -> bool:
        """Whether whole GPUs are shared."""
        return self.memory or self.number > 0

    @property
    def mig(self) -> bool:
        """Whether MIG devices are shared."""
        return self.whole and self.partitions

    def capacity(self, memory: quantity.Quantity | None) -> Mapping[str, capacities.Capacity]:
        """What there is to share of a device with so much memory, None where that is unknown."""
        found = {} if memory is None or memory.value < _MIB else {MEMORY: self._memory(memory.value // _MIB)}
        if self.number:
            most = quantity.Quantity.of(self.number)
            span = capacities.ValidRange(min=quantity.ONE, step=quantity.ONE, max=most)
            found[SHARES] = capacities.Capacity(value=most, policy=capacities.RequestPolicy(default=quantity.ONE, valid_range=span))
        return found

    def _memory(self, steps: int) -> capacities.Capacity:
        least = 1 if self.memory else 0
        default = max(steps // (self.number or 1), least) if self.memory else 0
        span = capacities.ValidRange(min=_mebibytes(least), step=_mebibytes(1), max=_mebibytes(steps))
        return capacities.Capacity(value=_mebibytes(steps), policy=capacities.RequestPolicy(default=_mebibytes(default), valid_range=span))


NOT_SHARED = SharePolicy()


def _mebibytes(number: int) -> quantity.Quantity:
    return quantity.Quantity.binary(number * _MIB)
