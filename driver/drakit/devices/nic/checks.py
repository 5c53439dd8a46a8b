"""What a share's configuration must not ask of its NIC; pure. Raises ConfigError, before anything is touched."""

from drakit.core import driver as drivers
from drakit.core import errors
from drakit.devices.nic import config, port

Grant = drivers.Grant[config.NicConfig]


def check_share(grant: Grant, interface: port.Interface, node: str) -> None:
    """Whether a share of this interface can be what its configuration says."""
    chosen = grant.config
    config.check(chosen, node=node)
    if chosen.mtu is not None and chosen.mtu > interface.mtu:
        raise errors.ConfigError(
            f"{chosen.mtu} is above the {interface.mtu} of {interface.name}, on which the share is", field="parameters.mtu"
        )
    if chosen.vlan is not None:
        raise errors.ConfigError("is for a whole virtual function; a share has no VLAN of its own", field="parameters.vlan")
    if chosen.mac == interface.mac:
        raise errors.ConfigError(f"{chosen.mac} is the address of {interface.name} itself", field="parameters.mac")
