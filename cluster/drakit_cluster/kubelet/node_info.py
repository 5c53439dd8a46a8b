"""What a node's ``status.nodeInfo`` says: this machine, read when the kubelet starts.

Typed clients require all ten fields, so one that cannot be read is an empty text and never left out.
"""

import pathlib
import platform

from drakit_cluster.api.http import discovery
from drakit_cluster.objects.json_types import Object
from drakit_cluster.runtime import Mode

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""Go's names for what ``uname`` says; others are the same in both."""


def read(mode: Mode) -> Object:
    """Return the fields of V1NodeSystemInfo. ``mode`` is how the node's runtime runs containers."""
    system = platform.uname()
    try:
        image = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        image = system.system
    machine = _line("/etc/machine-id")
    return {
        "architecture": _ARCHITECTURES.get(system.machine, system.machine),
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "containerRuntimeVersion": f"drakit://{mode.value}",
        "kernelVersion": system.release,
        "kubeProxyVersion": "",
        "kubeletVersion": discovery.GIT_VERSION,
        "machineID": machine,
        "operatingSystem": system.system.lower(),
        "osImage": image,
        "systemUUID": _line("/sys/class/dmi/id/product_uuid") or machine,
    }


def _line(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
