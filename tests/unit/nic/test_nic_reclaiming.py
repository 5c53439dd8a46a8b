"""What no claim of the journal has is found with few questions to the kernel."""

import pathlib
from typing import NoReturn

from drakit import machines
from drakit_nic import driver, mock_port, pod_interfaces


class WithoutProperties(mock_port.MockPort):
    """A machine that answers no question for all properties of an interface."""

    has_mark = ""

    def alias(self, name: str) -> str:
        return self.has_mark if name == "eth1" else ""

    def host_state(self, name: str) -> NoReturn:
        raise AssertionError(f"all properties of {name} were read")


def test_a_mark_of_a_whole_interface_is_found_without_its_other_properties(tmp_path: pathlib.Path) -> None:
    machine = WithoutProperties(machines.Choice(name="dgx-a100-40gb", directory=tmp_path))
    mark = pod_interfaces.mark_of("lost")
    machine.has_mark = mark
    (found,) = driver.NicDriver(machine, node="node-1").unclaimed()
    assert (found.kind, found.name, found.detail) == ("mark of a whole interface", "eth1", mark)
