"""The profile ``net``: made-up interfaces. Many claims share one, each with a part of its bandwidth."""

import dataclasses
from typing import ClassVar

import drakit
from everything_driver import profile

_BURST_LIMIT = 8 * (2**32 - 1)
"""Bits; the kernel counts a burst in bytes of 32 bits."""
_RATES = {"ingressBandwidth": "INGRESS_RATE", "egressBandwidth": "EGRESS_RATE"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Burst:
    """How many bits may be sent at once above the rate; 0 leaves it to the system."""

    ingress_burst: int = 0
    egress_burst: int = 0

    def __post_init__(self) -> None:
        for field, bits in (("ingressBurst", self.ingress_burst), ("egressBurst", self.egress_burst)):
            if not 0 <= bits < _BURST_LIMIT:
                raise drakit.ConfigError(f"{bits} is not from 0 to {_BURST_LIMIT - 1}", field=field)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetConfig:
    """What a claim or a class may write."""

    api_version: ClassVar[str] = "net.resource.example.com/v1alpha1"
    kind: ClassVar[str] = "NetConfig"
    bw_burst: Burst = Burst()


class NetDriver(profile.Profile[NetConfig]):
    """Offers interfaces."""

    name = "net.example.com"
    kind = "net"
    config_types = (NetConfig,)

    def discover(self) -> drakit.Inventory:
        """Return every interface."""
        return drakit.Inventory.of(self._device(number) for number in range(self._own.devices))

    def _device(self, number: int) -> drakit.Device:
        steps = drakit.ValidRange(min="100M", max="100G", step="1M")
        bandwidth = drakit.Capacity(value="100G", policy=drakit.RequestPolicy(default="1G", valid_range=steps))
        functions = drakit.Capacity(value=100, policy=drakit.RequestPolicy(default=1, valid_values=(1,)))
        return drakit.Device(
            name=f"nic-{number}",
            attributes=self.attributes(number),
            capacity={"vfs": functions, **dict.fromkeys(_RATES, bandwidth)},
            allow_multiple_allocations=True,
        )

    def prepare(self, grant: drakit.Grant[NetConfig]) -> drakit.Prepared:
        """Tell the container the rates and bursts of its share."""
        burst = grant.config.bw_burst
        bursts = {"INGRESS_BURST": burst.ingress_burst, "EGRESS_BURST": burst.egress_burst}
        rates = {name: grant.consumed_capacity[capacity].value for capacity, name in _RATES.items()}
        return self.prepared(grant, {name: str(bits) for name, bits in {**bursts, **rates}.items() if bits})
