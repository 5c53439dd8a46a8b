"""A NIC share that no claim has: it is named with the pod that uses it, kept for that pod, and released once the pod has ended."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from drakit.cli import composition
from drakit.core import names
from drakit.journal import journal
from fakes import forked_cli, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
OK = nic_attach.Said(0, "")


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    """A node that must in the end be as it was."""
    with nic_attach.untouched_world() as made:
        made.boot_id = composition.BOOT_ID.read_text().strip()
        yield made


def run(commands: forked_cli.Commands, world: nic_attach.World, command: str, *words: str) -> "subprocess.CompletedProcess[str]":
    settings = {
        "node.plugins_dir": world.home.parent,
        "node.registry_dir": world.home.parent / "registry",
        "node.cdi_dir": world.cdi,
        "nic.netns": world.node.name,
        "nic.exclude": '["*-wire"]',
        "nic.rules": "[{match: nic0, speed: 10G}]",
    }
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return commands.run(command, "--family", "nic", *given, *words, environment={**os.environ, "KUBECONFIG": ""})


def listed(commands: forked_cli.Commands, world: nic_attach.World, *words: str) -> list[dict[str, Any]]:
    ran = run(commands, world, "unprepare", "--unclaimed", "-o", "json", *words)
    assert ran.returncode == 0, ran.stderr
    rows: list[dict[str, Any]] = json.loads(ran.stdout)
    return rows


def forget(world: nic_attach.World) -> None:
    """Remove all claims from the journal, and their CDI files, and leave the kernel alone."""
    with journal.Journal.open(world.home, driver="nic.drakit.dev", boot_id=world.boot_id) as memory:
        for entry in memory.entries():
            memory.begin_unprepare(names.ClaimUid(entry.claim.uid))
            memory.finish_unprepare(names.ClaimUid(entry.claim.uid))
    for path in world.cdi.glob("*.json"):
        path.unlink()


def test_a_share_is_kept_for_its_pod_and_released_after_it(world: nic_attach.World, commands: forked_cli.Commands) -> None:
    with nic_attach.pod("5a4d") as pod:
        with world.driver() as driver:
            assert world.call(driver.prepare(nic_attach.claim(1)), pod) == OK
        assert listed(commands, world) == [], "a claim has the share"
        forget(world)
        before = world.node.state()
        (row,) = listed(commands, world, "--yes")
        assert (row["kind"], row["marked"], row["released"]) == ("NIC share", True, False)
        assert row["user"].endswith(" in a pod")
        assert row["blocks"].startswith("in use: ")
        found = json.loads(run(commands, world, "doctor", "--no-api", "-o", "json").stdout)
        (finding,) = [entry for entry in found if entry["topic"] == "unclaimed"]
        assert (finding["verdict"], row["name"] in finding["message"]) == ("warning", True)
        assert world.node.state() == before
        assert set(pod.space.links()) > {"lo"}
    (row,) = listed(commands, world)
    assert (row["kind"], row["user"], row["blocks"]) == ("NIC share", "", "")
    (row,) = listed(commands, world, "--yes")
    assert row["released"]
    assert listed(commands, world) == []


def test_a_share_that_a_pod_uses_is_released_by_its_name(world: nic_attach.World, commands: forked_cli.Commands) -> None:
    with nic_attach.pod("5a4d") as pod:
        with world.driver() as driver:
            assert world.call(driver.prepare(nic_attach.claim(1)), pod) == OK
        forget(world)
        (row,) = listed(commands, world)
        (done,) = listed(commands, world, row["name"], "--yes")
        assert done["released"]
        assert set(pod.space.links()) == {"lo"}
    assert listed(commands, world) == []


@pytest.mark.parametrize("setting", ['nic.exclude=["*"]', 'nic.include=["other*"]'])
def test_traffic_control_is_found_on_an_interface_that_is_no_longer_offered(
    world: nic_attach.World, commands: forked_cli.Commands, setting: str
) -> None:
    index = world.node.links()["nic0"]["ifindex"]
    world.node.ip("link", "add", f"drb{index}", "type", "ifb")
    world.node.ip("link", "set", f"drb{index}", "alias", f"drakit ingress of {index} by nic.drakit.dev, foreign hook")
    (row,) = listed(commands, world, "--set", setting)
    assert (row["kind"], row["name"]) == ("traffic control", "nic0")
    (row,) = listed(commands, world, "nic0", "--yes", "--set", setting)
    assert row["released"]
    assert f"drb{index}" not in world.node.links()
