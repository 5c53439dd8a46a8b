"""A node with several pools: its devices are known by their names, and a claim keeps the pool from which it was allocated."""

import pytest

import drakit
from drakit import testing
from drakit.core import claim as claims
from fakes import banks


@pytest.fixture
def pools() -> dict[str, str | None]:
    return {"plain-0": None, "fast-0": "fast", "fast-1": "fast", "slow-0": "slow"}


@pytest.fixture
def made() -> dict[str, str]:
    return {}


def test_one_claim_may_have_devices_of_every_pool(pools: dict[str, str | None], made: dict[str, str]) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        claim = node.claim("plain-0", "fast-0", "slow-0")
        answer = node.try_prepare(claim)
        assert [(one.pool, one.device) for one in answer.devices] == [
            ("test-node", "plain-0"),
            ("test-node/fast", "fast-0"),
            ("test-node/slow", "slow-0"),
        ]
        assert made == {"plain-0": "test-node", "fast-0": "test-node/fast", "slow-0": "test-node/slow"}
        node.restart()
        assert node.try_prepare(claim) == answer
        assert [grant.pool for grant in node.context.grants()] == ["test-node", "test-node/fast", "test-node/slow"]
        node.unprepare(claim)
        assert (node.is_clean, made) == (True, {})


def test_a_claim_on_a_pool_that_the_device_left_is_refused_with_both_names(pools: dict[str, str | None], made: dict[str, str]) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        claim = node.claim("fast-0")
        pools["fast-0"] = "slow"
        assert node.offered.devices
        error = node.try_prepare(claim).error
        assert "results[0].pool: device 'fast-0' is in pool 'test-node/slow', not in 'test-node/fast'" in error
        assert (node.is_clean, made) == (True, {})


def test_a_device_that_came_to_its_pool_since_the_last_discovery_is_prepared(pools: dict[str, str | None], made: dict[str, str]) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        pools["fast-0"] = "slow"
        claim = node.claim("fast-0")
        pools["fast-0"] = "fast"
        assert node.offered.devices
        pools["fast-0"] = "slow"
        node.prepare(claim)
        assert made == {"fast-0": "test-node/slow"}


@pytest.mark.parametrize("now", ["slow", None])
def test_a_prepared_claim_keeps_its_pool_when_its_device_moves(pools: dict[str, str | None], made: dict[str, str], now: str | None) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        claim = node.claim("fast-0")
        before = node.prepare(claim)
        grant = node.context.grants()[0]
        node.context.set_state(grant, "key", {"value": 1})
        pools["fast-0"] = now
        for boot in (None, "boot-2"):
            node.restart(boot_id=boot)
            assert node.prepare(claim) == before
            assert made == {"fast-0": "test-node/fast"}
            if boot is None:
                assert node.context.state(node.context.grants()[0]) == {"key": {"value": 1}}
        node.unprepare(claim)
        assert (node.is_clean, made) == (True, {})


def test_a_device_that_moved_is_busy_while_its_earlier_claim_has_it(pools: dict[str, str | None], made: dict[str, str]) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        first = node.claim("fast-0", name="first")
        node.prepare(first)
        pools["fast-0"] = "slow"
        second = node.claim("fast-0")
        assert "fast-0 is still held by claim default/first" in node.try_prepare(second).error
        assert made == {"fast-0": "test-node/fast"}
        node.unprepare(first)
        node.prepare(second)
        assert made == {"fast-0": "test-node/slow"}


def test_a_claim_left_half_prepared_goes_on_after_its_device_moved(pools: dict[str, str | None], made: dict[str, str]) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        claim = node.claim("fast-0", "slow-0")
        driver = node.driver
        assert isinstance(driver, banks.BankDriver)
        driver.refusals.append(drakit.RetryError("not yet", after=1.0))
        assert "not yet" in node.try_prepare(claim).error
        pools.update({"fast-0": None, "slow-0": "fast"})
        node.prepare(claim)
        assert made == {"fast-0": "test-node/fast", "slow-0": "test-node/slow"}
        node.unprepare(claim)
        assert (node.is_clean, made) == (True, {})


def test_a_lost_journal_is_restored_with_the_pools_of_the_claims(pools: dict[str, str | None], made: dict[str, str]) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        kept, gone = node.claim("fast-0", "plain-0"), node.claim("slow-0")
        before = node.prepare(kept)
        node.prepare(gone)
        node.claims.remove(gone)
        pools["fast-0"] = "slow"
        node.lose_journal()
        known = {entry.claim.uid: [grant.pool for grant in entry.grants] for entry in node.entries}
        assert known == {kept.uid: ["test-node/fast", "test-node"], gone.uid: ["test-node/slow"]}
        assert node.prepare(kept) == before
        for claim in (kept, gone):
            node.unprepare(claim)
        assert (node.is_clean, made) == (True, {})


@pytest.mark.parametrize("pool", ["test-node/", "test-node/fast/x", "test-node/probe", "test-node/FAST", "test-nodes"])
def test_a_claim_that_lies_about_its_pool_is_refused(pools: dict[str, str | None], made: dict[str, str], pool: str) -> None:
    with testing.Node(lambda: banks.BankDriver(pools, made)) as node:
        ref = node.claims.put(
            claims.Claim(
                ref=node.claim("plain-0"),
                results=(claims.AllocationResult(request="r", driver=banks.BankDriver.name, pool=pool, device="fast-0"),),
            )
        )
        assert "results[0].pool" in node.try_prepare(ref).error
        assert (node.is_clean, made) == (True, {})


def test_a_driver_with_pools_keeps_the_contract(pools: dict[str, str | None], made: dict[str, str]) -> None:
    report = testing.check_driver(
        lambda: banks.BankDriver(pools, made),
        hardware=lambda: dict(made),
        device_names=["plain-0", ("fast-0", "slow-0")],
        every=29,
    )
    assert report.crash_points > 12


def test_a_name_in_two_pools_is_an_error_of_the_driver() -> None:
    class Twice(banks.BankDriver):
        def discover(self) -> drakit.Inventory:
            return drakit.Inventory.of([drakit.Device(name="a", pool="one"), drakit.Device(name="a", pool="two")])

    with pytest.raises(drakit.InventoryError, match="used in the pools NODE/one and NODE/two"):
        testing.Node(lambda: Twice({}, {})).close()
