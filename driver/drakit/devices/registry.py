"""The device families by name, and how the driver of each is made.

A family is imported when it is asked for, so that the library of one need not be installed to run another.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from drakit.core import driver as drivers
from drakit.core import errors, records
from drakit.devices import machines

if TYPE_CHECKING:
    from drakit.devices.gpu import port, settings

Intents = Callable[[], Iterable[records.Record]]


def no_intents() -> Iterable[records.Record]:
    """The intents of a node on which nothing was prepared."""
    return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What a driver is to be.

    ``node`` is the node's name, ``driver_name`` replaces the family's own, ``machine`` takes the place of real hardware. ``intents`` gives the
    intents of all grants this driver's journal knows, so that it can tell what it made from what others made. ``netns`` (a network namespace's name)
    and ``options`` (the family's own settings, such as NicSettings) are for families that have them.
    """

    node: str
    driver_name: str | None = None
    machine: machines.Choice | None = None
    intents: Intents = no_intents
    netns: str | None = None
    options: object = None


def build(family: str, order: Order) -> drivers.Driver[Any]:
    """The driver of a family; raises SettingsError for an unknown family or machine, HardwareError when the hardware cannot be opened."""
    if family not in FAMILIES:
        raise errors.SettingsError(f"no device family {family!r}; known are {', '.join(FAMILIES)}", key="family")
    return FAMILIES[family](order)


def has_gpu_driver() -> bool:
    """Whether NVIDIA's kernel driver is loaded on this machine, so that real GPUs can be served without being asked for."""
    from drakit.devices.gpu import host  # noqa: PLC0415 - a family is imported when it is asked for

    return host.Host().has_driver()


def _gpu(order: Order) -> drivers.Driver[Any]:
    from drakit.devices.gpu import driver, mock, settings  # noqa: PLC0415 - a family is imported when it is asked for

    options = order.options
    if options is not None and not isinstance(options, settings.GpuSettings):
        raise TypeError(f"the gpu family takes GpuSettings, not {type(options).__name__}")
    machine = None if order.machine is None else mock.MockGpus(order.machine)
    chosen = options.whole_beside_partitions if options else None
    return driver.GpuDriver(
        machine or _real_gpus(options),
        name=order.driver_name or driver.NAME,
        intents=order.intents,
        whole_beside_partitions=machine is not None and machine.whole_beside_partitions if chosen is None else chosen,
    )


def _real_gpus(options: "settings.GpuSettings | None") -> "port.GpuPort":
    try:
        from drakit.devices.gpu import nvml  # noqa: PLC0415 - the binding is needed on nodes with real GPUs only
    except ImportError as error:
        fix = "install it (pip install 'drakit[gpu]'), or name a mock machine"
        raise errors.SettingsError(f"real GPUs need the package nvidia-ml-py: {fix}", key="mock.machine") from error
    return nvml.NvmlGpus.open(options.library if options else None)


def _nic(order: Order) -> drivers.Driver[Any]:
    from drakit.devices.nic import driver, mock, netlink, port, settings  # noqa: PLC0415 - a family is imported when it is asked for

    options = order.options
    if options is not None and not isinstance(options, settings.NicSettings):
        raise TypeError(f"the nic family takes NicSettings, not {type(options).__name__}")
    hardware: port.Port = netlink.KernelPort(order.netns) if order.machine is None else mock.MockPort(order.machine)
    return driver.NicDriver(hardware, node=order.node, settings=options, name=order.driver_name or driver.NAME)


FAMILIES: Mapping[str, Callable[[Order], drivers.Driver[Any]]] = {"gpu": _gpu, "nic": _nic}
