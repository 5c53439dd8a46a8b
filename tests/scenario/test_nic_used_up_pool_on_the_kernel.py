"""A pool that seems to be used up is looked through with one look at the kernel: what ended sandboxes had is given out, what others have is not."""

from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from fakes import netns, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture
def driver() -> Iterator[nic_attach.Running]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_attach.world() as world, world.driver() as made:
        yield made


def pooled(number: int) -> claims.Claim:
    pool = {"subnet": "10.9.0.0/16", "first": "10.9.1.1", "last": "10.9.1.2"}
    return nic_attach.claim(number, parameters={"addressPools": [pool]}, source=claims.ConfigSource.CLASS)


def noted(driver: nic_attach.Running) -> dict[str, list[str]]:
    """The addresses that are noted, by claim."""
    context = driver.local.context
    return {
        grant.claim.name: [str(record["addresses"]) for record in context.state(grant).values() if "addresses" in record]
        for grant in context.grants()
    }


def end(driver: nic_attach.Running, claim: str) -> None:
    """What the driver does when it finds a sandbox gone, short of giving its address back."""
    context = driver.local.context
    (grant,) = (one for one in context.grants() if one.claim.name == claim)
    cookies = {int(str(record["cookie"]), 16) for record in context.state(grant).values() if "addresses" in record}
    (gone,) = (member for member in driver.members() if member.cookie in cookies)
    (share,) = (one for one in driver.machine.shares() if one.id == gone.share_id)
    driver.machine.dismiss(share, cookie=gone.cookie, mac=gone.mac)


def test_only_the_address_of_a_sandbox_that_ended_is_leased_again(driver: nic_attach.Running) -> None:
    first, second, third = (driver.prepare(pooled(number)) for number in (1, 2, 3))
    with nic_attach.pod("lives") as living, nic_attach.pod("ends") as ending, nic_attach.pod("next") as following:
        assert driver.world.call(first, living).code == 0
        assert driver.world.call(second, ending).code == 0
        refused = driver.world.call(third, following)
        assert "the address pool for IPv4 of this node is used up" in refused.stderr
        before = noted(driver)
        end(driver, "claim-2")
        assert driver.world.call(third, following) == nic_attach.Said(0, "")
        assert noted(driver) == {"claim-1": before["claim-1"], "claim-2": [], "claim-3": before["claim-2"]}
        for ref in (first, second, third):
            driver.unprepare(ref)


def static(number: int) -> claims.Claim:
    return nic_attach.claim(number, parameters={"addresses": ["10.9.1.1/16"]}, source=claims.ConfigSource.CLASS)


def test_an_address_is_free_when_the_namespace_of_its_sandbox_is_gone(driver: nic_attach.Running) -> None:
    first, second = (driver.prepare(static(number)) for number in (1, 2))
    with nic_attach.pod("next") as following:
        with nic_attach.pod("lives") as living:
            assert driver.world.call(first, living) == nic_attach.Said(0, "")
            assert "10.9.1.1 is used by the claim default/claim-1" in driver.world.call(second, following).stderr
        nic_attach.until(lambda: driver.world.call(second, following).code == 0, "the kernel ends a namespace after its last process", 10.0)
    for ref in (first, second):
        driver.unprepare(ref)
