"""The identity of a share: pure, so that it can be found again from a grant alone, in another process and after a crash."""

import hashlib
from collections.abc import Mapping

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import errors, names, quantity, records
from drakit.devices.nic import port
from drakit.devices.nic.discovery import attributes

_LOCAL = 0b10
_GROUP = 0b01


def identity(claim: claims.ClaimRef, device: devices.Device, share_id: names.ShareId | None) -> str:
    """The share's id on this node: the share id, or, of a device that is given whole, claim and device."""
    return share_id or f"{claim.uid}-{device.name}"


def check_id(device: devices.Device, share_id: names.ShareId | None) -> None:
    """Raise ClaimError for a share of a shared device that has no id."""
    if share_id is None and device.allow_multiple_allocations:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, f"a share of {device.name} needs an id", field="shareID")


def mac_address(node: str, share: str) -> str:
    """A locally administered unicast address that is always the same for a share of a node; 46 bits of a hash, so that no two of a network meet."""
    octets = bytearray(hashlib.sha256(f"{node}\0{share}".encode()).digest()[:6])
    octets[0] = (octets[0] | _LOCAL) & ~_GROUP
    return octets.hex(":")


def bandwidth(device: devices.Device, consumed: Mapping[str, quantity.Quantity], driver: str) -> int:
    """What the share may use, in bits per second: what the scheduler accounted, or all of a device that is given whole.

    Raises ClaimError when nothing was accounted, or not a whole number of bits per second within the device's capacity.
    """
    field = f"consumedCapacity[{attributes.BANDWIDTH}]"
    whole = device.capacity[attributes.BANDWIDTH].value
    amount = consumed.get(attributes.BANDWIDTH, consumed.get(f"{driver}/{attributes.BANDWIDTH}"))
    if amount is None and not device.allow_multiple_allocations:
        amount = whole
    if amount is None:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, f"the share of {device.name} has no bandwidth", field=field)
    if not quantity.ZERO < amount <= whole or amount != quantity.Quantity.of(amount.value):
        raise errors.ClaimError(
            errors.ClaimFault.MALFORMED, f"{amount} is not a whole rate above 0 and up to the {whole} of {device.name}", field=field
        )
    return amount.value


def to_record(share: port.Share) -> records.Record:
    """The share as the journal keeps it."""
    return {
        "id": share.id,
        "interface": share.interface,
        "ifIndex": share.ifindex,
        "mac": share.mac,
        "bandwidth": share.bandwidth,
        "ceil": share.ceil,
        "minor": share.minor,
    }


def from_record(record: records.Record) -> port.Share | None:
    """The share a record describes; None for a record of another kind, such as the empty one of a grant without a share."""
    match record:
        case {"id": str(identity), "interface": str(interface), "ifIndex": int(ifindex), "mac": str(mac), "bandwidth": int(bandwidth)}:
            ceil, minor = record.get("ceil"), record.get("minor")
            return port.Share(
                id=identity,
                interface=interface,
                ifindex=ifindex,
                mac=mac,
                bandwidth=bandwidth,
                ceil=ceil if isinstance(ceil, int) else 0,
                minor=minor if isinstance(minor, int) else 0,
            )
        case _:
            return None
