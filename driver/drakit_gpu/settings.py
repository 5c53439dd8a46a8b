"""The operator's settings of the GPU driver."""

import dataclasses
import pathlib

import drakit

_ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuSettings:
    """``library`` is the path of libnvidia-ml.so.1 (None: below the driver root, or where the loader finds it).

    ``kernel_root`` is the folder that holds the ``proc`` and ``sys`` of the kernel driver, ``driver_root`` the folder below which the driver is
    installed, as this process sees it, ``driver_root_on_host`` its path on the host where that is another, ``library_folders`` are folders below it
    that are searched for its libraries first. ``dev_root`` is the folder that holds the host's ``dev``. With ``toolkit``, nvidia-ctk lists the files
    that a container needs, where it is installed. ``home`` is a folder for MPS daemons and ownership markers; without one there are neither.
    ``daemon_pods`` runs the MPS daemons' pods; without it claims with MPS are rejected.

    ``vfio`` offers GPUs to virtual machines too: by the VFIO group, or with ``iommufd`` by the device.

    ``share_memory``, ``shares`` and ``share_mig`` set how GPUs are shared; see ``share_policy``.

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
    daemon_pods: drakit.PodStore | None = None
    share_memory: bool = False
    shares: int = 0
    share_mig: bool = False
    vfio: bool = False
    iommufd: bool = False
    health: bool = True
    evict: bool = True
    ignored_xids: frozenset[int] = frozenset()
