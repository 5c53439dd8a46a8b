"""The reference pages name every event, condition, taint and error of the code, and none that does not exist."""

import ast
import re
from collections.abc import Iterator

from drakit.core import errors
from drakit.node import device_status, held_devices
from drakit_gpu.health import faults
from drakit_nic import link_monitor
from unit.docs import markdown

REFERENCE = markdown.ROOT / "docs" / "reference"
EVENTS = REFERENCE / "events.md"
SOURCES = [markdown.ROOT / "driver" / folder for folder in ("drakit/node", "drakit/kube", "drakit_gpu", "drakit_nic")]
IN_LOOPS = {"SeveralMigDevices", "SeveralMpsDaemons"}
"""Reasons that the code takes from a tuple, where the search for constants does not find them."""
_REASON = re.compile(r"([A-Z][a-z]+)+")


def section(title: str) -> str:
    """The text of the events page below a heading."""
    return EVENTS.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def calls(name: str) -> Iterator[ast.Call]:
    """Every call in the drivers of a function or class of this name."""
    for folder in SOURCES:
        for text in (path.read_text("utf-8") for path in folder.rglob("*.py")):
            for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
                if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == name:
                    yield node


def constants(name: str) -> set[str]:
    """The constant reasons among the arguments of these calls."""
    values = [value for call in calls(name) for value in (*call.args[:1], *(word.value for word in call.keywords if word.arg == "reason"))]
    texts = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return {text for text in texts if _REASON.fullmatch(text)}


def test_every_event_is_on_the_page_and_no_other() -> None:
    assert constants("Event") | IN_LOOPS | {
        device_status.NOT_WRITTEN,
        held_devices.EVENT_REASON,
        held_devices.WITHHELD_EVENT_REASON,
    } == markdown.table_names(section("Events"))


def test_every_condition_of_the_code_is_on_the_page() -> None:
    assert constants("Condition") | constants("_condition") <= markdown.table_names(section("Conditions of a device"))


def test_every_reason_of_a_failed_prepare_is_on_the_page() -> None:
    kinds = [kind for kind in subclasses(errors.DrakitError) if kind is not errors.ClaimError]
    reasons = {kind.__name__.removesuffix("Error") for kind in kinds}
    reasons |= {device_status.reason_of(errors.ClaimError(fault, "")) for fault in errors.ClaimFault}
    text = section("Conditions of a device")
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in text] == []


def test_every_taint_is_on_the_page_and_no_other() -> None:
    keys = {f"gpu.drakit.dev/{key}" for key in (faults.XID, faults.ECC, faults.LOST, faults.RECOVERY, faults.FABRIC, faults.CHANGED)}
    assert keys | {link_monitor.TAINT} == markdown.table_names(section("Taints"))


def subclasses(kind: type[Exception]) -> set[type[Exception]]:
    return {found for child in kind.__subclasses__() if child.__module__ == errors.__name__ for found in (child, *subclasses(child))}


def test_every_error_and_fault_is_on_the_page_of_errors_and_no_other() -> None:
    names = {"ClaimFault"} | {kind.__name__ for kind in subclasses(errors.DrakitError)} | {fault.name for fault in errors.ClaimFault}
    assert names == markdown.table_names((REFERENCE / "errors.md").read_text("utf-8"))
