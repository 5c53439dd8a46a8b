"""The device families by name, and how their drivers are built.

A family is imported on first use, so that a node needs only the libraries of its families.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drakit import machines
from drakit.core import config, errors, inventory, ports
from drakit.core import driver as drivers

if TYPE_CHECKING:
    from drakit.devices.tpu import machine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """The parameters of a new driver.

    ``node`` is the node's name, ``driver_name`` replaces the family's own, ``machine`` takes the place of real hardware. ``intents`` gives the
    intents of all grants this driver's journal knows, so that it can tell what it made from what others made. ``netns`` (a network namespace's name)
    and ``options`` (the family's own settings, such as NicSettings) are for families that have them.
    """

    node: str
    driver_name: str | None = None
    machine: machines.Choice | None = None
    intents: ports.Intents = ports.no_intents
    netns: str | None = None
    options: object = None


def build(family: str, order: Order) -> drivers.Driver[Any]:
    """Return the driver of a family; raises SettingsError for an unknown family or machine, HardwareError when the hardware cannot be opened."""
    if family not in FAMILIES:
        raise errors.SettingsError(f"no device family {family!r}; known are {', '.join(FAMILIES)}", key="family")
    return FAMILIES[family](order)


def has_gpu_driver(kernel_root: pathlib.Path) -> bool:
    """Return whether NVIDIA's kernel driver is loaded on this machine, so that real GPUs are served by default."""
    from drakit_gpu import host  # noqa: PLC0415 - a family is imported on first use

    return host.Host(kernel_root).has_driver()


def _gpu(order: Order) -> drivers.Driver[Any]:
    from drakit_gpu import assembly, settings  # noqa: PLC0415 - a family is imported on first use

    options = order.options or settings.GpuSettings()
    if not isinstance(options, settings.GpuSettings):
        raise TypeError(f"the gpu family takes GpuSettings, not {type(options).__name__}")
    return assembly.assemble(options, name=order.driver_name, machine=order.machine, intents=order.intents)


def _nic(order: Order) -> drivers.Driver[Any]:
    from drakit_nic import driver, kernel_port, mock_port, port, settings  # noqa: PLC0415 - a family is imported on first use
    from drakit_nic.attach import sandboxes, service  # noqa: PLC0415

    options = order.options
    if options is not None and not isinstance(options, settings.NicSettings):
        raise TypeError(f"the nic family takes NicSettings, not {type(options).__name__}")
    name = order.driver_name or driver.NAME
    hardware: port.Port = kernel_port.KernelPort(order.netns, owner=name) if order.machine is None else mock_port.MockPort(order.machine)
    home = options.home if options is not None and order.machine is None else None
    kernel = sandboxes.KernelSandboxes(order.netns)
    return driver.NicDriver(
        hardware,
        node=order.node,
        settings=options,
        name=name,
        intents=order.intents,
        attachment=None if home is None else service.Service(home, hardware, kernel, node=order.node),
    )


def _tpu(order: Order) -> drivers.Driver[Any]:
    from drakit.devices.tpu import driver, mock  # noqa: PLC0415 - a family is imported on first use

    if order.machine is None:
        raise errors.SettingsError(_TPU_MOCK_ONLY, key="mock.machine")
    found = _tpu_pool(order)
    chips = mock.MockChips(order.machine.directory, found.grid.host.area)
    return driver.TpuDriver(found, chips, node=order.node, name=order.driver_name or driver.NAME)


def _tpu_pools(order: Order) -> Sequence[inventory.ClusterPool]:
    from drakit.devices.tpu import offer  # noqa: PLC0415 - a family is imported on first use

    return offer.of(_tpu_pool(order))


def _tpu_pool(order: Order) -> "machine.NodePool":
    from drakit.devices.tpu import machine  # noqa: PLC0415 - a family is imported on first use

    options = order.options or machine.TpuSettings()
    if not isinstance(options, machine.TpuSettings):
        raise TypeError(f"the tpu family takes TpuSettings, not {type(options).__name__}")
    if order.machine is None:
        raise errors.SettingsError(_TPU_MOCK_ONLY, key="mock.machine")
    return machine.load(order.machine.name, nodes=options.nodes, label=options.label)


_TPU_MOCK_ONLY = "TPUs are only known as mock machines yet; name one, for example tpu-v5e-8x8"

FAMILIES: Mapping[str, Callable[[Order], drivers.Driver[Any]]] = {"gpu": _gpu, "nic": _nic, "tpu": _tpu}
KEYS: Mapping[str, str] = {"gpu": "gpus", "nic": "nics", "tpu": "tpus"}
"""The key of each family in a machine's file."""


def opaque_rules(family: str) -> config.Rules:
    """Return what a family takes as opaque parameters; needs neither its hardware nor its library. ``family`` is one of ``FAMILIES``."""
    return _RULES[family]()


def _gpu_rules() -> config.Rules:
    from drakit_gpu import config as gpu  # noqa: PLC0415 - a family is imported on first use

    return gpu.rules()


def _nic_rules() -> config.Rules:
    from drakit_nic import config as nic  # noqa: PLC0415 - a family is imported on first use

    return nic.rules()


def _tpu_rules() -> config.Rules:
    from drakit.devices.tpu import driver  # noqa: PLC0415 - a family is imported on first use

    return config.Rules(types=driver.TpuDriver.config_types)


_RULES: Mapping[str, Callable[[], config.Rules]] = {"gpu": _gpu_rules, "nic": _nic_rules, "tpu": _tpu_rules}

CLUSTER_FAMILIES: Mapping[str, Callable[[Order], Sequence[inventory.ClusterPool]]] = {"tpu": _tpu_pools}


def cluster_pools(family: str, order: Order) -> Sequence[inventory.ClusterPool]:
    """Return what a publisher of the whole cluster offers for a family; raises SettingsError for a family whose devices each belong to one node."""
    if family not in CLUSTER_FAMILIES:
        known = ", ".join(CLUSTER_FAMILIES)
        raise errors.SettingsError(f"{family!r} has no devices of several nodes; families that have: {known}", key="family")
    return CLUSTER_FAMILIES[family](order)
