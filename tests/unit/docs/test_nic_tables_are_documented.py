"""The pages of NICs list every kernel setting that the driver chooses, and every property that it restores."""

import pathlib
import re

from drakit_nic import sysctls
from drakit_nic.passthrough import properties

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = (DOCS / page).read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if not line.startswith("| `sysctls` | Driver")]


def test_every_kernel_setting_is_listed_with_its_choice_values_and_reason() -> None:
    documented = rows("reference/devices-nic.md", "Kernel settings of the interface")
    assert [cells[:3] for cells in documented] == [
        [f"`{name}`", str(sysctl.chosen), ", ".join(map(str, sorted(sysctl.values)))] for name, sysctl in sysctls.TABLE.items()
    ]
    assert all(cells[3] for cells in documented)


def test_every_restored_property_is_listed_with_its_test() -> None:
    documented = rows("howto/nic-whole-interface.md", "Properties that a pod can change")
    assert [cells[0] for cells in documented] == [f"`{row.name}`" for row in properties.TABLE]
    assert {cells[2].partition(" ")[0] for cells in documented} <= {"tried", "untried"}
