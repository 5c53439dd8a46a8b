"""Functions that are bound to vfio-pci and that no claim of the journal has, and their release.

Nothing proves that a driver bound one: an admin may have set its driver_override too. So each is released only if a person names it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from drakit import vfio
from drakit.core import advanced

KIND = "VFIO function"


def find(
    bus: vfio.Bus,
    is_candidate: Callable[[vfio.Function], bool],
    plans: Callable[[], Iterable[vfio.Plan]],
    lock_names: Callable[[vfio.Function], Sequence[str]],
) -> Iterator[advanced.Leftover]:
    """Yield the candidates that no plan of the journal names. ``lock_names`` are those of a function's device. Raises HardwareError."""
    before = _addresses(plans())
    bound = [function for function in bus.functions() if function.driver == function.override == vfio.DRIVER and is_candidate(function)]
    known = before | _addresses(plans())
    for function in bound:
        if function.address not in known:
            is_open = function.group is not None and bus.is_open(function.group)
            yield advanced.Leftover(
                kind=KIND,
                name=function.address,
                detail=f"bound to {vfio.DRIVER}",
                locks=tuple(lock_names(function)),
                is_marked=False,
                user="a process that has its IOMMU group open" if is_open else "",
            )


def release(bus: vfio.Bus, leftover: advanced.Leftover) -> None:
    """Return a function and the members of its group to their default drivers. Raises DeviceBusyError, HardwareError."""
    if bus.function(leftover.name) is not None:
        vfio.release(bus, vfio.recall(bus, leftover.name))


def _addresses(plans: Iterable[vfio.Plan]) -> frozenset[str]:
    return frozenset(member.address for planned in plans for member in planned.members)
