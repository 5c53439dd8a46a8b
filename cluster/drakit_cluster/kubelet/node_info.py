"""What a node's ``status.nodeInfo`` says: this machine, read when the kubelet starts.

Typed clients require all ten fields, so one that cannot be read is an empty text and never left out.
"""

import os
import pathlib

from drakit_cluster.api.http import discovery
from drakit_cluster.objects.json_types import Object
from drakit_cluster.runtime import Mode

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""Go's names for what ``uname`` says; others are the same in both."""
_OS_RELEASE = (pathlib.Path("/etc/os-release"), pathlib.Path("/usr/lib/os-release"))


def read(mode: Mode) -> Object:
    """Return the fields of V1NodeSystemInfo. ``mode`` is how the node's runtime runs containers."""
    system = os.uname()
    machine = _line(pathlib.Path("/etc/machine-id"))
    return {
        "architecture": architecture(system.machine),
        "bootID": _line(pathlib.Path("/proc/sys/kernel/random/boot_id")),
        "containerRuntimeVersion": f"drakit://{mode.value}",
        "kernelVersion": system.release,
        "kubeProxyVersion": "",
        "kubeletVersion": discovery.GIT_VERSION,
        "machineID": machine,
        "operatingSystem": system.sysname.lower(),
        "osImage": os_image(_text(_OS_RELEASE)) or system.sysname,
        "systemUUID": _line(pathlib.Path("/sys/class/dmi/id/product_uuid")) or machine,
    }


def architecture(machine: str) -> str:
    """Return Go's name for a machine of ``uname``."""
    return _ARCHITECTURES.get(machine, machine)


def os_image(os_release: str) -> str:
    """Return PRETTY_NAME of an os-release file, empty where it has none."""
    for line in os_release.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return ""


def _line(path: pathlib.Path) -> str:
    return _text((path,)).strip()


def _text(paths: tuple[pathlib.Path, ...]) -> str:
    """Return the first file's content that can be read; empty for none."""
    for path in paths:
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return ""
