"""The NIC driver: interfaces shared by many claims, one share for each share id, accounted by bandwidth.

This release prepares a share's identity (an address of its own, its rate) and tells it to the container. On the real kernel it changes nothing:
no interface is made for the pod and no rate is enforced, which the attribute ``shaping: none`` says in the slice. A mock machine keeps the shares as
hardware would.
"""

import types
from typing import ClassVar

from drakit.core import device as devices
from drakit.core import driver, errors, inventory, records
from drakit.devices.nic import attributes, config, edits, model, names, port
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic import share as shares

NAME = "nic.drakit.dev"


class NicDriver(driver.Driver[config.NicConfig]):
    """Shares the interfaces of ``machine`` by ``settings``; ``node`` makes the addresses of shares distinct between nodes."""

    config_types: ClassVar[tuple[type[object], ...]] = (config.NicConfig,)

    def __init__(self, machine: port.Port, *, node: str, settings: nic_settings.NicSettings | None = None, name: str = NAME) -> None:
        self.name = name
        self._machine = machine
        self._node = node
        self._settings = settings or nic_settings.NicSettings()

    def survey(self) -> model.Survey:
        """What is offered and what is withheld, with reasons; raises HardwareError."""
        return model.survey(self._machine.interfaces(), self._settings)

    def discover(self) -> inventory.Inventory:
        return self.survey().to_inventory()

    def plan(self, grant: driver.Grant[config.NicConfig]) -> records.Record:
        """The whole share, chosen before anything is installed: its address, and the interface it will be on."""
        return types.MappingProxyType({}) if grant.admin_access else shares.to_record(self._share(grant))

    def prepare(self, grant: driver.Grant[config.NicConfig]) -> driver.Prepared:
        """Install the share. Admin access needs nothing of the node and is given no bandwidth."""
        if grant.admin_access:
            return driver.Prepared()
        share = self._share(grant)
        self._machine.install(share)
        told = edits.of(share, request=grant.request, device=grant.device.name, interface_name=grant.config.interface_name)
        return driver.Prepared(edits=told, record=shares.to_record(share))

    def unprepare(self, grant: driver.Grant[config.NicConfig]) -> None:
        if not grant.admin_access:
            self._machine.remove(shares.identity(grant.claim, grant.device, grant.share_id))

    def _share(self, grant: driver.Grant[config.NicConfig]) -> port.Share:
        shares.check_id(grant.device, grant.share_id)
        identity = shares.identity(grant.claim, grant.device, grant.share_id)
        bandwidth = shares.bandwidth(grant.device, grant.consumed_capacity, self.name)
        interface = self._interface(grant.device)
        planned = grant.intent.get("mac")
        return port.Share(
            id=identity,
            interface=interface.name,
            ifindex=interface.ifindex,
            mac=planned if isinstance(planned, str) else shares.mac_address(self._node, identity),
            bandwidth=bandwidth,
        )

    def _interface(self, device: devices.Device) -> port.Interface:
        """The interface behind a device: the one of the name it was published with, or, where hardware was renamed since, found by its place."""
        found = self._machine.interface(str(device.attributes[attributes.IF_NAME]))
        if found is not None and device.name in names.device_names([found]):
            return found
        present = names.device_names(self._machine.interfaces())
        if device.name not in present:
            raise errors.DeviceGoneError(f"{device.name}: the interface is no longer there")
        return present[device.name]
