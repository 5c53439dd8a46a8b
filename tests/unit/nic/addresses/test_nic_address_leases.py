"""Addresses of sandboxes: from pools, static ones, kept, given back, and never given twice."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import hypothesis
import pytest
from hypothesis import strategies

from drakit.core import claim as claims
from drakit.core import device, driver, errors, names, records
from drakit.testing import fake_context
from drakit_nic import config
from drakit_nic.addresses import address_leases, ip_pools
from drakit_nic.addresses import address_leases as registers

POOL = ip_pools.AddressPool(subnet="10.9.0.0/16", first="10.9.1.1", last="10.9.1.3")
SIX = ip_pools.AddressPool(subnet="fd00::/64", first="fd00::10", last="fd00::11")
POOLED = config.NicConfig(address_pools=(POOL, SIX))
STATIC = config.NicConfig(addresses=("10.1.2.3/24",))


@pytest.fixture
def context(tmp_path: pathlib.Path) -> fake_context.FakeContext:
    return fake_context.FakeContext(tmp_path)


def grant(number: int = 1, chosen: config.NicConfig = POOLED, request: str = "uplink") -> fake_context.Grant:
    return driver.Grant(
        claim=claims.ClaimRef(uid=names.ClaimUid(f"uid-{number}"), namespace="default", name=f"claim-{number}"),
        request=request,
        pool="node-1",
        device=device.Device(name="eth1"),
        config=chosen,
        share_id=names.ShareId(f"share-{number}-{request}"),
    )


def sandbox_id(cookie: int, pod: str = "") -> address_leases.SandboxId:
    return address_leases.SandboxId(cookie=cookie, pod=pod or f"pod-{cookie}")


def leases(context: fake_context.FakeContext, gone: frozenset[int] = frozenset()) -> address_leases.AddressLeases:
    return address_leases.AddressLeases(context, node="node-1", is_alive=lambda lease: lease.sandbox_id.cookie not in gone)


def test_every_sandbox_has_addresses_of_its_own_and_keeps_them(context: fake_context.FakeContext) -> None:
    shares = [context.put(grant(number)) for number in (1, 2)]
    first = leases(context).acquire(shares[0], POOLED, sandbox_id(7))
    second = leases(context).acquire(shares[1], POOLED, sandbox_id(8))
    assert {text.partition("/")[2] for text in (*first, *second)} == {"16", "64"}
    assert not set(first) & set(second)
    assert leases(context).acquire(shares[0], POOLED, sandbox_id(7)) == first, "also in another process, which has only the notes"


def test_two_pods_of_one_share_have_two_addresses(context: fake_context.FakeContext) -> None:
    share = context.put(grant())
    assert not set(leases(context).acquire(share, POOLED, sandbox_id(7))) & set(leases(context).acquire(share, POOLED, sandbox_id(8)))


def test_a_pool_that_is_used_up_is_reported_and_what_is_given_back_is_given_again(context: fake_context.FakeContext) -> None:
    chosen = config.NicConfig(address_pools=(POOL,))
    share = context.put(grant(chosen=chosen))
    given = [leases(context).acquire(share, chosen, sandbox_id(cookie)) for cookie in (1, 2, 3)]
    assert {text for texts in given for text in texts} == {f"10.9.1.{host}/16" for host in (1, 2, 3)}
    with pytest.raises(errors.DeviceBusyError, match=r"^the address pool for IPv4 of this node is used up$"):
        leases(context).acquire(share, chosen, sandbox_id(4))
    for _ in range(2):
        leases(context).release(share, sandbox_id(2))
    assert leases(context).acquire(share, chosen, sandbox_id(4)) == given[1]


def test_what_a_sandbox_that_is_gone_had_is_free(context: fake_context.FakeContext) -> None:
    chosen = config.NicConfig(address_pools=(dataclasses.replace(POOL, last="10.9.1.1"),))
    share = context.put(grant(chosen=chosen))
    assert leases(context).acquire(share, chosen, sandbox_id(1)) == ("10.9.1.1/16",)
    assert leases(context, frozenset({1})).acquire(share, chosen, sandbox_id(2)) == ("10.9.1.1/16",)
    assert [lease.sandbox_id.cookie for lease in address_leases.leases_of(context, share)] == [2]


def test_an_unprepared_claim_has_given_all_back(context: fake_context.FakeContext) -> None:
    chosen = config.NicConfig(address_pools=(dataclasses.replace(POOL, last="10.9.1.1"),))
    leases(context).acquire(context.put(grant(chosen=chosen)), chosen, sandbox_id(1))
    context.remove(grant(chosen=chosen))
    assert leases(context).acquire(context.put(grant(2, chosen)), chosen, sandbox_id(2)) == ("10.9.1.1/16",)


def test_a_static_address_with_a_second_pod_is_refused_by_name(context: fake_context.FakeContext) -> None:
    share = context.put(grant(chosen=STATIC))
    assert leases(context).acquire(share, STATIC, sandbox_id(7)) == ("10.1.2.3/24",)
    with pytest.raises(errors.ConfigError) as refused:
        leases(context).acquire(share, STATIC, sandbox_id(8))
    assert str(refused.value) == (
        "parameters.addresses: 10.1.2.3 is used by another pod of the claim default/claim-1 in pod pod-7; pods that share a claim need an "
        "address pool in the DeviceClass"
    )


def test_a_new_sandbox_of_the_same_pod_takes_the_address_over(context: fake_context.FakeContext) -> None:
    share = context.put(grant(chosen=STATIC))
    for cookie in (7, 8):
        assert leases(context).acquire(share, STATIC, sandbox_id(cookie, "pod-a")) == ("10.1.2.3/24",)
    assert [lease.sandbox_id.cookie for lease in address_leases.leases_of(context, share)] == [8]


@pytest.mark.parametrize(
    "cookie, message", [(7, "which this pod uses too"), (8, "10.1.2.3 is used by the claim default/claim-1 in pod pod-7")]
)
def test_two_claims_with_one_static_address_are_refused_by_name(context: fake_context.FakeContext, cookie: int, message: str) -> None:
    leases(context).acquire(context.put(grant(1, STATIC)), STATIC, sandbox_id(7))
    with pytest.raises(errors.ConfigError, match=message):
        leases(context).acquire(context.put(grant(2, STATIC)), STATIC, sandbox_id(cookie))


def test_prepared_shares_of_one_claim_with_one_address_are_refused(context: fake_context.FakeContext) -> None:
    """When they are planned they are refused by both names (see test_nic_claim_conflicts)."""
    first, second = (context.put(grant(1, STATIC, request)) for request in ("uplink", "storage"))
    leases(context).acquire(first, STATIC, sandbox_id(7))
    with pytest.raises(errors.ConfigError, match=r"10.1.2.3 is used by the claim default/claim-1 in pod pod-7, which this pod uses too"):
        leases(context).acquire(second, STATIC, sandbox_id(7))


class CountingContext(fake_context.FakeContext):
    """Counts what is read: the grants handed out, and the grants whose notes were asked for."""

    read = 0

    def grants(self) -> Sequence[fake_context.Grant]:
        grants = super().grants()
        self.read += len(grants)
        return grants

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> fake_context.Grant | None:
        self.read += 1
        return next((grant for grant in super().grants() if (grant.claim.uid, grant.share_id) == (uid, share_id)), None)

    def state(self, grant: fake_context.Grant) -> Mapping[str, records.Record]:
        self.read += 1
        return super().state(grant)


WIDE = config.NicConfig(address_pools=(dataclasses.replace(POOL, last="10.9.8.1"),))


@pytest.mark.parametrize("chosen", [WIDE, STATIC], ids=["from a pool", "a static address"])
def test_what_an_address_costs_does_not_grow_with_the_claims(tmp_path: pathlib.Path, chosen: config.NicConfig) -> None:
    costs = []
    for others in (2, 200):
        context = CountingContext(tmp_path)
        register = registers.AddressIndex(tmp_path)
        own = address_leases.AddressLeases(context, node="node-1", index=register)
        for number in range(others):
            own.acquire(context.put(grant(number, WIDE)), WIDE, sandbox_id(number))
        context.read = 0
        own.acquire(context.put(grant(others, chosen)), chosen, sandbox_id(others))
        costs.append(context.read)
    assert costs[0] == costs[1] <= 3


def test_an_exhausted_pool_costs_one_read_of_all_records_and_one_of_the_kernel(tmp_path: pathlib.Path) -> None:
    context, looks, asked = CountingContext(tmp_path), [0], list[int]()

    def survey() -> address_leases.IsAlive:
        looks[0] += 1
        return lambda lease: lease.sandbox_id.cookie != 50

    def is_alive(lease: address_leases.Lease) -> bool:
        asked.append(lease.sandbox_id.cookie)
        return True

    full = config.NicConfig(address_pools=(dataclasses.replace(POOL, last="10.9.1.100"),))
    own = address_leases.AddressLeases(context, node="node-1", is_alive=is_alive, survey=survey, index=registers.AddressIndex(tmp_path))
    given = [own.acquire(context.put(grant(number, full)), full, sandbox_id(number)) for number in range(100)]
    last = context.put(grant(100, full))
    context.read = 0
    assert own.acquire(last, full, sandbox_id(100)) == given[50], "what the sandbox that is gone had"
    assert looks == [1]
    assert asked == []
    assert context.read <= 2 * 101 + 5, "the grants and their notes, once each"


def test_what_another_process_gave_out_is_not_given_again(context: fake_context.FakeContext) -> None:
    chosen = config.NicConfig(address_pools=(POOL,))
    share = context.put(grant(chosen=chosen))
    old, new = (address_leases.AddressLeases(context, node="node-1", index=registers.AddressIndex(context.data_dir)) for _ in range(2))
    given = [process.acquire(share, chosen, sandbox_id(cookie)) for cookie, process in ((1, old), (2, new), (3, old))]
    assert len(set(given)) == 3
    with pytest.raises(errors.DeviceBusyError):
        new.acquire(share, chosen, sandbox_id(4))


def test_what_another_process_took_back_is_free(context: fake_context.FakeContext) -> None:
    first, second = context.put(grant(1, STATIC)), context.put(grant(2, STATIC))
    old, new = leases(context), leases(context)
    old.acquire(first, STATIC, sandbox_id(7))
    new.release(first, sandbox_id(7))
    assert old.acquire(second, STATIC, sandbox_id(8)) == ("10.1.2.3/24",)


def test_addresses_of_unprepared_claims_are_free_even_if_their_end_was_not_reported(
    context: fake_context.FakeContext,
) -> None:
    chosen = config.NicConfig(address_pools=(dataclasses.replace(POOL, last="10.9.1.1"),))
    own = leases(context)
    for number, result in ((1, True), (2, False), (3, True)):
        share = context.put(grant(number, chosen))
        assert own.acquire(share, chosen, sandbox_id(number)) == ("10.9.1.1/16",)
        if result:
            own.end(share)
        context.remove(share)


def test_nothing_is_given_out_where_other_processes_could_not_be_notified(tmp_path: pathlib.Path) -> None:
    context = fake_context.FakeContext(tmp_path / "no such folder")
    share = context.put(grant())
    with pytest.raises(errors.HardwareError, match=r"addresses.by failed"):
        leases(context).acquire(share, POOLED, sandbox_id(1))
    assert context.state(share) == {}


def test_own_addresses_leave_the_pool_of_their_family_alone(context: fake_context.FakeContext) -> None:
    both = dataclasses.replace(POOLED, addresses=("10.1.2.3/24",))
    assert leases(context).acquire(context.put(grant(chosen=both)), both, sandbox_id(7))[0] == "10.1.2.3/24"
    assert len(address_leases.leases_of(context, grant(chosen=both))[0].addresses) == 2


def test_only_what_is_taken_is_locked_for() -> None:
    assert address_leases.locks_for(config.NicConfig()) == ()
    assert address_leases.locks_for(POOLED) == address_leases.locks_for(STATIC) == (address_leases.LOCK,)


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.integers(1, 200), strategies.integers(0, 2**32), strategies.data())
def test_a_pool_gives_each_address_once(size: int, start: int, data: strategies.DataObject) -> None:
    pool = ip_pools.AddressPool(subnet="10.9.0.0/16", first="10.9.1.1", last=f"10.9.1.{size}")
    taken: set[str] = set()
    for _ in range(size):
        address = pool.free(taken, start)
        assert address is not None
        host = address.partition("/")[0]
        assert host not in taken
        assert pool.holds(ip_pools.host(host, ""))
        taken.add(host)
    assert pool.free(taken, start) is None


def test_a_reboot_ends_the_leases_of_its_boot_at_once(context: fake_context.FakeContext) -> None:
    first, second = context.put(grant(1, STATIC)), context.put(grant(2, STATIC))
    leases(context).acquire(first, STATIC, sandbox_id(7))
    with pytest.raises(errors.ConfigError, match="is used by the claim"):
        leases(context).acquire(second, STATIC, sandbox_id(8))
    context.reboot("boot-2")
    assert leases(context).acquire(second, STATIC, sandbox_id(8)) == STATIC.addresses
    assert not address_leases.leases_of(context, first)


def test_a_cookie_of_an_earlier_boot_is_another_sandbox(context: fake_context.FakeContext) -> None:
    shares = [context.put(grant(number)) for number in (1, 2)]
    before = leases(context).acquire(shares[0], POOLED, sandbox_id(7, "old"))
    context.reboot("boot-2")
    assert leases(context).acquire(shares[1], POOLED, sandbox_id(7, "other"))
    assert leases(context).acquire(shares[0], POOLED, sandbox_id(7, "new"))
    (lease,) = address_leases.leases_of(context, shares[0])
    assert (lease.sandbox_id.pod, lease.boot_id) == ("new", "boot-2")
    assert before
