"""``drakit show`` draws the bandwidth of each device: what shares leave, who holds it alone, and what blocks it."""

import json

from drakit.cli import drawing
from drakit.core import quantity
from fakes import command_line

WHOLE = ("--family", "nic", "--set", "nic.whole=[e*, mlx*]")
NIC = "pci-0000-0c-00-0"
HUNDRED = quantity.Quantity.parse("100G")


def _bars(shell: command_line.CommandLine) -> dict[str, list[str]]:
    """Return the lines below each device's name: its bar, and what stands below that."""
    lines = shell.on_node("show", *WHOLE).out.splitlines()
    below = lines[1 : next(number for number, line in enumerate(lines) if line.startswith("DEVICE"))]
    bars: dict[str, list[str]] = {}
    for line in below:
        if line.startswith(" "):
            bars[list(bars)[-1]].append(line.strip())
        else:
            bars[line] = []
    return bars


def _claim(shell: command_line.CommandLine, device: str, **fields: object) -> str:
    return shell.claim_file({"request": "net", "driver": "nic.drakit.dev", "pool": "node-1", "device": device} | fields)


def test_a_device_that_a_claim_holds_alone_is_held_and_its_other_form_blocked(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", _claim(shell, f"{NIC}-whole"), *WHOLE[2:]).status == 0
    bars = _bars(shell)
    assert bars[f"{NIC}-whole"] == [f"[{'A' * 50}] 100G in all, held", "A   100G  default/claim"]
    assert bars[NIC] == [f"[{'x' * 50}] 100G in all, blocked", f"counters in use by {NIC}-whole"]
    assert bars["pci-0000-4b-00-0-whole"] == [f"[{'.' * 50}] 100G in all, 100G free"]


def test_a_device_with_shares_is_not_blocked_by_its_own_shares(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.share("25G")), *WHOLE[2:]).status == 0
    bars = _bars(shell)
    assert bars[NIC][0].endswith("100G in all, 75G free")
    assert bars[f"{NIC}-whole"] == [f"[{'x' * 50}] 100G in all, blocked", f"counters in use by {NIC}"]


def test_bars_of_held_and_blocked_devices_fit_a_narrow_terminal() -> None:
    held = drawing.Bar(device="nic", capacity=HUNDRED, holder="default/a-claim-with-a-name")
    blocked = drawing.Bar(device="nic", capacity=HUNDRED, is_blocked=True, blockers=("nic-whole", "nic-whole-too"))
    for bar in (held, blocked):
        assert max(map(len, drawing.draw_bar(bar, 40))) <= 40


def test_a_device_is_blocked_though_no_device_in_use_draws_its_counters() -> None:
    bar = drawing.Bar(device="nic", capacity=HUNDRED, is_blocked=True)
    assert drawing.draw_bar(bar) == [f"[{'x' * 50}] 100G in all, blocked"]


def test_a_node_without_a_name_is_shown_as_local(shell: command_line.CommandLine) -> None:
    folder = str(shell.folder / "node")
    shown = json.loads(shell.run("show", "--mock", command_line.MACHINE, "--folder", folder, "--family", "nic", "-o", "json").out)
    assert [document["pool"] for document in shown] == ["local"]
