"""The kernel's refusals of an interface's configuration in a pod, as errors that name the field, its value and the fix."""

import contextlib
from collections.abc import Iterator, Mapping

from drakit_nic.netlink import route_requests

_FIXES: Mapping[str, str] = {
    "interfaceName": "choose a different NicConfig.interfaceName",
    "mode": "load the kernel modules macvlan and, for mode bridge, sch_tbf; the NIC must have no bridge or passthru macvlan of others",
    "mac": "choose a different NicConfig.mac; another interface of the NIC may have it, or the NIC's driver may not allow it",
    "mtu": "set NicConfig.mtu to at most the NIC's MTU",
    "sysctls": "remove it from the DeviceClass; sysctls of ipv6 exist only where the node has IPv6",
    "addresses": "remove it, or choose another; IPv6 addresses need IPv6 on the node and in the pod (sysctl disable_ipv6 0)",
    "neighbours": "remove it, or choose another address; IPv6 needs IPv6 on the node and in the pod",
    "routes": "give it a gateway that an address of the interface covers, or remove it; IPv6 needs IPv6 on the node and in the pod",
    "rules": "remove it, or choose another priority; IPv6 needs IPv6 on the node and in the pod",
}
"""The fix by field of NicConfig."""


@contextlib.contextmanager
def naming(field: str, value: object) -> Iterator[None]:
    """Raise an OSError of the body as one that names the field of NicConfig, its value, the kernel's text and the fix."""
    try:
        yield
    except route_requests.RouteTakenError:
        raise
    except OSError as error:
        text = error.strerror or str(error)
        raise OSError(error.errno, f"the kernel refuses NicConfig.{field} {value} ({text}); {_FIXES[field]}") from error
