"""The attachments of a share: their records, and the names and marks of their interfaces.

An attachment is one sandbox's use of one share. Its key is the network namespace's cookie, which the kernel never reuses between two boots; it reuses
inode numbers of namespaces at once. The record also has the runtime's sandbox id, for people and for the mark on the interface.
"""

import dataclasses
import hashlib
from collections.abc import Mapping

import drakit
from drakit import wire
from drakit_nic import config, interface_identity, share

MARK = "drakit:"
_KEY_PREFIX = "attach-"
_FORMAT = wire.Format(ignore_unknown=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attachment:
    """One sandbox's use of a share, recorded before the first step. ``nsid`` is the number of the sandbox's namespace in the NIC's namespace.

    ``boot_id`` is empty in a record of an earlier version.
    """

    cookie: interface_identity.Cookie
    nsid: int
    sandbox: str
    pod: str
    name: str
    mac: str
    boot_id: str = ""

    @property
    def key(self) -> str:
        """Return the key of its record in the grant's state."""
        return key_of(self.cookie)


def key_of(cookie: int) -> str:
    """Return the key of the record of the attachment in the namespace of this cookie."""
    return f"{_KEY_PREFIX}{cookie:x}"


def attachments_of(state: Mapping[str, drakit.Record]) -> tuple[Attachment, ...]:
    """Return every recorded attachment of a grant."""
    recorded = (from_record(record) for key, record in state.items() if key.startswith(_KEY_PREFIX))
    return tuple(attachment for attachment in recorded if attachment is not None)


def sandbox_name(sandbox: str, cookie: int) -> str:
    """Return a sandbox's name: its runtime's id, else its namespace."""
    return sandbox or f"netns-{cookie:x}"


def interface_name(wanted: config.NicConfig, share_id: str) -> str:
    """Return the interface's name in the pod: the configured one, else one derived from the share's id, so that no two shares have the same."""
    return wanted.interface_name or f"net{hashlib.sha256(share_id.encode()).hexdigest()[:8]}"


def mac_address(wanted: config.NicConfig, node: str, share_id: str, sandbox: str) -> str:
    """Return the MAC address of a sandbox's interface: the configured one, else one derived from the node, the share and the sandbox."""
    return wanted.mac or share.mac_address(node, f"{share_id}/{sandbox}")


def alias(share_id: str, sandbox: str) -> str:
    """Return the mark that names the share and sandbox of an interface."""
    return f"{MARK}{share_id}:{sandbox}"


def share_of(alias: str) -> str:
    """Return the share that an interface's mark names, empty for an alias that is no mark of the driver."""
    if not alias.startswith(MARK):
        return ""
    return alias.removeprefix(MARK).partition(":")[0]


def to_record(attachment: Attachment) -> drakit.Record:
    """Return the record of an attachment."""
    return _FORMAT.encode(attachment)


def from_record(record: drakit.Record) -> Attachment | None:
    """Return the attachment in a record, None for a record of another kind."""
    return _FORMAT.decode_or_none(Attachment, record)
