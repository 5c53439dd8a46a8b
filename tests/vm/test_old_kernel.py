"""A kernel before Linux 5.14, which has no cookies of network namespaces: no interface is offered, and the reason is said."""

import pathlib
import platform

from drakit.core import advanced
from drakit_nic import checks, kernel_port
from fakes import nic_attach
from vm import virtual_functions

REASON = "this kernel has no cookies of network namespaces, which came with Linux 5.14"


def test_doctor_names_the_version() -> None:
    assert platform.release().startswith("5.10.")
    finding = checks.of_kernel(kernel_port.KernelPort().shaping)
    assert finding.verdict is advanced.Verdict.FAILED
    assert REASON in finding.message
    assert finding.fix.startswith("use Linux 5.14 or later")
    assert finding.fix.endswith("until then no interface is offered")


def test_neither_shares_nor_functions_nor_whole_nics_are_offered(tmp_path: pathlib.Path) -> None:
    with virtual_functions.parent(1) as parent:
        (function,) = parent.interfaces()
        with virtual_functions.node(tmp_path, virtual_functions.ROOMY).driver() as driver:
            author = nic_attach.author_of(driver)
            assert author.discover().by_name() == {}
            reasons = {entry.name: entry.reason for entry in author.survey().withheld}
    assert REASON in reasons[parent.name]
    assert REASON in reasons[function]
