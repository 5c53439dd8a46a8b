"""What an attachment is to be, and what is noted of it; pure.

An attachment is one sandbox's use of one share. It is known by its network namespace's cookie, which the kernel never gives twice between two boots;
inode numbers of namespaces are used again at once. A runtime's sandbox id is kept beside it, for people and for the mark on the interface.
"""

import dataclasses
import hashlib

from drakit.core import records
from drakit.devices.nic import config, share

MARK = "drakit:"
_NOTE = "attach-"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attachment:
    """One sandbox's use of a share, as noted before the first step: ``nsid`` is the number by which the NIC's namespace knows the sandbox's."""

    cookie: int
    nsid: int
    sandbox: str
    pod: str
    name: str
    mac: str

    @property
    def key(self) -> str:
        """The key of its note."""
        return key_of(self.cookie)


def key_of(cookie: int) -> str:
    """The key of the note of the attachment in the namespace of this cookie."""
    return f"{_NOTE}{cookie:x}"


def is_key(key: str) -> bool:
    """Whether a note of this key is an attachment's."""
    return key.startswith(_NOTE)


def sandbox_name(sandbox: str, cookie: int) -> str:
    """What a sandbox is called: by its runtime's id, else by its namespace."""
    return sandbox or f"netns-{cookie:x}"


def interface_name(wanted: config.NicConfig, share_id: str) -> str:
    """The interface's name in the pod: as configured, else one that no other share has, so that a program can be told it before a sandbox exists."""
    return wanted.interface_name or f"net{hashlib.sha256(share_id.encode()).hexdigest()[:8]}"


def mac_address(wanted: config.NicConfig, node: str, share_id: str, sandbox: str) -> str:
    """The address of a sandbox's interface: as configured, else one of its own, always the same for the same node, share and sandbox."""
    return wanted.mac or share.mac_address(node, f"{share_id}/{sandbox}")


def alias(share_id: str, sandbox: str) -> str:
    """The mark on an interface of ours: whose it is."""
    return f"{MARK}{share_id}:{sandbox}"


def share_of(marked: str) -> str:
    """The share that a mark names; empty for what is no mark."""
    if not marked.startswith(MARK):
        return ""
    return marked.removeprefix(MARK).partition(":")[0]


def to_record(attachment: Attachment) -> records.Record:
    """The attachment as it is noted. The cookie is text, because 64 bits do not fit every reader's number."""
    return {
        "cookie": f"{attachment.cookie:x}",
        "nsid": attachment.nsid,
        "sandbox": attachment.sandbox,
        "pod": attachment.pod,
        "name": attachment.name,
        "mac": attachment.mac,
    }


def from_record(record: records.Record) -> Attachment | None:
    """The attachment that was noted; None for a record of another kind."""
    match record:
        case {"cookie": str(cookie), "nsid": int(nsid), "sandbox": str(sandbox), "pod": str(pod), "name": str(name), "mac": str(mac)}:
            return Attachment(cookie=int(cookie, 16), nsid=nsid, sandbox=sandbox, pod=pod, name=name, mac=mac)
        case _:
            return None
