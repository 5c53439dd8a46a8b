"""What the container is told of its share.

One environment variable a fact, all beginning with ``DRAKIT_NIC_<REQUEST>_<SHARE>_``: the request's name, by which a program finds its share, and
the share's id, which keeps apart the shares of two claims that use one request name, or of one request for several NICs. In both, letters are
upper-case and everything but letters and digits is '_'. Facts:

    DEVICE      the device's name in the ResourceSlice
    NIC         the host's interface
    BANDWIDTH   the share's rate in bits per second
    MAC         the share's own address; only on a mock machine, because elsewhere every sandbox of a share has an address of its own
    INTERFACE   the interface's name: as NicConfig.interfaceName asks, else one chosen by the driver; on a mock machine only what was asked for
"""

import re
from collections.abc import Mapping

from drakit.core import edits
from drakit.devices.nic import port

_PREFIX = "DRAKIT_NIC"
_NOT_NAME = re.compile(r"[^A-Z0-9]")


def of(share: port.Share, *, request: str, device: str, interface_name: str, hook: edits.Hook | None = None) -> edits.Edits:
    """The edits of one share; ``hook`` is what makes the interface."""
    facts = {
        "DEVICE": device,
        "NIC": share.interface,
        "BANDWIDTH": str(share.bandwidth),
        "MAC": share.mac if hook is None else "",
        "INTERFACE": interface_name,
    }
    return edits.Edits(env=variables(request, share.id, facts), hooks=() if hook is None else (hook,))


def variables(request: str, share_id: str, facts: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of one share or whole interface; facts that are empty are left out."""
    prefix = _NOT_NAME.sub("_", f"{_PREFIX}_{request}_{share_id}".upper())
    return {f"{prefix}_{fact}": value for fact, value in facts.items() if value}
