"""What is free on all nodes, by driver and model, from the nodes of a state. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from drakit_tools.dashboard import model


def free(nodes: Iterable[model.Node]) -> tuple[model.Free, ...]:
    """Return what is free on all nodes, by driver and model. A device that is not well, or to whose node no pods come, is not free."""
    gpus: dict[tuple[str, str], list[tuple[model.Gpu, bool]]] = {}
    others: dict[tuple[str, str], list[tuple[model.OtherDevice, bool]]] = {}
    for node, pool in ((entry, pool) for entry in nodes for pool in entry.pools):
        is_open = not node.closed
        for gpu in pool.gpus:
            gpus.setdefault((pool.driver, gpu.facts.model), []).append((gpu, is_open))
        for device in pool.others:
            others.setdefault((pool.driver, device.facts.model or device.kind), []).append((device, is_open))
    partitioned = [
        dataclasses.replace(
            _of_kind(kind, [(not gpu.spans and gpu.health.is_well, is_open) for gpu, is_open in listed], _sets([gpu for gpu, _ in listed])),
            left=sum(span.left for gpu, is_open in listed if is_open and gpu.health.is_well for span in gpu.spans),
        )
        for kind, listed in gpus.items()
    ]
    whole = [
        _of_kind(kind, [(not device.uses and device.health.is_well, is_open) for device, is_open in listed])
        for kind, listed in others.items()
    ]
    return (*partitioned, *whole)


def closed(filled: model.Pool) -> model.Pool:
    """Return a pool of a node to which no pods come: nothing more fits in it."""
    nothing: Mapping[str, int] = {}
    gpus = (
        dataclasses.replace(gpu, together=(), largest=nothing, smallest=nothing, alone=nothing, fragmented="", has_room=False)
        for gpu in filled.gpus
    )
    return dataclasses.replace(filled, gpus=tuple(gpus))


def _of_kind(kind: tuple[str, str], devices: Sequence[tuple[bool, bool]], sets: tuple[Mapping[str, int], ...] = ()) -> model.Free:
    """Return what is free of a driver's model. Of each device: whether it is well and unused, and whether pods come to its node."""
    driver, product = kind
    return model.Free(
        driver=driver,
        model=product,
        unused=sum(is_unused and is_open for is_unused, is_open in devices),
        total=len(devices),
        closed=sum(not is_open for _, is_open in devices),
        sets=sets,
    )


def _sets(gpus: Sequence[model.Gpu]) -> tuple[Mapping[str, int], ...]:
    return _distinct(_summed(gpus, [gpu.largest for gpu in gpus]), _summed(gpus, [gpu.smallest for gpu in gpus]))


def _summed(gpus: Sequence[model.Gpu], counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sums of counts, in the order of the GPU that fits the most kinds, which has the largest first."""
    order = [kind for gpu in sorted(gpus, key=lambda gpu: -len(gpu.alone)) for kind in gpu.alone]
    total = dict.fromkeys(order, 0)
    for listed in counts:
        for kind, count in listed.items():
            total[kind] += count
    return {kind: count for kind, count in total.items() if count}


def _distinct(*sets: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
    return tuple(counts for place, counts in enumerate(sets) if counts and counts not in sets[:place])
