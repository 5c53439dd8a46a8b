"""Checks of what VFIO needs, for ``doctor``: the IOMMU, the driver vfio-pci, and the functions that could be passed."""

from collections.abc import Callable, Iterator

from drakit import vfio
from drakit.core import advanced, errors

TOPIC = "vfio"


def of_node(bus: vfio.Bus, is_candidate: Callable[[vfio.Function], bool], *, setting: str, is_on: bool) -> Iterator[advanced.Finding]:
    """Check the node. ``is_candidate`` selects the functions of a family; where ``setting`` does not offer them, nothing fails."""
    try:
        yield from _of_node(bus, is_candidate, setting=setting, is_on=is_on)
    except errors.HardwareError as error:
        yield advanced.Finding.unknown(TOPIC, "PCI bus", str(error), "run as root, with the host's /sys")


def _of_node(bus: vfio.Bus, is_candidate: Callable[[vfio.Function], bool], *, setting: str, is_on: bool) -> Iterator[advanced.Finding]:
    functions = bus.functions()
    candidates = [function for function in functions if is_candidate(function)]
    off = "" if is_on else f"; {setting} is off, so nothing needs it"
    needs = (
        ("IOMMU", any(function.group is not None for function in functions), "is on", "is off", _IOMMU_FIX),
        (vfio.DRIVER, bus.has_driver(vfio.DRIVER), "is loaded", "is not loaded", "run modprobe vfio-pci; name it in /etc/modules-load.d"),
    )
    for subject, is_there, yes, no, fix in needs:
        if is_there or not is_on:
            yield advanced.Finding.ok(TOPIC, subject, f"{yes if is_there else no}{off}")
        else:
            yield advanced.Finding.failed(TOPIC, subject, f"{no}, and {setting} needs it", fix)
    refused = {function.address: vfio.refusal(bus, function.address) for function in candidates if function.driver != vfio.DRIVER}
    passable = [address for address, refusal in refused.items() if refusal is None]
    more = f" and {len(passable) - _SHOWN} more" if len(passable) > _SHOWN else ""
    yield advanced.Finding.ok(
        TOPIC, "devices", f"that could be passed to a virtual machine: {', '.join(passable[:_SHOWN]) or 'none'}{more}"
    )
    for address, refusal in refused.items() if is_on else ():
        if refusal is not None:
            yield advanced.Finding.ok(TOPIC, address, f"cannot be passed: it {refusal.reason}")


_SHOWN = 8
_IOMMU_FIX = "turn it on in the machine's firmware, and boot with intel_iommu=on (Intel) or amd_iommu=on (AMD)"
