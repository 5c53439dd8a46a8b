"""Mock NICs keep their shares as hardware would: past the driver's death, not past a reboot."""

import json
import pathlib
import signal

import pytest

from drakit import machines
from drakit.core import errors
from drakit_nic import mock_port, port
from fakes import forked_cli, waits

MACHINE = "dgx-a100-40gb"


def share(identity: str = "share-1", bandwidth: int = 10**9) -> port.Share:
    return port.Share(id=identity, interface="eth1", ifindex=3, mac="02:11:22:33:44:55", bandwidth=bandwidth)


UPLINK = port.Uplink(interface="eth1", ifindex=3, mac="02:d9:a1:00:00:01", speed=10**11)


def choice(directory: pathlib.Path) -> machines.Choice:
    return machines.Choice(name=MACHINE, directory=directory)


PREPARE_AND_DIE = """
import os, pathlib, signal, sys
from drakit import machines
from drakit_nic import port
from drakit_nic import mock_port
choice = machines.Choice(name=sys.argv[1], directory=pathlib.Path(sys.argv[2]))
machine = mock_port.MockPort(choice, after_effect=lambda call: os.kill(os.getpid(), signal.SIGKILL))
uplink = port.Uplink(interface="eth1", ifindex=3, mac="02:d9:a1:00:00:01", speed=10**11)
machine.install(uplink, port.Share(id="share-1", interface="eth1", ifindex=3, mac="02:11:22:33:44:55", bandwidth=10**9))
"""

INSTALL_TEN = """
import pathlib, sys
from drakit import machines
from drakit_nic import port
from drakit_nic import mock_port
machine = mock_port.MockPort(machines.Choice(name=sys.argv[1], directory=pathlib.Path(sys.argv[2])))
uplink = port.Uplink(interface="eth1", ifindex=3, mac="02:d9:a1:00:00:01", speed=10**11)
for number in range(10):
    machine.install(uplink, port.Share(id=f"{sys.argv[3]}-{number}", interface="eth1", ifindex=3, mac="02:11:22:33:44:55", bandwidth=1))
"""


def test_a_share_outlives_a_driver_killed_between_effect_and_answer(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    assert commands.code(PREPARE_AND_DIE, MACHINE, tmp_path).wait(waits.SECONDS) == -signal.SIGKILL
    survivor = mock_port.MockPort(choice(tmp_path))
    assert survivor.shares() == (share(),)
    survivor.remove("share-1")
    assert mock_port.MockPort(choice(tmp_path)).shares() == ()


def test_two_processes_lose_none_of_each_other_s_shares(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    machines.boot_id(tmp_path)
    workers = [commands.code(INSTALL_TEN, MACHINE, tmp_path, name) for name in ("a", "b", "c")]
    assert [worker.wait(waits.SECONDS) for worker in workers] == [0, 0, 0]
    assert len(mock_port.MockPort(choice(tmp_path)).shares()) == 30


def test_a_reboot_forgets_every_share(tmp_path: pathlib.Path) -> None:
    machine = mock_port.MockPort(choice(tmp_path))
    machine.install(UPLINK, share())
    machines.reboot(tmp_path)
    assert machine.shares() == ()
    machine.install(UPLINK, share("after"))
    assert machine.shares() == (share("after"),)


def test_installing_anew_replaces_the_older_form(tmp_path: pathlib.Path) -> None:
    machine = mock_port.MockPort(choice(tmp_path))
    machine.install(UPLINK, share(bandwidth=1))
    machine.install(UPLINK, share(bandwidth=2))
    assert machine.shares() == (share(bandwidth=2),)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"bootID": "x"}', '{"bootID": "x", "shares": [{}], "more": 1}', '{"bootID": 1, "shares": []}', "\udcff"],
)
def test_a_state_file_edited_by_hand_is_an_error_and_stays_as_it_is(tmp_path: pathlib.Path, content: str) -> None:
    machine = mock_port.MockPort(choice(tmp_path))
    raw = content.encode(errors="surrogateescape")
    (tmp_path / "nics.json").write_bytes(raw)
    for act in (machine.shares, lambda: machine.install(UPLINK, share()), lambda: machine.remove("share-1")):
        with pytest.raises(errors.HardwareError, match="mock machine's state"):
            act()
    assert (tmp_path / "nics.json").read_bytes() == raw


def test_a_rolled_back_version_reads_the_state_of_a_later_one(tmp_path: pathlib.Path) -> None:
    machine = mock_port.MockPort(choice(tmp_path))
    machine.install(UPLINK, share())
    state = json.loads((tmp_path / "nics.json").read_text())
    state["shares"][0]["colour"] = "red"
    (tmp_path / "nics.json").write_text(json.dumps(state | {"switches": []}))
    assert machine.shares() == (share(),)


def test_the_state_is_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    mock_port.MockPort(choice(tmp_path)).install(UPLINK, share())
    assert {file.name: file.stat().st_mode & 0o077 for file in tmp_path.iterdir() if file.name.startswith("nics")} == {
        "nics.json": 0,
        "nics.lock": 0,
    }
    assert json.loads((tmp_path / "nics.json").read_text())["shares"][0]["bandwidth"] == 10**9


def test_the_state_of_another_machine_is_refused(tmp_path: pathlib.Path) -> None:
    mock_port.MockPort(choice(tmp_path)).install(UPLINK, share())
    with pytest.raises(errors.HardwareError, match="machine: 'dgx-a100-40gb' is not one of dgx-h100"):
        mock_port.MockPort(machines.Choice(name="dgx-h100", directory=tmp_path)).shares()


def test_an_unknown_machine_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.SettingsError, match="no mock machine 'dgx-z'"):
        mock_port.MockPort(machines.Choice(name="dgx-z", directory=tmp_path))


@pytest.mark.parametrize("name", [name for name in machines.names() if mock_port.from_machine(machines.load(name))])
def test_every_machine_s_nics_are_read(name: str) -> None:
    interfaces = mock_port.from_machine(machines.load(name))
    assert any(interface.default_route for interface in interfaces)
    assert all(interface.speed and interface.pci for interface in interfaces)


HEAD = "name: m\ndescription: d\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("nics:\n- {name: a}\n", r"nics\[0\]\.mac: is missing"),
        ('nics:\n- {name: a, mac: "02:0:0", mtu: 1500, driver: x, pciBusID: "0000:01:00.0", colour: red}\n', r"nics\[0\]\.colour: unknown"),
        ('nics:\n- {name: a, mac: "02:0:0", mtu: 1, driver: x, pciBusID: "0000:01:00.0"}\n', r"nics\[0\]\.mtu: 1 is below 68"),
        ("nics: 3\n", "nics: expected a list"),
    ],
)
def test_a_machine_file_is_read_strictly(text: str, message: str) -> None:
    with pytest.raises(errors.SettingsError, match=message):
        mock_port.from_machine(machines.parse(HEAD + text, "m"))


def test_a_machine_may_have_no_nics_or_one_without_carrier() -> None:
    assert mock_port.from_machine(machines.parse(HEAD, "m")) == ()
    text = 'nics:\n- {name: a, mac: "02:00:00:00:00:01", mtu: 1500, driver: x, pciBusID: "0000:01:00.0", speedMbps: 10, carrier: false}\n'
    (down,) = mock_port.from_machine(machines.parse(HEAD + text, "m"))
    assert (down.carrier, down.state, down.speed) == (False, "down", None)
