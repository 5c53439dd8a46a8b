"""``python -m drakit.testing`` judges a driver that a module names, and says in one line what it cannot use."""

import functools
import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import TypeAlias
from xml.etree import ElementTree

import pytest

from fakes import forked_cli

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

DRIVER = """
import time

import drakit

LIT = set()

class Lamp(drakit.Driver[drakit.NoConfig]):
    name = "lamp.example.com"

    def discover(self):
        return drakit.Inventory.of([drakit.Device(name="lamp-0")])

    def prepare(self, grant):
        LIT.add(grant.device.name)
        return drakit.Prepared(edits=drakit.Edits(env={"LAMP": grant.device.name}))

    def unprepare(self, grant):
        LIT.discard(grant.device.name)

class Leaky(Lamp):
    def unprepare(self, grant):
        pass

class Busless(Lamp):
    def discover(self):
        raise OSError("no bus")

class Hanging(Lamp):
    def prepare(self, grant):
        time.sleep(1000)

def lit():
    return set(LIT)
"""


@pytest.fixture
def run(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> Run:
    (tmp_path / "lamp.py").write_text(DRIVER)
    return functools.partial(commands.run, folder=tmp_path, program="kit")


def test_a_good_driver_is_reported_with_seconds_and_as_junit(run: Run, tmp_path: pathlib.Path) -> None:
    done = run("check", "lamp:Lamp", "--hardware", "lamp:lit", "--every", "9", "--junit", "report.xml")
    assert done.returncode == 0, done.stderr
    assert " s  prepare and then unprepare leave nothing behind\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("lamp.example.com: 13 pass, 0 FAIL")
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]  # noqa: S314 - written a moment ago
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("lamp.example.com", "27", "0")


def test_a_broken_driver_ends_with_status_1(run: Run, tmp_path: pathlib.Path) -> None:
    done = run("check", "lamp:Leaky", "--hardware", "lamp:lit", "--every", "50", "-o", "json", "--junit", "report.xml")
    assert done.returncode == 1, done.stderr
    verdicts = {check["name"]: check["verdict"] for check in json.loads(done.stdout)["checks"]}
    assert verdicts["prepare and then unprepare leave nothing behind"] == "fail"
    assert "<failure message=" in (tmp_path / "report.xml").read_text()


def test_a_call_that_does_not_return_is_named_and_ends_the_checks(run: Run) -> None:
    done = run("check", "lamp:Hanging", "--timeout", "0.5", "-o", "json")
    assert done.returncode == 1, done.stderr
    started = [check for check in json.loads(done.stdout)["checks"] if check["verdict"] != "n/a"]
    assert [check["verdict"] for check in started] == ["pass", "pass", "fail"]
    assert started[-1]["message"] == "a call did not return within 0.5 s (at lamp.py:31 in prepare); timeout sets the limit"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("check", "lamp"), "give MODULE:NAME"),
        (("check", "lamp:Nothing"), "no attribute 'Nothing'"),
        (("check", "nothing:Lamp"), "No module named 'nothing'"),
        (("check", "lamp:Busless"), "error: OSError: no bus (at lamp.py:27 in discover)"),
        (("check", "lamp:Lamp", "--parameters", "[]"), "is no JSON object"),
        (("check", "lamp:Lamp", "--device", "lamp-9"), "device_names: the driver offers no device 'lamp-9'; known are lamp-0"),
        (("check", "lamp:Lamp", "--consumed", "x=1"), "error: consumed: no device has a capacity 'x'; known are none"),
        (("check", "lamp:Lamp", "--consumed", "x"), "give NAME=AMOUNT"),
        (("conformance", "--socket", "/nowhere"), "/nowhere does not exist"),
        (("conformance", "--socket", ".", "--claim", "a/b"), "need --kubeconfig"),
        (("conformance", "--socket", ".", "--start", "a", "--restart", "b"), "exclude each other"),
        (("conformance", "--socket", ".", "--start", "/no/such/program"), "--start: "),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line
