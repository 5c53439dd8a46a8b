"""What is free on all nodes, by driver and model, from the nodes of a state. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from drakit_tools.dashboard import model


def free(nodes: Iterable[model.Node]) -> tuple[model.Free, ...]:
    """Return what is free on all nodes, by driver and model. A device that is not well, or to whose node no pods come, is not free."""
    gpus: dict[tuple[str, str], list[model.Gpu]] = {}
    others: dict[tuple[str, str], list[model.OtherDevice]] = {}
    closed: set[int] = set()
    for node, listed in ((entry, pool) for entry in nodes for pool in entry.pools):
        for gpu in listed.gpus:
            gpus.setdefault((listed.driver, gpu.facts.model), []).append(gpu)
        for device in listed.others:
            others.setdefault((listed.driver, device.facts.model or device.kind), []).append(device)
        if node.closed:
            closed |= set(map(id, (*listed.gpus, *listed.others)))
    partitioned = [
        model.Free(
            driver=driver,
            model=product,
            unused=sum(not gpu.spans and gpu.health.is_well and id(gpu) not in closed for gpu in listed),
            total=len(listed),
            closed=sum(id(gpu) in closed for gpu in listed),
            sets=_distinct(_summed(listed, [gpu.largest for gpu in listed]), _summed(listed, [gpu.smallest for gpu in listed])),
        )
        for (driver, product), listed in gpus.items()
    ]
    whole = [
        model.Free(
            driver=driver,
            model=product,
            unused=sum(not entry.uses and entry.health.is_well and id(entry) not in closed for entry in listed),
            total=len(listed),
            closed=sum(id(entry) in closed for entry in listed),
        )
        for (driver, product), listed in others.items()
    ]
    return (*partitioned, *whole)


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
