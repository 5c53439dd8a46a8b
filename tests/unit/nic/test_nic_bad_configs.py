"""Configurations that are wrong, in more ways than fifty: each is refused by its field, and none touches the port."""

import dataclasses
import json
from collections.abc import Mapping

import hypothesis
import pytest
from hypothesis import strategies

from drakit import machines
from drakit.core import claim as claims
from drakit.core import config as core_config
from drakit.core import driver as drivers
from drakit.core import errors, names, quantity, records
from drakit_nic import config, driver, mock_port, options
from fakes import examples

HEAD = {"apiVersion": "nic.drakit.dev/v1", "kind": "NicConfig"}
CLASS, CLAIM = claims.ConfigSource.CLASS, claims.ConfigSource.CLAIM
POOL = {"subnet": "10.9.0.0/16", "first": "10.9.1.1", "last": "10.9.1.9"}
ADDRESS = {"addresses": ["10.1.2.3/24"]}
ROUTE = {"destination": "10.50.0.0/16", "gateway": "10.1.2.1"}
BAD_ADDRESSES = (
    "10.1.2.3",
    "10.1.2.3/33",
    "10.1.2.3/255.255.255.0",
    "10.1.2.03/24",
    "10.1.2.0/24",
    "10.1.2.255/24",
    "0.0.0.0/8",
    "127.0.0.1/8",
    "224.0.0.1/4",
    "10.1.2.3/0",
    "FD00::5/64",
    "fd00:0::5/64",
    "::1/128",
    "::ffff:10.1.2.3/120",
    "fe80::1%eth0/64",
    "eth0",
    "",
)
BY_USER: list[tuple[str, dict[str, object]]] = [
    ("interfaceName", {"interfaceName": "x" * 16}),
    ("interfaceName", {"interfaceName": "a/b"}),
    ("interfaceName", {"interfaceName": "lo"}),
    ("interfaceName", {"interfaceName": "all"}),
    ("interfaceName", {"interfaceName": 7}),
    ("ifName", {"ifName": "net1"}),
    ("mtu", {"mtu": 67}),
    ("mtu", {"mtu": 65536}),
    ("mtu", {"mtu": 9001}),
    ("mtu", {"mtu": "1500"}),
    ("mtu", {"mtu": True}),
    ("mtu", {"mtu": 1200, "addresses": ["fd00::5/64"]}),
    ("addresses", {"addresses": "10.1.2.3/24"}),
    ("addresses", {"addresses": [f"10.1.2.{host}/24" for host in range(1, 20)]}),
    *[("addresses[0]", dict[str, object](addresses=[text])) for text in BAD_ADDRESSES],
    ("addresses[1]", {"addresses": ["10.1.2.3/24", "10.1.2.3/16"]}),
    ("routes[0].gateway", {"routes": [ROUTE]}),
    ("routes[0].gateway", {**ADDRESS, "routes": [{**ROUTE, "gateway": "10.7.0.1"}]}),
    ("routes[0].gateway", {**ADDRESS, "routes": [{**ROUTE, "gateway": "fd00::1"}]}),
    ("routes[0].gateway", {**ADDRESS, "routes": [{**ROUTE, "gateway": "0.0.0.0"}]}),
    ("routes[0].destination", {**ADDRESS, "routes": [{"destination": "10.50.0.1/16"}]}),
    ("routes[0].destination", {**ADDRESS, "routes": [{"gateway": "10.1.2.1"}]}),
    ("routes[0].source", {**ADDRESS, "routes": [{**ROUTE, "source": "10.1.2.4"}]}),
    ("routes[0].table", {**ADDRESS, "routes": [{**ROUTE, "table": 255}]}),
    ("routes[0].table", {**ADDRESS, "routes": [{**ROUTE, "table": 2**32}]}),
    ("routes[0].metric", {**ADDRESS, "routes": [{**ROUTE, "metric": -1}]}),
    ("routes[0].via", {**ADDRESS, "routes": [{**ROUTE, "via": "eth0"}]}),
    ("routes[1]", {**ADDRESS, "routes": [ROUTE, {**ROUTE, "gateway": "10.1.2.2"}]}),
    ("routes[0].metric", {**ADDRESS, "routes": [{**ROUTE, "metric": 5, "override": True}]}),
    ("routes[0].override", {**ADDRESS, "routes": [{"destination": "10.50.0.1/32", "override": True}]}),
    ("routes[1]", {**ADDRESS, "routes": [{"destination": "0.0.0.0/0", "override": True}, {"destination": "128.0.0.0/1"}]}),
    ("routes", {**ADDRESS, "routes": [{"destination": f"10.{index}.0.0/16"} for index in range(65)]}),
    ("rules[0].priority", {"rules": [{"priority": 0, "table": 100, "source": "10.1.2.3/32"}]}),
    ("rules[0].priority", {"rules": [{"priority": 32766, "table": 100, "source": "10.1.2.3/32"}]}),
    ("rules[0].source", {"rules": [{"priority": 1, "table": 100}]}),
    ("rules[0].destination", {"rules": [{"priority": 1, "table": 100, "source": "10.1.2.3/32", "destination": "fd00::/64"}]}),
    ("rules[0].table", {"rules": [{"priority": 1, "table": 0, "source": "10.1.2.3/32"}]}),
    ("rules[1]", {"rules": [{"priority": 1, "table": table, "source": "10.1.2.3/32"} for table in (100, 101)]}),
    ("neighbours[0].mac", {**ADDRESS, "neighbours": [{"address": "10.1.2.9", "mac": "02-bb-00-00-00-09"}]}),
    ("neighbours[0].mac", {**ADDRESS, "neighbours": [{"address": "10.1.2.9", "mac": "01:00:5e:00:00:01"}]}),
    ("neighbours[0].address", {**ADDRESS, "neighbours": [{"address": "10.1.2.9/24", "mac": "02:bb:00:00:00:09"}]}),
    ("neighbours[0].address", {**ADDRESS, "neighbours": [{"address": "10.8.2.9", "mac": "02:bb:00:00:00:09"}]}),
    *[(key, {key: value}) for key, value in {"ceil": "1G", "mode": "bridge", "mac": "02:bb:00:00:00:09", "vlan": 7}.items()],
    *[(key, {key: value}) for key, value in {"sysctls": {}, "forwarding": False, "addressPools": []}.items()],
]
BY_ADMIN: list[tuple[str, dict[str, object]]] = [
    ("ceil", {"ceil": "0"}),
    ("ceil", {"ceil": "-1G"}),
    ("ceil", {"ceil": "1500m"}),
    ("mode", {"mode": "passthru"}),
    ("mac", {"mac": "ff:ff:ff:ff:ff:ff"}),
    ("mac", {"mac": "00:00:00:00:00:00"}),
    ("mac", {"mac": "02:BB:00:00:00:09"}),
    ("mac", {"mac": "02:d9:a1:00:00:01"}),
    ("vlan", {"vlan": 4095}),
    ("vlan", {"vlan": 7}),
    ("spoofCheck", {"spoofCheck": False}),
    ("spoofCheck", {"spoofCheck": "off"}),
    ("trust", {"trust": True}),
    ("trust", {"trust": 1}),
    ("linkState", {"linkState": "enable"}),
    ("linkState", {"linkState": "up"}),
    ("sysctls['net.ipv4.ip_forward']", {"sysctls": {"net.ipv4.ip_forward": 1}}),
    ("sysctls['ipv4.arp_ignore']", {"sysctls": {"ipv4.arp_ignore": 4}}),
    ('sysctls["ipv4.arp_ignore"]', {"sysctls": {"ipv4.arp_ignore": "1"}}),
    ('sysctls["../../kernel/core_pattern"]', {"sysctls": {"../../kernel/core_pattern": "x"}}),
    ("forwarding", {"forwarding": "yes"}),
    ("addressPools[0].first", {"addressPools": [{**POOL, "first": "10.8.1.1"}]}),
    ("addressPools[0].last", {"addressPools": [{**POOL, "last": "10.9.0.1"}]}),
    ("addressPools[0].subnet", {"addressPools": [{**POOL, "subnet": "10.9.0.1/16"}]}),
    ("addressPools[0].last", {"addressPools": [{"subnet": "10.0.0.0/8", "first": "10.0.0.1", "last": "10.9.0.1"}]}),
    ("addressPools", {"addressPools": [{**POOL, "nodes": ["other-*"]}]}),
    ("addresses[0]", {"addressPools": [POOL], "addresses": ["10.9.1.5/16"]}),
]
BAD = [(CLAIM, *entry) for entry in BY_USER] + [(CLASS, *entry) for entry in BY_ADMIN]


