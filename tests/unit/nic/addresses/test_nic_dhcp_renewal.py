"""A DHCP lease is renewed in time, tried again, and one Event says that it is lost."""

import dataclasses
import pathlib
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import device, driver, errors, names
from drakit.testing import fake_context
from drakit_nic import config, port
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases, dhcp, dhcp_renewal, ip_pools

CHOSEN = config.NicConfig(dhcp=True)
START, SECONDS = 1_000_000, 120
TERMS = address_leases.Terms(address="10.66.0.50/24", identifier="00aa", seconds=SECONDS, until=START + SECONDS)


@dataclasses.dataclass
class FakeServer:
    """A client whose server renews every address, or gives another one, or none where ``address`` is empty. ``asked`` are the requested addresses."""

    address: str = TERMS.address
    asked: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None
    silent_nics: set[int] = dataclasses.field(default_factory=set)
    failing: set[str] = dataclasses.field(default_factory=set)
    """The identifiers whose requests fail in another way."""

    def request(self, nic: int, identifier: str, is_wanted: Callable[[], bool], *, address: str = "") -> dhcp.Offer:
        assert is_wanted()
        self.asked.append((nic, identifier, address))
        self.meanwhile()
        if identifier in self.failing:
            raise errors.JournalError("the disk is full")
        if not self.address or nic in self.silent_nics:
            raise errors.HardwareError("DHCP", "no lease on eth1")
        return dhcp.Offer(address=address if self.address == TERMS.address else self.address, seconds=SECONDS, server="10.66.0.1")


@dataclasses.dataclass
class World:
    """A claim with one lease, and a clock."""

    context: fake_context.FakeContext
    grant: fake_context.Grant
    server: FakeServer
    now: float = START

    def __post_init__(self) -> None:
        self.leases = address_leases.AddressLeases(self.context, node="node-1")
        self.renewer = dhcp_renewal.Renewer(self.context, self.server, self.leases, now=lambda: self.now)

    def at(self, seconds: float) -> None:
        """Make the round of this many seconds after the lease began."""
        self.now = START + seconds
        self.renewer.renew_due()

    @property
    def until(self) -> list[int]:
        """When each lease ends, in seconds after the first began."""
        leases = address_leases.leases_of(self.context, self.grant)
        return [lease.terms.until - START for lease in leases if lease.terms is not None]


def claim(context: fake_context.FakeContext, number: int = 1, nic: str = "eth1", ifindex: int = 2) -> fake_context.Grant:
    """Prepare one claim of a NIC."""
    share_id = f"share-{number}"
    share = port.Share(id=share_id, interface=nic, ifindex=ifindex, mac=f"02:00:00:00:00:{number:02}", bandwidth=10**9, minor=0x100)
    return context.put(
        driver.Grant(
            claim=claims.ClaimRef(uid=names.ClaimUid(f"uid-{number}"), namespace="default", name=f"claim-{number}"),
            request="uplink",
            pool="node-1",
            device=device.Device(name=nic),
            config=CHOSEN,
            share_id=names.ShareId(share_id),
            record=shares.to_record(share),
        )
    )


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    context = fake_context.FakeContext(tmp_path)
    grant = claim(context)
    world = World(context, grant, FakeServer())
    sandbox_id = address_leases.SandboxId(cookie=7, pod="default/p")
    assert world.leases.acquire(grant, CHOSEN, sandbox_id, TERMS) == (TERMS.address,)
    return world


@pytest.fixture
def three(world: World) -> World:
    """A world with a second lease on eth1, and a third on eth2, which ends last."""
    for number, nic, ifindex in ((2, "eth1", 2), (3, "eth2", 3)):
        terms = dataclasses.replace(TERMS, address=f"10.66.0.5{number}/24", identifier=f"00a{number}", until=TERMS.until + number)
        grant = claim(world.context, number, nic, ifindex)
        world.leases.acquire(grant, CHOSEN, address_leases.SandboxId(cookie=number, pod=f"default/p{number}"), terms)
    return world


def test_a_lease_is_renewed_after_half_of_its_time_and_no_earlier(world: World) -> None:
    world.at(59)
    assert world.server.asked == []
    world.at(61)
    assert world.server.asked == [(2, "00aa", TERMS.address)]
    assert world.until == [61 + SECONDS]
    world.at(61 + 59)
    assert len(world.server.asked) == 1


