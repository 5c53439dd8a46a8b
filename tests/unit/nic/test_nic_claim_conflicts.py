"""What the grants of one claim ask for together is refused when they are planned, with both names, and never by mistake."""

import pathlib

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import errors, names, quantity
from drakit_nic import config, driver, mock_port, options

FIRST, SECOND = "pci-0000-0c-00-0", "pci-0000-4b-00-0"
NAMED = config.NicConfig(interface_name="fast0")
ADDRESSED = config.NicConfig(addresses=("10.1.2.3/24", "fd00::5/64"))
Nics = driver.NicDriver
Grant = drivers.Grant[config.NicConfig]


@pytest.fixture
def nics(tmp_path: pathlib.Path) -> Nics:
    machine = mock_port.MockPort(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))
    return Nics(machine, node="node-1", options=options.NicOptions(whole=("eth1",)))


def grant(nics: Nics, request: str, chosen: config.NicConfig, *, device: str = FIRST, claim: int = 1, share: int = 1) -> Grant:
    whole = device.endswith("-whole")
    ref = claims.ClaimRef(uid=names.ClaimUid(f"00000000-0000-4000-8000-{claim:012}"), namespace="default", name=f"claim-{claim}")
    return Grant(
        claim=ref,
        request=request,
        pool="node-1",
        device=nics.discover().by_name()[device],
        config=chosen,
        share_id=None if whole else names.ShareId(f"{share:08}-0000-4000-8000-{claim:012}"),
        consumed_capacity={} if whole else {"bandwidth": quantity.Quantity.of("1G")},
    )


@pytest.mark.parametrize("device", [FIRST, SECOND], ids=["of one NIC", "of two NICs"])
@pytest.mark.parametrize(
    "chosen, other, message",
    [
        (NAMED, NAMED, "'fast0' is requested by the requests uplink and storage of claim default/claim-1"),
        (ADDRESSED, config.NicConfig(addresses=("10.1.2.3/16",)), "10.1.2.3 is requested by the requests uplink and storage"),
        (ADDRESSED, config.NicConfig(addresses=("fd00::5/48",)), "fd00::5 is requested by the requests uplink and storage"),
    ],
    ids=["a name", "an address", "an IPv6 address"],
)
def test_conflicting_shares_of_one_claim_are_refused_before_anything_changes(
    nics: Nics, device: str, chosen: config.NicConfig, other: config.NicConfig, message: str
) -> None:
    nics.plan(grant(nics, "uplink", chosen))
    with pytest.raises(errors.ConfigError, match=message):
        nics.plan(grant(nics, "storage", other, device=device, share=2))


def test_one_request_for_several_nics_with_one_name_is_refused_too(nics: Nics) -> None:
    nics.plan(grant(nics, "uplink", NAMED))
    with pytest.raises(errors.ConfigError, match="'fast0' is requested twice by the request uplink") as refused:
        nics.plan(grant(nics, "uplink", NAMED, device=SECOND, share=2))
    assert refused.value.field == "interfaceName"


def test_a_whole_interface_keeps_its_name_from_a_share(nics: Nics) -> None:
    nics.plan(grant(nics, "hardware", config.NicConfig(), device=f"{FIRST}-whole"))
    with pytest.raises(errors.ConfigError, match="'eth1' is requested by the requests hardware and uplink"):
        nics.plan(grant(nics, "uplink", config.NicConfig(interface_name="eth1"), device=SECOND))


def test_what_differs_and_what_nobody_chose_is_planned(nics: Nics) -> None:
    for number, chosen in enumerate((config.NicConfig(), config.NicConfig(), NAMED, ADDRESSED), start=1):
        nics.plan(grant(nics, f"net-{number}", chosen, share=number))


def test_another_claim_and_the_same_one_asked_again_are_no_siblings(nics: Nics) -> None:
    nics.plan(grant(nics, "uplink", NAMED, claim=1))
    nics.plan(grant(nics, "uplink", NAMED, claim=2))
    for _ in range(3):
        nics.plan(grant(nics, "uplink", NAMED, claim=2))


def test_a_claim_that_was_refused_and_allocated_anew_is_judged_anew(nics: Nics) -> None:
    nics.plan(grant(nics, "uplink", NAMED))
    with pytest.raises(errors.ConfigError):
        nics.plan(grant(nics, "storage", NAMED, share=2))
    nics.plan(grant(nics, "uplink", NAMED, share=3))


def test_a_claim_that_was_prepared_and_allocated_anew_is_judged_anew(nics: Nics) -> None:
    first = grant(nics, "uplink", NAMED)
    nics.prepare(first)
    nics.plan(first)
    nics.prepare(first)
    nics.plan(grant(nics, "uplink", NAMED, share=2))
