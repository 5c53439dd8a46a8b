"""A whole interface comes back whatever its pod did to it, and the doctor names what it lacks."""

import functools
import json
import pathlib
from collections.abc import Iterator

import pytest

from drakit.core import advanced, records
from drakit_nic import checks
from drakit_nic.passthrough import differences
from fakes import netns, nic_attach, nic_wire

pytestmark = pytest.mark.root

PARAMETERS: records.Record = {"interfaceName": "fast0"}


@pytest.fixture
def wired() -> Iterator[nic_wire.Wired]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_wire.wired(nic_wire.WHOLE) as made:
        yield made


def doctor(world: nic_attach.World) -> list[advanced.Finding]:
    return list(checks.of_returned(world.home, functools.partial(differences.present, world.node.name)))


def test_an_altname_of_the_pod_stops_no_return_and_no_later_interface(wired: nic_wire.Wired) -> None:
    node = wired.world.node
    node.ip("link", "add", "cni0", "type", "bridge")
    with wired.world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(nic_wire.whole(1, PARAMETERS))
        assert wired.world.call(ref, pod) == nic_attach.Said(0, "")
        pod.space.ip("link", "property", "add", "dev", "fast0", "altname", "cni0", "altname", "docker0")
        driver.unprepare(ref)
        assert "altnames" not in node.links()["nic0"]
        node.ip("link", "add", "docker0", "type", "bridge")
    assert doctor(wired.world) == []


def test_the_doctor_names_what_could_not_be_restored_until_it_is(wired: nic_wire.Wired) -> None:
    node = wired.world.node
    node.ip("link", "property", "add", "dev", "nic0", "altname", "uplink")
    with wired.world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(nic_wire.whole(1, PARAMETERS))
        assert wired.world.call(ref, pod).code == 0
        node.ip("link", "add", "uplink", "type", "bridge")  # The host's admin takes the name meanwhile.
        driver.unprepare(ref)
    assert "nic0" in node.links()
    (found,) = doctor(wired.world)
    file = wired.world.home / differences.FOLDER / "nic0.json"
    assert (found.verdict, found.subject) == (advanced.Verdict.WARNING, "nic0")
    assert found.message == 'came back from a pod with other properties: altnames was ["uplink"]'
    assert found.fix == f"set it again, or remove {file} to keep the present value"
    node.ip("link", "delete", "uplink")
    node.ip("link", "property", "add", "dev", "nic0", "altname", "uplink")
    assert doctor(wired.world) == []


@pytest.mark.parametrize("content", ["", "[]", '{"mtu": '])
def test_a_file_that_somebody_edited_is_reported(tmp_path: pathlib.Path, content: str) -> None:
    folder = tmp_path / differences.FOLDER
    folder.mkdir()
    (folder / "nic0.json").write_text(content)
    (found,) = checks.of_returned(tmp_path, lambda _interface, _recorded: ())
    assert found.verdict is advanced.Verdict.UNKNOWN
    assert str(folder) in found.fix


def test_an_interface_that_is_gone_lacks_nothing(tmp_path: pathlib.Path, wired: nic_wire.Wired) -> None:
    differences.write(tmp_path, "nic7", {"mtu": 9000})
    ((file, interface, recorded),) = differences.read(tmp_path)
    assert json.loads(file.read_text()) == dict(recorded) == {"mtu": 9000}
    assert differences.present(wired.world.node.name, interface, recorded) == ()
