"""``drakit show`` and ``drakit doctor`` name each interface that is not offered, why, and the setting that offers it."""

import functools
import json
from collections.abc import Mapping

import yaml

from drakit.cli.doctor import hardware
from drakit.core import advanced
from drakit.core.advanced import Verdict
from fakes import command_line

UPLINK = {
    "interface": "eth0",
    "reason": "carries the host's default route",
    "change": "add a glob that matches it to nic.take_over, and set a reserve for the host (nic.reserve, or a rule in nic.rules)",
}
EXCLUDED = {"interface": "eth1", "reason": "matches nic.exclude", "change": "remove the glob that matches it from nic.exclude"}
WITHOUT_ETH1 = ("--set", 'nic.exclude=["eth1"]')
CUT_OFF = "matches nic.take_over and has no reserve: the host's own traffic would be limited to 1M bit/s"


def test_show_lists_devices_that_are_not_offered_as_text_and_json(shell: command_line.CommandLine) -> None:
    table = shell.on_node("show", "--family", "nic", *WITHOUT_ETH1).out
    for row in (UPLINK, EXCLUDED):
        (line,) = (line for line in table.splitlines() if line.startswith(row["interface"]))
        assert " ".join(line.split()) == " ".join(row.values())
    for form, read in (("json", json.loads), ("yaml", functools.partial(yaml.load, Loader=yaml.CSafeLoader))):
        (family,) = read(shell.on_node("show", "--family", "nic", *WITHOUT_ETH1, "-o", form).out)
        assert family["notOffered"] == [UPLINK, EXCLUDED]


def test_a_family_that_offers_all_its_devices_prints_nothing(shell: command_line.CommandLine) -> None:
    ran = shell.on_node("show", "--family", "gpu")
    assert "Not offered" not in ran.out
    (family,) = json.loads(shell.on_node("show", "--family", "gpu", "-o", "json").out)
    assert family["notOffered"] == []


def interfaces(shell: command_line.CommandLine, *more: str) -> Mapping[str, Mapping[str, str]]:
    found = json.loads(shell.on_node("doctor", "--no-api", "-o", "json", *more).out)
    return {one["subject"]: one for one in found if one["topic"] == "interfaces"}


def test_a_device_withheld_by_settings_is_no_warning_of_the_doctor(shell: command_line.CommandLine) -> None:
    found = interfaces(shell, *WITHOUT_ETH1)
    assert {name: one["verdict"] for name, one in found.items()} == {"eth0": "ok", "eth1": "ok"}
    assert found["eth0"]["message"] == f"not offered: {UPLINK['reason']}; to offer it, {UPLINK['change']}"


def test_the_doctor_warns_of_whole_mode_on_the_hosts_own_nic(shell: command_line.CommandLine) -> None:
    (warned,) = interfaces(shell, "--set", 'nic.take_over=["eth0"]').values()
    assert (warned["verdict"], warned["message"]) == ("warning", f"not offered: {CUT_OFF}")
    assert warned["fix"] == "set a reserve above 0 (nic.reserve, or a rule in nic.rules)"
    assert interfaces(shell, "--set", 'nic.take_over=["eth0"]', "--set", "nic.reserve=100M") == {}


def of_devices(shell: command_line.CommandLine, *more: str) -> list[tuple[str, str]]:
    found = json.loads(shell.on_node("doctor", "--no-api", "-o", "json", *more).out)
    return [(one["verdict"], one["fix"]) for one in found if one["topic"] == "devices"]


def test_one_cause_that_no_device_is_offered_is_one_finding_of_the_doctor(shell: command_line.CommandLine) -> None:
    layout = 'gpu.mig_layouts=[{match: "gpu-*", partitions: {1g.5gb: 8}}]'
    ((verdict, fix),) = of_devices(shell, "--family", "gpu", "--set", layout)
    assert verdict == "failed"
    assert fix.startswith("correct gpu.mig_layouts[0].partitions")


def test_the_doctor_refers_to_interfaces_only_where_it_lists_some(shell: command_line.CommandLine) -> None:
    general = "check the hardware and the family's settings"
    without = ("--set", 'nic.exclude=["*"]')
    assert of_devices(shell, "--family", "nic", *without) == [("warning", f"{general}; interfaces that are not offered are listed below")]


def test_interfaces_with_one_reason_are_listed_in_one_line_with_cautions_beside_them() -> None:
    reason = "is virtual (veth), so its reported speed is ignored"
    result = [
        advanced.NotOffered(kind="interface", name="lo", reason="is the loopback", is_expected=True),
        *(
            advanced.NotOffered(kind="interface", name=name, reason=reason, change="set its speed", is_expected=True)
            for name in ("veth1", "veth2")
        ),
        advanced.NotOffered(kind="interface", name="eth1", reason="has no reserve", change="nic.reserve", is_caution=True),
    ]
    found = [(one.subject, one.verdict, one.message, one.fix) for one in hardware.of_not_offered(result)]
    assert found == [
        ("lo", Verdict.OK, "not offered: is the loopback", ""),
        ("veth1, veth2", Verdict.OK, f"not offered: {reason}; to offer them, set its speed", ""),
        ("eth1", Verdict.WARNING, "has no reserve", "nic.reserve"),
    ]
