"""Opaque parameters of NIC claims."""

import pytest

from drakit.core import config as core_config
from drakit.core import errors, records
from drakit_nic import config, driver


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
