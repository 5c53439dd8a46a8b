"""The TPU family as drakit's commands know it: its settings, and how its driver and its pools are made."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import drakit
from tpu_driver import machine, mock, offer
from tpu_driver.driver import TpuDriver

_MOCK_ONLY = "TPUs are only known as mock machines yet; name one, for example tpu-v5e-8x8"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuOptions:
    """TPU node pools, whose devices are slices of several nodes. For mock machines only."""

    enabled: bool = True
    """Whether the driver serves TPUs, where the machine has any."""

    driver_name: str = "tpu.drakit.dev"
    """Driver name."""

    nodes: tuple[str, ...] = ()
    """Names of the pool's nodes, row by row. Those of the machine file if not given."""

    node_label: str = "kubernetes.io/hostname"
    """Node label with the names in tpu.nodes. Slices select their nodes by it."""


class TpuFamily(drakit.Family[TpuOptions]):
    """Slices of a grid of TPU chips, each on several nodes."""

    name = "tpu"
    options = TpuOptions
    machine_key: ClassVar[str] = machine.KEY
    spans_nodes: ClassVar[bool] = True
    mock_only: ClassVar[bool] = True

    def driver_name(self, options: TpuOptions) -> str:
        return options.driver_name

    def is_enabled(self, options: TpuOptions) -> bool:
        return options.enabled

    def build(self, options: TpuOptions, site: drakit.Site) -> drakit.Driver[drakit.NoConfig]:
        found = _pool(options, site)
        if site.machine is None:
            raise drakit.SettingsError(_MOCK_ONLY, key="mock.machine")
        chips = mock.MockChips(site.machine.directory, found.grid.host.area)
        return TpuDriver(found, chips, node=site.node, name=site.driver_name)

    def pools(self, options: TpuOptions, site: drakit.Site) -> Callable[[], Sequence[drakit.ClusterPool]]:
        return functools.partial(offer.of, _pool(options, site))

    def rules(self, options: TpuOptions) -> drakit.Rules:  # noqa: ARG002
        return drakit.Rules(types=TpuDriver.config_types)


def _pool(options: TpuOptions, site: drakit.Site) -> machine.NodePool:
    if site.machine is None:
        raise drakit.SettingsError(_MOCK_ONLY, key="mock.machine")
    return machine.load(site.machine.name, nodes=options.nodes, label=options.node_label)


FAMILY = TpuFamily()
