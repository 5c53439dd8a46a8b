"""The operator's settings of the GPU driver, and how they share a GPU among claims."""

import dataclasses
import pathlib
from collections.abc import Mapping

from drakit.core import capacity as capacities
from drakit.core import errors, ports, quantity

_ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuSettings:
    """``library`` is the path of libnvidia-ml.so.1 (None: below the driver root, or where the loader finds it).

    ``kernel_root`` is the folder that holds the ``proc`` and ``sys`` of the kernel driver, ``driver_root`` the folder below which the driver is
    installed, as this process sees it, ``driver_root_on_host`` its path on the host where that is another, ``library_folders`` are folders below it
    that are searched for its libraries first. ``dev_root`` is the folder that holds the host's ``dev``. With ``toolkit``, nvidia-ctk lists the files
    that a container needs, where it is installed. ``home`` is a folder for MPS daemons and ownership markers; without one there are neither.
    ``daemon_pods`` runs the MPS daemons' pods; without it claims with MPS are rejected.

    ``share_memory``, ``shares`` and ``share_mig`` set how GPUs are shared; see ``SharePolicy``.

    ``health`` monitors the GPUs and taints those with a fault; ``ignored_xids`` are no faults, and without ``evict`` no fault evicts pods.

    ``whole_beside_partitions`` offers an Ampere GPU whose MIG mode is on also as a whole, as KEP-4815's example does. It is then a promise of
    exclusive use only: CUDA sees no whole GPU while the mode is on, and a change of the mode needs a reset, which is up to the admin. None is the
    machine's default: mock machines may turn it on, real ones do not.
    """

    library: pathlib.Path | None = None
    whole_beside_partitions: bool | None = None
    driver_root: pathlib.Path = _ROOT
    driver_root_on_host: pathlib.Path | None = None
    library_folders: tuple[str, ...] = ()
    kernel_root: pathlib.Path = _ROOT
    dev_root: pathlib.Path = _ROOT
    toolkit: bool = True
    home: pathlib.Path | None = None
    daemon_pods: ports.PodStore | None = None
    share_memory: bool = False
    shares: int = 0
    share_mig: bool = False
    health: bool = True
    evict: bool = True
    ignored_xids: frozenset[int] = frozenset()


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
        """Return the capacities of a shared device with this memory (None: unknown)."""
        amounts = {} if memory is None or memory.value < _MIB else {MEMORY: self._memory(memory.value // _MIB)}
        if self.number:
            most = quantity.Quantity.of(self.number)
            span = capacities.ValidRange(min=quantity.ONE, step=quantity.ONE, max=most)
            amounts[SHARES] = capacities.Capacity(value=most, policy=capacities.RequestPolicy(default=quantity.ONE, valid_range=span))
        return amounts

    def _memory(self, steps: int) -> capacities.Capacity:
        least = 1 if self.memory else 0
        default = max(steps // (self.number or 1), least) if self.memory else 0
        span = capacities.ValidRange(min=_mebibytes(least), step=_mebibytes(1), max=_mebibytes(steps))
        return capacities.Capacity(value=_mebibytes(steps), policy=capacities.RequestPolicy(default=_mebibytes(default), valid_range=span))


NOT_SHARED = SharePolicy()


def _mebibytes(number: int) -> quantity.Quantity:
    return quantity.Quantity.binary(number * _MIB)