def test_a_failed_renewal_is_tried_again_and_one_event_says_when_the_lease_is_lost(world: World) -> None:
    world.server.address = ""
    for seconds in (60, 70, 91, 100, 121, 152, 183):
        world.at(seconds)
    assert len(world.server.asked) == 5, "every half minute"
    ((claim, event),) = world.context.events
    assert (claim.name, event.reason) == ("claim-1", "DhcpLeaseLost")
    assert "the DHCP lease of 10.66.0.50/24 of pod default/p ended and was not renewed (DHCP: no lease on eth1)" in event.message
    world.server.address = TERMS.address
    world.at(240)
    assert world.until == [240 + SECONDS]


def test_a_silent_server_delays_a_round_once_and_no_other_nic(three: World) -> None:
    three.server.silent_nics = {2}
    three.at(70)
    assert [(nic, identifier) for nic, identifier, _ in three.server.asked] == [(2, "00aa"), (3, "00a3")]
    three.at(75)
    assert [identifier for _, identifier, _ in three.server.asked[2:]] == ["00a2"], "the failed lease does not delay the other one for ever"
    three.server.asked.clear()
    three.at(SECONDS + 10)
    assert [nic for nic, _, _ in three.server.asked].count(2) == 1
    assert {claim.name for claim, _ in three.context.events} == {"claim-1", "claim-2"}, "also the one that was not tried"


def test_an_error_of_one_lease_ends_the_renewal_of_no_other(three: World) -> None:
    three.server.failing = {"00aa"}
    three.at(70)
    assert [identifier for _, identifier, _ in three.server.asked] == ["00aa", "00a2", "00a3"]


def test_a_claim_that_is_prepared_again_does_not_wait_for_the_former(world: World) -> None:
    world.server.address = ""
    world.at(70)
    world.context.remove(world.grant)
    world.at(75)
    world.server.address = TERMS.address
    world.leases.acquire(world.context.put(world.grant), CHOSEN, address_leases.SandboxId(cookie=7, pod="default/p"), TERMS)
    world.at(80)
    assert world.until == [80 + SECONDS]


def test_another_address_is_no_renewal(world: World) -> None:
    world.server.address = "10.66.0.99/24"
    world.at(60)
    assert world.until == [SECONDS]
    world.at(SECONDS + 1)
    ((_, event),) = world.context.events
    assert "the server 10.66.0.1 gives 10.66.0.99/24 now" in event.message


def test_a_lease_that_was_released_meanwhile_stays_released(world: World) -> None:
    world.server.meanwhile = lambda: world.leases.release(world.grant, address_leases.SandboxId(cookie=7))
    world.at(60)
    assert world.until == []


def test_a_renewal_is_recorded_only_while_nobody_can_release_the_lease(world: World) -> None:
    with world.context.hold(world.grant.device.lock_names):
        world.at(60)
        assert world.until == [SECONDS]
        assert world.context.events == []
    world.at(91)
    assert world.until == [91 + SECONDS]


def test_a_lease_of_an_earlier_boot_is_not_renewed(world: World) -> None:
    world.context.reboot("boot-2")
    world.at(60)
    assert world.server.asked == []


def test_an_address_that_the_server_gives_twice_is_an_error_of_dhcp(world: World) -> None:
    fix = r"gives 10\.66\.0\.50, which is used by the claim default/claim-1 in pod default/p; check the server's leases"
    with pytest.raises(errors.ConfigError, match=fix) as caught:
        world.leases.acquire(claim(world.context, 2), CHOSEN, address_leases.SandboxId(cookie=8, pod="default/q"), TERMS)
    assert caught.value.field == "parameters.dhcp"


def test_an_address_pool_gives_no_ipv4_address_beside_dhcp(world: World) -> None:
    pool = ip_pools.AddressPool(subnet="10.9.0.0/16", first="10.9.1.1", last="10.9.1.3")
    chosen = dataclasses.replace(CHOSEN, address_pools=(pool,))
    sandbox_id = address_leases.SandboxId(cookie=8, pod="default/q")
    terms = dataclasses.replace(TERMS, address="10.66.0.51/24")
    assert world.leases.acquire(world.grant, chosen, sandbox_id, terms) == ("10.66.0.51/24",)


def test_a_pod_has_the_same_identifier_on_the_next_sandbox_and_no_other_pod_has_it() -> None:
    first = dhcp.identifier_of("node-1", "share-1", "pod-1")
    assert first == dhcp.identifier_of("node-1", "share-1", "pod-1")
    others = {
        dhcp.identifier_of(*identity)
        for identity in (("node-2", "share-1", "pod-1"), ("node-1", "share-2", "pod-1"), ("node-1", "share-1", "pod-2"))
    }
    assert len(others | {first}) == 4
    assert bytes.fromhex(first)[0] == 0
