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
    for function in candidates if any(function.group is not None for function in functions) else ():
        refused = vfio.refusal(bus, function.address)
        state = "could be passed to a virtual machine" if refused is None else f"{refused.reason}"
        if function.driver == vfio.DRIVER:
            state = f"is bound to {vfio.DRIVER}"
        yield advanced.Finding.ok(TOPIC, function.address, state if refused is None else f"cannot be passed: it {state}")


_IOMMU_FIX = "turn it on in the machine's firmware, and boot with intel_iommu=on (Intel) or amd_iommu=on (AMD)"
