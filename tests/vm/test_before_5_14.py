"""A kernel that is older than drakit needs: nothing of its NICs is offered, and the reason is said."""

import pathlib
import tempfile

from drakit.core import advanced
from drakit_nic import checks
from fakes import nic_attach
from vm import virtual_functions

REASON = "this kernel has no cookies of network namespaces, which came with Linux 5.14"


def test_no_interface_is_offered_and_doctor_says_why() -> None:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, virtual_functions.parent(1):
        world = virtual_functions.node(pathlib.Path(folder))
        with world.driver() as driver:
            author = nic_attach.author_of(driver)
            assert author.discover().by_name() == {}
        finding = next(finding for finding in checks.of_node(pathlib.Path(folder), None) if finding.topic == checks.KERNEL)
    assert finding.verdict is advanced.Verdict.FAILED
    assert REASON in finding.message
    assert finding.fix.startswith("use Linux 5.14 or later")
