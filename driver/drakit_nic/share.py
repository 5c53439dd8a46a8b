"""A share: its id and rate, checks of its configuration, the container's variables, and conflicts within a claim.

The id is derived from the grant alone, so another process finds the share again after a crash.

A container gets one environment variable for each fact. Its name begins with ``DRAKIT_NIC_<REQUEST>_<SHARE>_``: a program finds its share by the
request's name, and the share's id separates the shares of two claims with the same request name, or of one request for several NICs. Letters are
upper-case in both, and everything but letters and digits is '_'. Facts:

    DEVICE      the device's name in the ResourceSlice
    NIC         the host's interface
    BANDWIDTH   the share's rate in bits per second
    MAC         the share's own address; only on a mock machine, because elsewhere each sandbox of a share has its own address
    INTERFACE   the interface's name: NicConfig.interfaceName, else one chosen by the driver; on a mock machine only what was configured

Every pod that uses a claim gets all its grants, so two grants of a claim must not request the same name or address. Grants are checked while they are
planned, one after the other in one thread, before anything changes. Conflicts between claims of one pod are detected only when the pod attaches.
"""

import dataclasses
import hashlib
import re
import threading
from collections.abc import Mapping

import drakit
from drakit import wire
from drakit_nic import config, port
from drakit_nic.discovery import attributes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """The name and addresses that one grant requests in the pod.

    ``key`` identifies the grant, ``name`` is the interface's name, ``hosts`` are its addresses without prefixes.
    """

    key: str
    request: str
    name: str
    hosts: frozenset[str] = frozenset()


class ClaimConflicts:
    """The planned grants of the claim that the calling thread is planning. Safe between threads."""

    def __init__(self) -> None:
        self._local = threading.local()

    def add(self, claim: drakit.ClaimRef, wanted: Wanted) -> None:
        """Add a grant of the claim. Raises ConfigError where it conflicts with an earlier one."""
        planned, earlier = getattr(self._local, "planned", (None, ()))
        is_same_plan = planned == claim.uid and wanted.key not in {other.key for other in earlier}
        others: tuple[Wanted, ...] = earlier if is_same_plan else ()
        self._local.planned = (None, ())  # After an error the claim is planned again from its first grant.
        for other in others:
            check_apart(claim, other, wanted)
        self._local.planned = (claim.uid, (*others, wanted))

    def clear(self) -> None:
        """Remove the planned grants, because the claim is planned."""
        self._local.planned = (None, ())


def check_apart(claim: drakit.ClaimRef, first: Wanted, second: Wanted) -> None:
    """Raise ConfigError where two grants of a claim request the same name or address."""
    requests = (
        f"by the requests {first.request} and {second.request}"
        if first.request != second.request
        else f"twice by the request {first.request}"
    )
    if first.name and first.name == second.name:
        raise drakit.ConfigError(f"{first.name!r} is requested {requests} of claim {claim}", field="interfaceName")
    for address in sorted(first.hosts & second.hosts):
        raise drakit.ConfigError(f"{address} is requested {requests} of claim {claim}", field="addresses")


_VARIABLE_PREFIX = "DRAKIT_NIC"
_NOT_IN_VARIABLE = re.compile(r"[^A-Z0-9]")
_LOCAL = 0b10
_GROUP = 0b01
_FORMAT = wire.Format(ignore_unknown=True, fields={(port.Share, "ifindex"): wire.Field(name="ifIndex")})

Grant = drakit.Grant[config.NicConfig]


def id_on_node(claim: drakit.ClaimRef, device: drakit.Device, share_id: drakit.ShareId | None) -> str:
    """Return the share's id on this node: the grant's share id, or claim and device for a whole device."""
    return share_id or f"{claim.uid}-{device.name}"


def check_id(device: drakit.Device, share_id: drakit.ShareId | None) -> None:
    """Raise ClaimError for a share of a shared device that has no id."""
    if share_id is None and device.allow_multiple_allocations:
        raise drakit.ClaimError(drakit.ClaimFault.MALFORMED, f"a share of {device.name} needs an id", field="shareID")