class Untouched(mock_port.MockPort):
    """A machine of which only reading is allowed: every call that would change something is an error of the test."""


def _refuse(name: str) -> object:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError(f"{name} was called for a bad configuration")

    return refused


for _name in (
    "install",
    "remove",
    "admit",
    "dismiss",
    "repair",
    "apply",
    "remove_config",
    "mark",
    "move_in",
    "return_to_host",
    "set_function",
):
    setattr(Untouched, _name, _refuse(_name))


@pytest.fixture(scope="module")
def nics(tmp_path_factory: pytest.TempPathFactory) -> driver.NicDriver:
    choice = machines.Choice(name="dgx-a100-40gb", directory=tmp_path_factory.mktemp("machine"))
    return driver.NicDriver(Untouched(choice), node="node-1", options=options.NicOptions(whole=("eth1",)))


def prepare(nics: driver.NicDriver, *written: tuple[claims.ConfigSource, Mapping[str, object]], device: str = "pci-0000-0c-00-0") -> None:
    """What the engine does for a claim, up to the first change of hardware."""
    result = claims.AllocationResult(
        request="uplink",
        driver=nics.name,
        pool="node-1",
        device=device,
        share_id=None if device.endswith("-whole") else names.ShareId("a671734a-e8e5-11e4-8fde-42010af09327"),
        consumed_capacity={} if device.endswith("-whole") else {"bandwidth": quantity.Quantity.of("1G")},
    )
    configs = tuple(
        claims.OpaqueConfig(source=source, driver=nics.name, parameters=records.freeze_record({**HEAD, **parameters}))
        for source, parameters in written
    )
    ref = claims.ClaimRef(uid=names.ClaimUid("0a6b1c1e-0000-4000-8000-000000000001"), namespace="default", name="net")
    offered = nics.discover().by_name()[device]
    chosen = core_config.choose(claims.Claim(ref=ref, results=(result,), configs=configs), result, nics, offered)
    assert isinstance(chosen.config, config.NicConfig)
    grant = drivers.Grant(
        claim=ref,
        request=result.request,
        pool=result.pool,
        device=offered,
        config=chosen.config,
        share_id=result.share_id,
        consumed_capacity=result.consumed_capacity,
    )
    with core_config.author_errors():
        intent = nics.plan(grant)
    with core_config.author_errors(), pytest.raises(AssertionError, match="was called"):
        nics.prepare(dataclasses.replace(grant, intent=intent))


