"""Every field of NicConfig is documented and reaches the interface."""

import dataclasses
import pathlib
import re

import pytest

from drakit_nic import config, pod_interfaces

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "devices-nic.md"
FIELDS = [field.name for field in dataclasses.fields(config.NicConfig)]
VALUES: dict[str, object] = {
    "mtu": 1400,
    "addresses": ("10.0.0.2/24",),
    "routes": (config.Route(destination="10.1.0.0/16"),),
    "rules": (config.Rule(priority=1, table=7, source="10.0.0.0/24"),),
    "neighbours": (config.Neighbour(address="10.0.0.3", mac="02:00:00:00:00:03"),),
    "mode": config.Mode.BRIDGE,
    "mac": "02:00:00:00:00:02",
    "sysctls": {"ipv4.arp_ignore": 2},
    "forwarding": True,
}
APPLIED_ELSEWHERE = {"interface_name", "address_pools", "ceil", "vlan", "spoof_check", "trust", "link_state", "dhcp"}
"""Fields that are arguments of ``interface_config``, or that no interface in a pod has."""


def wire_name(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(map(str.capitalize, others))


def test_the_page_has_a_row_for_every_field_with_who_may_set_it() -> None:
    section = PAGE.read_text("utf-8").partition("## Opaque parameters")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", section, re.MULTILINE))
    may_set = {wire_name(field): "class" if wire_name(field) in config.CLASS_ONLY else "claim, class" for field in FIELDS}
    assert documented == may_set


def test_every_field_is_known_to_this_test() -> None:
    assert set(FIELDS) == VALUES.keys() | APPLIED_ELSEWHERE


@pytest.mark.parametrize("field", VALUES)
def test_a_field_that_is_set_changes_the_interface_in_the_pod(field: str) -> None:
    chosen = dataclasses.replace(config.NicConfig(), **{field: VALUES[field]})  # type: ignore[arg-type] # each value has its field's type
    assert pod_interfaces.interface_config(chosen, name="net1") != pod_interfaces.interface_config(config.NicConfig(), name="net1")