def mac_address(node: str, share: str) -> str:
    """Return a locally administered unicast MAC address, 46 bits of a hash of the node and the share."""
    octets = bytearray(hashlib.sha256(f"{node}\0{share}".encode()).digest()[:6])
    octets[0] = (octets[0] | _LOCAL) & ~_GROUP
    return octets.hex(":")


def bandwidth(device: drakit.Device, consumed: Mapping[str, drakit.Quantity], driver: str) -> int:
    """Return the share's rate in bits per second: the consumed capacity that the scheduler recorded, or all of a whole device.

    Raises ClaimError where a share has no consumed capacity, or one that is not a whole number of bits per second within the device's capacity.
    """
    field = f"consumedCapacity[{attributes.BANDWIDTH}]"
    whole = device.capacity[attributes.BANDWIDTH].value
    amount = consumed.get(attributes.BANDWIDTH, consumed.get(f"{driver}/{attributes.BANDWIDTH}"))
    if amount is None and not device.allow_multiple_allocations:
        amount = whole
    if amount is None:
        raise drakit.ClaimError(drakit.ClaimFault.MALFORMED, f"the share of {device.name} has no bandwidth", field=field)
    if not drakit.ZERO < amount <= whole or amount != drakit.Quantity.of(amount.value):
        raise drakit.ClaimError(
            drakit.ClaimFault.MALFORMED, f"{amount} is not a whole rate above 0 and up to the {whole} of {device.name}", field=field
        )
    return amount.value


def to_record(share: port.Share) -> drakit.Record:
    """Return the record of a share for the journal."""
    return _FORMAT.encode(share)


def from_record(record: drakit.Record) -> port.Share | None:
    """Return the share in a record, None for another record, such as the empty one of a grant without a share."""
    return _FORMAT.decode_or_none(port.Share, record)


def check_config(grant: Grant, interface: port.Interface, node: str, child: port.ChildKind) -> None:
    """Raise ConfigError where a share of this interface cannot have its grant's configuration."""
    chosen = grant.config
    config.check(chosen, node=node)
    _check_mtu(chosen, interface.mtu, interface.name)
    config.check_no_function(chosen, f"this is a share of {interface.name}")
    if child is port.ChildKind.IPVLAN:
        config.check_ipvlan(chosen, interface.name)
    if chosen.mac == interface.mac:
        raise drakit.ConfigError(f"{chosen.mac} is the address of {interface.name} itself", field="mac")


def check_device(decoded: object, values: Mapping[str, object]) -> None:
    """Raise ConfigError where a device with these attributes cannot have a configuration: a NIC of shares, whose MTU is below."""
    limit = values.get("mtu")
    if isinstance(decoded, config.NicConfig) and isinstance(limit, int) and values.get(attributes.FORM) == attributes.SHARED:
        _check_mtu(decoded, limit, str(values.get(attributes.IF_NAME)))


def _check_mtu(chosen: config.NicConfig, limit: int, name: str) -> None:
    if chosen.mtu is not None and chosen.mtu > limit:
        raise drakit.ConfigError(f"{chosen.mtu} is above the {limit} of {name}, on which the share is", field="mtu")


def container_edits(share: port.Share, *, request: str, device: str, interface_name: str, hook: drakit.Hook | None = None) -> drakit.Edits:
    """Return the container edits of one share, with the hook that creates the interface."""
    facts = {
        "DEVICE": device,
        "NIC": share.interface,
        "BANDWIDTH": str(share.bandwidth),
        "MAC": share.mac if hook is None else "",
        "INTERFACE": interface_name,
    }
    return drakit.Edits(env=variables(request, share.id, facts), hooks=() if hook is None else (hook,))


def variables(request: str, share_id: str, facts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment variables of one share or whole interface. Empty facts are left out."""
    prefix = _NOT_IN_VARIABLE.sub("_", f"{_VARIABLE_PREFIX}_{request}_{share_id}".upper())
    return {f"{prefix}_{fact}": value for fact, value in facts.items() if value}
