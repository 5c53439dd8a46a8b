"""The conformance suite passes a good driver that shares no code with drakit, and finds each fault that is planted in it."""

import contextlib
import json
import pathlib
import shlex
import sys
import uuid
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from drakit.testing import report
from drakit_cluster.objects.json_types import Object
from drakit_tools import conformance
from drakit_tools.conformance import claims, restarts, slices, sockets
from fakes import demo, plain_driver

WARN, FAIL = report.Verdict.WARN, report.Verdict.FAIL
PROGRAM = pathlib.Path(plain_driver.__file__)


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with demo.short_folder() as made:
        (made / "cdi").mkdir()
        yield made


def claim(number: int) -> Object:
    results: list[object] = [
        {"request": "device", "driver": plain_driver.NAME, "pool": "node-1", "device": f"device-{number}"},
        {"request": "other", "driver": "another.example.com", "pool": "node-1", "device": f"device-{number}"},
    ]
    return {
        "metadata": {"namespace": "default", "name": f"claim-{number}", "uid": str(uuid.uuid4())},
        "status": {"allocation": {"devices": {"results": results}}},  # type: ignore[dict-item] # JSON
    }


def judge(folder: pathlib.Path, fault: str, *, junit: pathlib.Path | None = None) -> report.Report:
    given = [claim(number) for number in range(2)]
    known = {one["metadata"]["uid"]: ["device", "node-1", f"device-{number}"] for number, one in enumerate(given)}  # type: ignore[call-overload,index]
    (folder / "claims.json").write_text(json.dumps(known))
    subject = conformance.Subject(
        path=folder / "reg.sock",
        claims=lambda _: given,
        cdi=folder / "cdi",
        restarter=restarts.Restarter(start=shlex.join([sys.executable, str(PROGRAM), str(folder), fault])),
    )
    return conformance.check_plugin(subject, junit=junit)


def test_a_faultless_driver_passes(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    judged = judge(folder, "", junit=tmp_path / "report.xml")
    assert judged.driver == plain_driver.NAME
    not_passed = {check.name: check.message for check in judged.checks if check.verdict is not report.Verdict.PASS}
    assert set(not_passed.values()) == {"slices are not known without --kubeconfig"}
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]  # noqa: S314 - written a moment ago
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(len(judged.checks)), "0", str(len(not_passed)))