def test_there_are_more_than_fifty_kinds() -> None:
    assert len({json.dumps(parameters) for _, _, parameters in BAD}) > 50


@pytest.mark.parametrize("source, field, parameters", BAD, ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None)
def test_a_bad_configuration_is_refused_by_its_field(
    nics: driver.NicDriver, source: claims.ConfigSource, field: str, parameters: dict[str, object]
) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        prepare(nics, (source, parameters))
    assert refused.value.field == f"parameters.{field}"


GOOD: list[Mapping[str, object]] = [
    {},
    {"interfaceName": "net1", "mtu": 1400},
    {**ADDRESS, "routes": [ROUTE, {"destination": "0.0.0.0/0", "gateway": "10.1.2.1", "metric": 500}]},
    {"addresses": ["fd00::5/64"], "routes": [{"destination": "::/0", "gateway": "fe80::1"}]},
    {**ADDRESS, "routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.2.1", "override": True}]},
    {**ADDRESS, "rules": [{"priority": 1, "table": 100, "source": "10.1.2.3/32"}]},
]


@pytest.mark.parametrize("parameters", GOOD, ids=json.dumps)
def test_what_is_right_comes_through(nics: driver.NicDriver, parameters: dict[str, object]) -> None:
    prepare(nics, (CLAIM, parameters))


@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples.count(300)
)
@hypothesis.given(
    bad=strategies.sampled_from(BAD),
    before=strategies.lists(strategies.sampled_from(GOOD), max_size=2),
    after=strategies.lists(strategies.sampled_from(GOOD), max_size=2),
    device=strategies.sampled_from(["pci-0000-0c-00-0", "pci-0000-0c-00-0-whole"]),
)
def test_a_mistake_is_reported_wherever_it_stands_and_the_port_is_never_touched(
    nics: driver.NicDriver,
    bad: tuple[claims.ConfigSource, str, dict[str, object]],
    before: list[dict[str, object]],
    after: list[dict[str, object]],
    device: str,
) -> None:
    source, field, parameters = bad
    hypothesis.assume(not after or "[" not in field)  # What only the whole shows is not there when another configuration wins.
    hypothesis.assume(device.endswith("0") or field not in {"mtu", "mac", "vlan"})
    hypothesis.assume(not after or field not in {"mtu", "mac"})
    with pytest.raises(errors.ConfigError):
        prepare(nics, *((CLASS, one) for one in before), (source, parameters), *((source, one) for one in after), device=device)


def settled(*written: tuple[claims.ConfigSource, Mapping[str, object]]) -> config.NicConfig:
    configs = [claims.OpaqueConfig(source=source, driver="nic.drakit.dev", parameters={**HEAD, **each}) for source, each in written]  # type: ignore[dict-item]
    decoded = core_config.decode(config.settle(configs), (config.NicConfig,))
    assert isinstance(decoded, config.NicConfig)
    return decoded


def test_a_claim_cannot_lift_what_its_class_says() -> None:
    limits = {"ceil": "2G", "mode": "bridge", "sysctls": {"ipv4.arp_ignore": 1}, "mtu": 1400}
    decoded = settled((CLASS, limits), (CLAIM, {"interfaceName": "net1"}))
    assert (decoded.ceil, decoded.mode, dict(decoded.sysctls)) == (quantity.Quantity.of("2G"), config.Mode.BRIDGE, {"ipv4.arp_ignore": 1})
    assert (decoded.interface_name, decoded.mtu) == ("net1", None), "of all else, the last wins whole"


def test_of_two_classes_the_last_that_sets_class_only_fields_counts() -> None:
    assert settled((CLASS, {"ceil": "2G"}), (CLASS, {"forwarding": True}), (CLASS, {"mtu": 1400})).ceil is None
    assert settled((CLASS, {"ceil": "2G"}), (CLASS, {"forwarding": True}), (CLASS, {"mtu": 1400})).forwarding


def test_a_claim_s_route_may_go_by_the_class_s_pool(nics: driver.NicDriver) -> None:
    prepare(nics, (CLASS, {"addressPools": [POOL]}), (CLAIM, {"routes": [{"destination": "10.50.0.0/16", "gateway": "10.9.0.1"}]}))
