"""Fixed MIG layouts: which partitions of a GPU an admin's layout stands for. They do not overlap, so they need no counters.

The placements follow from the profiles alone, so each start and each node with the same GPU offers the same devices.
"""

from collections.abc import Mapping, Sequence

import drakit
from drakit_gpu import port
from drakit_gpu.mig import counters, partitioning


class LayoutError(Exception):
    """A GPU cannot have a layout. The text says why."""


def place(possible: Sequence[partitioning.Partition], wanted: Mapping[str, int]) -> tuple[partitioning.Partition, ...]:
    """Return the partitions of a layout, in the order in which a GPU offers them.

    ``wanted`` are numbers of instances by profile name. The search places the largest profiles first, each where it leaves most others possible.
    Raises LayoutError for a profile that the GPU does not have, and for profiles that do not fit together.
    """
    profiles = {partition.profile.name: partition.profile for partition in reversed(possible)}
    if unknown := [name for name in wanted if name not in profiles]:
        raise LayoutError(f"the GPU has no profile {', '.join(unknown)}; it has {', '.join(reversed(profiles))}")
    rank = {profile.id: number for number, profile in enumerate(profiles.values())}
    sizes = sorted((profiles[name] for name in wanted), key=lambda profile: rank[profile.id])
    limits = counters.counters_of(tuple(possible))
    chosen = _fill(tuple(possible), [profile for profile in sizes for _ in range(wanted[profile.name])], limits, limits.pool, 0)
    if chosen is None:
        raise LayoutError(f"{describe(wanted)} do not fit together on one GPU")
    return tuple(partition for partition in possible if partition in chosen)


def free(
    layout: Sequence[partitioning.Partition],
    limits: counters.GpuCounters,
    others: Sequence[port.GpuInstance],
    own: Sequence[port.GpuInstance],
) -> tuple[partitioning.Partition, ...]:
    """Return the partitions of a layout that can be offered: those that this driver made (``own``), and those that fit beside all instances.

    Partitions in memory slices of ``own`` instances are returned too. The framework withholds them while a claim has the instance, and names the
    claim to others.
    """
    left = limits.remaining([*others, *own])
    offered: list[partitioning.Partition] = []
    for partition in layout:
        draw = limits.draw(partition)
        if any(partition.placement.overlaps(instance.placement) for instance in own):
            offered.append(partition)
        elif partitioning.fits(draw, left):
            offered.append(partition)
            left = _without(left, draw)
    return tuple(offered)


def describe(wanted: Mapping[str, int]) -> str:
    """Return a layout as text for errors: ``1 x 3g.20gb, 2 x 1g.5gb``."""
    return ", ".join(f"{count} x {name}" for name, count in wanted.items())


def _fill(
    possible: tuple[partitioning.Partition, ...],
    wanted: Sequence[port.GpuInstanceProfile],
    limits: counters.GpuCounters,
    left: partitioning.Counters,
    first: int,
) -> frozenset[partitioning.Partition] | None:
    """Return partitions for the profiles, or None. Equal profiles are placed in order from ``first``, so no set is tried twice."""
    if not wanted:
        return frozenset()
    for index, partition in enumerate(possible[first:], first):
        if partition.profile != wanted[0] or not partitioning.fits(draw := limits.draw(partition), left):
            continue
        following = index + 1 if wanted[1:] and wanted[1] == wanted[0] else 0
        if (rest := _fill(possible, wanted[1:], limits, _without(left, draw), following)) is not None:
            return rest | {partition}
    return None


def _without(left: partitioning.Counters, draw: partitioning.Counters) -> partitioning.Counters:
    return {name: amount - draw.get(name, drakit.ZERO) for name, amount in left.items()}
