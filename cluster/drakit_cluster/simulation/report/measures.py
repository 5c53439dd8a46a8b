"""Use and fragmentation over time, by model of device.

Shares are of all devices of a model: 0.25 of four GPUs is one GPU. A span from the first second to the last arrival is cut into equal bins,
and each value is the mean over its bin, weighted by time. Events after the last arrival are not included.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.simulation.engine.nodes import Node, Nodes
from drakit_cluster.simulation.engine.placer import Observer
from drakit_cluster.simulation.engine.policies import Fragmentation
from drakit_cluster.simulation.workload.tasks import Workload

BINS = 240


@dataclass(frozen=True, kw_only=True)
class ModelSeries:
    """One model: the number of devices, and shares from 0 to 1 for each bin."""

    model: str
    count: int
    used: Sequence[float]
    fragmented: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Series:
    """The figures of all models, and the number of waiting pods; ``times`` are the starts of the bins in seconds."""

    times: Sequence[float]
    waiting: Sequence[float]
    models: Sequence[ModelSeries]


@dataclass(eq=False)
class _Model:
    """Sums over the devices of one model now, and their integrals over each bin."""

    bins: int
    count: int = 0
    used: float = 0.0
    fragmented: float = 0.0
    used_over: list[float] = field(default_factory=list)
    fragmented_over: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.used_over = [0.0] * self.bins
        self.fragmented_over = [0.0] * self.bins


class Recorder(Observer):
    """Records one run."""

    def __init__(self, workload: Workload) -> None:
        arrivals = [task.arrival for task in workload.tasks]
        ends = [task.arrival + (task.duration or 0.0) for task in workload.tasks]
        self._span = max(arrivals) or max(ends) or 1.0
        self._width = self._span / BINS
        self._now = 0.0
        self._models: dict[str, _Model] = {}
        self._last: list[list[tuple[float, float]]] = []
        self._counted: list[Sequence[bool]] = []
        self._waiting = [0.0] * BINS
        self._fragmentation = Fragmentation({})

    def begin(self, nodes: Nodes, fragmentation: Fragmentation) -> None:
        """Count the devices of every model. Devices of pools that span nodes count once."""
        self._fragmentation = fragmentation
        counted_devices: set[DeviceId] = set()
        for node in nodes.all:
            blocks = node.type.offers.blocks
            counted = [not nodes.spans or block.devices[0].id not in counted_devices for block in blocks]
            counted_devices.update(block.devices[0].id for block in blocks if nodes.spans)
            self._last.append([(0.0, 0.0)] * len(blocks))
            self._counted.append(counted)
            for block, is_counted in zip(blocks, counted, strict=True):
                if is_counted:
                    self._models.setdefault(block.label, _Model(BINS)).count += 1
            self.changed(node, range(len(blocks)))

    def changed(self, node: Node, numbers: Sequence[int]) -> None:
        """Replace the contributions of the blocks to the sums of their models."""
        offers, last = node.type.offers, self._last[node.rank]
        for number in numbers:
            if not self._counted[node.rank][number]:
                continue
            state = node.states[number]
            old, new = last[number], (offers.used(number, state), self._fragmentation.of_block(offers, number, state))
            model = self._models[offers.blocks[number].label]
            model.used += new[0] - old[0]
            model.fragmented += new[1] - old[1]
            last[number] = new

    def at(self, time: float, waiting: int) -> None:
        """Add the current sums to the bins until ``time``."""
        end = min(time, self._span)
        while self._now < end:
            place = min(int(self._now / self._width), BINS - 1)
            until = min(end, self._span if place == BINS - 1 else (place + 1) * self._width)
            length = until - self._now
            if length <= 0:  # Rounding at the edge of a bin.
                length, until = 0.0, min(end, self._now + self._width * 1e-9)
            for model in self._models.values():
                model.used_over[place] += length * model.used
                model.fragmented_over[place] += length * model.fragmented
            self._waiting[place] += length * waiting
            self._now = until

    def series(self) -> Series:
        """Return the recorded figures."""
        return Series(
            times=[round(number * self._width, 3) for number in range(BINS)],
            waiting=[round(value / self._width, 3) for value in self._waiting],
            models=[
                ModelSeries(
                    model=name,
                    count=model.count,
                    used=[_share(value, self._width * model.count) for value in model.used_over],
                    fragmented=[_share(value, self._width * model.count) for value in model.fragmented_over],
                )
                for name, model in sorted(self._models.items())
            ],
        )


def _share(value: float, total: float) -> float:
    return round(max(0.0, value / total), 5)
