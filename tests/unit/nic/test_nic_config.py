"""Opaque parameters of NIC claims."""

import pytest

from drakit.core import config as core_config
from drakit.core import errors, records
from drakit_nic import config, driver
from drakit_nic.addresses import ip_pools


@pytest.mark.parametrize("name", ["", "net1", "a", "x" * 15, "eth0.100", "a-b_c"])
def test_what_the_kernel_would_take_is_taken(name: str) -> None:
    assert config.NicConfig(interface_name=name).interface_name == name


@pytest.mark.parametrize("name", ["x" * 16, ".", "..", "a/b", "a b", "a:b", "n\u00e9t", "a\n", "%d", "lo", "$(id)"])
def test_what_could_harm_is_refused_by_its_field(name: str) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        config.NicConfig(interface_name=name)
    assert refused.value.field == "interfaceName"


HEAD = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig"}


def decode(**parameters: object) -> object:
    return core_config.decode(records.freeze_record({**HEAD, **parameters}), driver.NicDriver.config_types)


def test_it_is_decoded_as_users_write_it() -> None:
    assert decode() == config.NicConfig()
    assert decode(interfaceName="net1") == config.NicConfig(interface_name="net1")


@pytest.mark.parametrize(
    "parameters, field",
    [
        ({"interfaceName": 7}, "parameters.interfaceName"),
        ({"interfaceName": "a/b"}, "parameters.interfaceName"),
        ({"mtu": 67}, "parameters.mtu"),
        ({"kind": "GpuConfig"}, "parameters.kind"),
    ],
)
def test_what_is_unknown_or_malformed_is_refused_by_its_path(parameters: dict[str, object], field: str) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        decode(**parameters)
    assert refused.value.field == field


def test_dhcp_gives_the_ipv4_address_beside_ipv6_ones_and_routes() -> None:
    with pytest.raises(errors.ConfigError, match=r"so 10\.1\.2\.3 cannot be chosen") as refused:
        decode(dhcp=True, addresses=["10.1.2.3/24"])
    assert refused.value.field == "parameters.dhcp"
    chosen = decode(dhcp=True, addresses=["fd00::5/64"], routes=[{"destination": "10.5.0.0/16", "gateway": "10.1.0.1"}])
    assert isinstance(chosen, config.NicConfig)
    config.check(chosen, node="node-1")
    with pytest.raises(errors.ConfigError, match="is not on the link"):
        config.check(config.NicConfig(dhcp=True, routes=(config.Route(destination="fd05::/64", gateway="fd06::1"),)), node="node-1")


POOL = ip_pools.AddressPool(subnet="10.1.0.0/16", first="10.1.0.1", last="10.1.0.9")


@pytest.mark.parametrize(
    "fields, field, why",
    [
        ({"addresses": ("10.1.2.3/24",), "mac": "02:00:00:00:00:05"}, "mac", "which have its MAC address"),
        (
            {"addresses": ("10.1.2.3/24",), "mode": config.Mode.BRIDGE},
            "mode",
            "the kernel has one mode for all ipvlans of a NIC",
        ),
        ({}, "addresses", "set addresses or dhcp in the claim, or addressPools in the DeviceClass"),
    ],
)
def test_what_an_ipvlan_cannot_have_is_refused_with_the_nic(fields: dict[str, object], field: str, why: str) -> None:
    with pytest.raises(errors.ConfigError, match="pods get ipvlans of eth1") as refused:
        config.check_ipvlan(config.NicConfig(**fields), "eth1")  # type: ignore[arg-type]
    assert refused.value.field == field
    assert why in str(refused.value)
    for allowed in (config.NicConfig(addresses=("10.1.2.3/24",)), config.NicConfig(address_pools=(POOL,)), config.NicConfig(dhcp=True)):
        config.check_ipvlan(allowed, "eth1")