FAULTS = {
    "wrong type": (FAIL, "registration: the type is DRAPlugin", "'DevicePlugin'"),
    "wrong endpoint": (FAIL, "registration: the endpoint is a socket", "other.sock"),
    "no versions": (FAIL, "registration: supported_versions names the DRA service", "is empty"),
    "semantic versions": (FAIL, "registration: supported_versions names the DRA service", "1.0.0"),
    "v1 is not served": (FAIL, "registration: the service answers", "UNIMPLEMENTED"),
    "refuses registration": (FAIL, "registration: NotifyRegistrationStatus is accepted", "not now"),
    "mixed up answers": (FAIL, "v1: prepare returns the allocated devices of every claim", "which the claim was not given"),
    "a claim is left out": (FAIL, "v1: prepare returns the allocated devices of every claim", "leaves out default/claim-1"),
    "an extra claim": (FAIL, "v1: prepare returns the allocated devices of every claim", "claim UID another"),
    "wrong device": (FAIL, "v1: prepare returns the allocated devices of every claim", "'device-0-0'"),
    "wrong request": (FAIL, "v1: prepare returns the allocated devices of every claim", "for request 'gpu'"),
    "sub-request": (FAIL, "v1: prepare returns the allocated devices of every claim", "for request 'device/small'"),
    "not idempotent": (FAIL, "v1: prepare of a prepared claim returns the same result", "the second time the answer is"),
    "unknown claims fail unprepare": (FAIL, "v1: unprepare of unknown claims succeeds, alone, together and twice", "no such claim"),
    "call fails for one claim": (WARN, "v1: an invalid claim does not fail the others of its call", "NOT_FOUND"),
    "one bad claim fails all": (FAIL, "v1: an invalid claim does not fail the others of its call", "the call failed"),
    "prepares what does not exist": (FAIL, "v1: prepare of an unknown claim returns an error for that claim", "without an error"),
    "no CDI file": (FAIL, "v1: CDI ids are well formed, and valid files define them", "unresolvable"),
    "invalid CDI file": (FAIL, "v1: CDI ids are well formed, and valid files define them", "enviroment"),
    "malformed CDI id": (FAIL, "v1: CDI ids are well formed, and valid files define them", "vendor/class=name"),
    "forgets": (FAIL, "restart: prepare returns the same result in a new process", "after a restart the answer is"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(folder: pathlib.Path, fault: str) -> None:
    verdict, name, message = FAULTS[fault]
    found = {check.name: check for check in judge(folder, fault).checks}
    assert (found[name].verdict, message in found[name].message) == (verdict, True), found[name]


def test_a_socket_of_something_else_is_an_error_of_the_caller(folder: pathlib.Path) -> None:
    judge(folder, "")
    with pytest.raises(sockets.UnreachableError, match="no driver answers"):
        conformance.check_plugin(conformance.Subject(path=folder))
    with pytest.raises(sockets.UnreachableError, match="does not exist"):
        conformance.check_plugin(conformance.Subject(path=folder / "nothing"))


def test_a_driver_is_found_among_others_by_its_name(folder: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        for name in ("a", "b"):
            (folder / name).mkdir()
            (folder / name / "claims.json").write_text("{}")
            started = restarts.Restarter(start=shlex.join([sys.executable, str(PROGRAM), str(folder / name)]))
            stack.enter_context(started.started())
            sockets.Place(path=folder / name).find(20)
        assert sockets.Place(path=folder, driver=plain_driver.NAME).find(0).name == plain_driver.NAME
        with pytest.raises(sockets.UnreachableError, match=r"no driver other\.example\.com answers"):
            sockets.Place(path=folder, driver="other.example.com").find(0)


def published(number: int, *, generation: int = 1, count: int = 2, **spec: object) -> Object:
    pool = {"name": "node-1", "generation": generation, "resourceSliceCount": count}
    devices = [{"name": f"device-{number}"}]
    made = {"driver": plain_driver.NAME, "nodeName": "node-1", "pool": pool, "devices": devices, **spec}
    return {"metadata": {"name": f"slice-{number}"}, "spec": made}  # type: ignore[dict-item] # JSON


DRAWS = [{"name": "device-1", "consumesCounters": [{"counterSet": "chip", "counters": {"memory": {"value": "1"}}}]}]
WHOLE = "slices: every pool is complete, in one generation"
LIMITS = "slices: the API's limits hold, and counters suffice"


@pytest.mark.parametrize(
    "items, name, verdict, message",
    [
        ([published(0), published(1)], WHOLE, report.Verdict.PASS, ""),
        ([published(0), published(1)], LIMITS, report.Verdict.PASS, ""),
        ([], WHOLE, WARN, "no ResourceSlice"),
        ([published(0)], WHOLE, FAIL, "resourceSliceCount is [2], number of slices: 1"),
        ([published(0, generation=1), published(1, generation=2, count=1)], WHOLE, WARN, "still has slices of generations [1]"),
        ([published(0), published(1, devices=[{"name": "Not a label"}])], LIMITS, FAIL, "spec.devices[0].name"),
        ([published(0), published(1, devices=[{"name": "device-0"}])], LIMITS, FAIL, "is in pool"),
        ([published(0), published(1, devices=DRAWS)], LIMITS, FAIL, "no counter set chip"),
        ([published(0), published(1)], "slices: the devices of the claims are published", FAIL, "node-1/device-7"),
    ],
)
def test_a_fault_of_slices_is_found(items: list[Object], name: str, verdict: report.Verdict, message: str) -> None:
    given = [claims.Claim.of(claim(7), plain_driver.NAME)]
    found = report.judged(name, slices.checks(items, given)[name])
    assert (found.verdict, message in found.message) == (verdict, True), found


def test_a_claim_of_another_driver_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"claim default/claim-0 has no device of nobody\.example\.com"):
        claims.Claim.of(claim(0), "nobody.example.com")
