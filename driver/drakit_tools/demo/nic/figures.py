"""The rates of the demo for an interface of some speed, in bits per second; pure.

All rates are in proportion to the speed. A step is about a hundredth of it, so that rounding is visible on any interface. The requests and the host's
reserve fit in nine tenths of it, so that the speed can be lowered while the shares are in use.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

from drakit.core import errors, quantity

SPEED_MIN = 10**7
LIMITED, BORROWING = "nic-limited", "nic-borrowing"
TRAINING, STORAGE, METRICS = "training", "storage", "metrics"
_DEFAULT_STEPS, _RESERVE_STEPS = 10, 25
_LOWERED = (9, 10)
_ODD, _TENTHS = 3, 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """``asked`` has the request of each claim (None: the default), ``consumed`` the expected capacity; all shares fit in the speed ``lowered``."""

    speed: int
    step: int
    default: int
    reserve: int
    lowered: int
    asked: Mapping[str, int | None]
    consumed: Mapping[str, int]

    @classmethod
    def of(cls, speed: int) -> Self:
        """Return the figures for an interface of this speed; raises SettingsError if it is too slow to be shared."""
        if speed < SPEED_MIN:
            raise errors.SettingsError(f"{rate(speed)} is too slow to be shared; the minimum is {rate(SPEED_MIN)}", key="--speed")
        step = 10 ** (len(str(speed)) - 3)
        steps = {TRAINING: speed // 3 // step, STORAGE: speed // 7 // step}
        asked: dict[str, int | None] = {name: count * step + _ODD * (step // _TENTHS) for name, count in steps.items()}
        consumed = {name: (count + 1) * step for name, count in steps.items()}
        return cls(
            speed=speed,
            step=step,
            default=_DEFAULT_STEPS * step,
            reserve=_RESERVE_STEPS * step,
            lowered=speed * _LOWERED[0] // _LOWERED[1],
            asked={**asked, METRICS: None},
            consumed={**consumed, METRICS: _DEFAULT_STEPS * step},
        )


def rate(bits: int) -> str:
    """Return a rate as a Kubernetes quantity."""
    return str(quantity.Quantity.of(bits))
