"""``drakit uninstall-node`` on a node whose NIC driver is gone: nothing of it stays in the kernel, in pods or on the disk."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from drakit.cli import composition
from fakes import forked_cli, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
OK = nic_attach.Said(0, "")


@pytest.fixture
def world() -> Iterator[nic_attach.World]:
    """A node that must in the end be as it was."""
    with nic_attach.untouched_world() as made:
        made.boot_id = composition.BOOT_ID.read_text().strip()
        yield made


def uninstall(commands: forked_cli.Commands, world: nic_attach.World, *words: str) -> "subprocess.CompletedProcess[str]":
    plugins = world.home.parent
    settings = {
        "node.plugins_dir": plugins,
        "node.registry_dir": plugins / "registry",
        "node.cdi_dir": world.cdi,
        "nic.netns": world.node.name,
        "nic.exclude": '["*-wire"]',
        "nic.rules": "[{match: nic0, speed: 10G}]",
    }
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    asked = ("uninstall-node", "--family", "nic", "--no-api", *given, *words)
    return commands.run(*asked, environment={**os.environ, "KUBECONFIG": ""})


def left(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_after_force_deleted_pods_one_command_leaves_nothing(world: nic_attach.World, commands: forked_cli.Commands) -> None:
    with nic_attach.pod("5a4d") as alive:
        with nic_attach.pod("6b5e") as ended, world.driver() as driver:
            first, second = (driver.prepare(nic_attach.claim(number, shares=2)) for number in (1, 2))
            assert world.call(first, alive) == OK
            assert world.call(second, ended) == OK
        kept = world.node.state()
        refused = uninstall(commands, world, "--yes", "-o", "json")
        assert refused.returncode == 1
        assert "nothing was removed, because claims may be in use" in refused.stderr
        assert {"claim", "CDI file", "kernel", "folder"} == {item["kind"] for item in json.loads(refused.stdout)["items"]}
        assert world.node.state() == kept
        assert set(alive.space.links()) > {"lo"}
        ran = uninstall(commands, world, "--yes", "--force")
        assert ran.returncode == 0, ran.stderr
        assert set(alive.space.links()) == {"lo"}, (refused.stderr, ran.stdout, ran.stderr)
    assert left(world.home.parent) == []
    again = uninstall(commands, world, "--yes")
    assert (again.returncode, again.stdout) == (0, "drakit left nothing on this node\n"), again.stderr


@pytest.mark.parametrize("lost", ["journal", "journal and files"])
def test_without_a_journal_what_pods_use_is_found_and_removed_by_force(
    world: nic_attach.World, commands: forked_cli.Commands, lost: str
) -> None:
    with nic_attach.pod("5a4d") as alive:
        with world.driver() as driver:
            assert world.call(driver.prepare(nic_attach.claim(1)), alive) == OK
        (world.home / "journal.db").write_bytes(b"not a database" * 100)
        for path in (*world.home.glob("journal*"), *world.cdi.iterdir()) if lost == "journal and files" else ():
            path.unlink()
        refused = uninstall(commands, world, "--yes")
        assert refused.returncode == 1
        assert "(the journal is lost)" in refused.stderr
        ran = uninstall(commands, world, "--yes", "--force", "-o", "json")
        assert ran.returncode == 0, ran.stderr
        kernel = [item["name"] for item in json.loads(ran.stdout)["items"] if item["kind"] == "kernel"]
        assert [name for name in kernel if name.startswith("traffic control")] == ["traffic control on nic0"]
        assert set(alive.space.links()) == {"lo"}, (refused.stderr, ran.stdout, ran.stderr)
    assert left(world.home.parent) == []
