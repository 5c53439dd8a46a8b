"""The conformance suite passes a good driver that shares no code with drakit, and finds each fault that is planted in it."""

import contextlib
import dataclasses
import json
import pathlib
import shlex
import socket
import sys
import uuid
from collections.abc import Iterator
from xml.etree import ElementTree

import grpc
import pytest

import drakit
from drakit.testing import report
from drakit_cluster.objects.json_types import Object
from drakit_tools import conformance
from drakit_tools.conformance import api_objects, claims, restarts, slices, sockets
from fakes import demo, plain_driver

HOST = "v1: the host has the device nodes, mounts and hooks of the CDI files"
WARN, FAIL = drakit.Verdict.WARNING, drakit.Verdict.FAILED
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


def two_requests() -> Object:
    """A claim with two requests."""
    both = claim(2)
    results: list[object] = both["status"]["allocation"]["devices"]["results"]  # type: ignore[index,call-overload,assignment]
    results.append({"request": "second", "driver": plain_driver.NAME, "pool": "node-1", "device": "device-3"})
    return both


def judge(folder: pathlib.Path, fault: str, *, junit: pathlib.Path | None = None) -> report.Report:
    """Judge the driver as a process of its own."""
    return judged_with(folder, fault, restarts.Restarter(start=shlex.join([sys.executable, str(PROGRAM), str(folder), fault])), junit=junit)


@contextlib.contextmanager
def in_this_process(folder: pathlib.Path, fault: str = "") -> Iterator[restarts.Restarter]:
    """Run the driver in threads of this process. Its restart is a new driver object, which knows what the folder has."""
    running: list[grpc.Server] = []

    def stop() -> None:
        while running:
            running.pop().stop(None).wait()

    def restart() -> None:
        stop()
        running.extend(plain_driver.start(folder, fault))

    restart()
    try:
        yield restarts.Restarter(call=restart)
    finally:
        stop()


def judge_in_this_process(folder: pathlib.Path, fault: str) -> report.Report:
    with in_this_process(folder, fault) as restarter:
        return judged_with(folder, fault, restarter)


def judged_with(folder: pathlib.Path, fault: str, restarter: restarts.Restarter, *, junit: pathlib.Path | None = None) -> report.Report:
    given = [claim(0), claim(1), two_requests()]
    read = [claims.Claim.of(one, plain_driver.NAME) for one in given]
    known = {one.id.uid: [[result.request, result.pool, result.device] for result in one.results] for one in read}
    (folder / "claims.json").write_text(json.dumps(known))
    subject = conformance.Subject(
        path=folder / "reg.sock",
        claims=lambda _: given,
        cdi=folder / "cdi",
        exclusive=("PLAIN_*_ENGINE",) if fault == "a part is given twice" else (),
        call_seconds=1.0 if "hangs" in fault else 45.0,
        slow_seconds=0.25 if fault == "is slow" else 20.0,
        restarter=restarter,
    )
    return conformance.check_plugin(subject, junit=junit)


def test_a_faultless_driver_passes(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    judged = judge(folder, "", junit=tmp_path / "report.xml")
    assert judged.driver == plain_driver.NAME
    not_passed = {check.name: check.message for check in judged.checks if check.verdict is not drakit.Verdict.OK}
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
    "a claim is left out": (FAIL, "v1: prepare returns the allocated devices of every claim", "leaves out default/claim-2 of 3"),
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
    "a variable without a value": (FAIL, "v1: CDI ids are well formed, and valid files define them", "must be NAME=value"),
    "a late CDI file": (FAIL, "v1: CDI ids are well formed, and valid files define them", "unresolvable"),
    "two CDI files": (FAIL, "v1: CDI ids are well formed, and valid files define them", "or two do"),
    "a huge answer": (FAIL, "v1: prepare returns the allocated devices of every claim", "RESOURCE_EXHAUSTED"),
    "leaves its CDI file": (FAIL, "v1: unprepare removes the CDI files of its claim", "after unprepare a CDI file in"),
    "removes every CDI file": (FAIL, "v1: unprepare keeps the CDI files of other claims", "unprepare of default/claim-0 removed what"),
    "no device node": (FAIL, HOST, 'failed to stat CDI host device "/dev/no-such-plain-device": no such file or directory'),
    "no mounted file": (FAIL, HOST, "/no-such-plain-file: no such file or directory"),
    "one variable for all devices": (
        *(FAIL, "v1: two devices in one container agree on every variable"),
        "PLAIN is 'device-0' for device-0 of default/claim-0 and 'device-1' for device-1 of default/claim-1, and a container with both",
    ),
    "a part is given twice": (
        *(FAIL, "v1: no two claims get the same exclusive part"),
        "PLAIN_DEVICE_0_ENGINE=0 of default/claim-0 and PLAIN_DEVICE_1_ENGINE=0 of default/claim-1 are the same part",
    ),
    "a second request is left out": (WARN, "v1: prepare returns the allocated devices of every claim", "lacks devices that the claim"),
    "first request for all": (FAIL, "v1: prepare returns the allocated devices of every claim", "for request 'device'"),
    "no request names": (WARN, "v1: prepare returns the allocated devices of every claim", "answered without request names"),
    "hangs": (FAIL, "registration: the service answers", "NodePrepareResources does not answer"),
    "is slow": (WARN, "v1: calls answer soon", "over 0.25 s"),
    "ends": (FAIL, "registration: the service answers", "the driver's process ended with status 3"),
    "forgets without a word": (
        *(FAIL, "restart: unprepare succeeds in a new process, and prepare after it"),
        "after unprepare in a new process a CDI file in",
    ),
    "forgets": (FAIL, "restart: prepare returns the same result in a new process", "after a restart the answer is"),
}


OF_PROCESSES = {"a late CDI file", "hangs", "ends"}
"""The faults of a driver that is judged as a process. The others are judged in this process, because a driver's process starts three times."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(folder: pathlib.Path, fault: str) -> None:
    verdict, name, message = FAULTS[fault]
    found = {check.name: check for check in (judge if fault in OF_PROCESSES else judge_in_this_process)(folder, fault).checks}
    assert (found[name].verdict, message in found[name].message) == (verdict, True), found[name]
    assert fault != "hangs" or not [one for one in found if one.startswith("v1")], "a service that hangs is not asked again"


def test_a_driver_that_ends_at_its_start_is_named_with_its_status(folder: pathlib.Path) -> None:
    with pytest.raises(sockets.UnreachableError, match=r"the driver's process ended with status 4; .*does not exist"):
        judge(folder, "ends at its start")


def test_slices_that_let_no_claim_be_allocated_are_reported(folder: pathlib.Path) -> None:
    def refused(_: str) -> list[Object]:
        raise api_objects.ClaimError("a claim of class plain does not fit on node-1")

    with in_this_process(folder):
        subject = conformance.Subject(path=folder / "reg.sock", claims=refused, published=lambda _: [published(0)])
        judged = {check.name: check.message for check in conformance.check_plugin(subject).checks if check.verdict is FAIL}
        assert judged == {
            "claims: a claim of each class can be allocated": (
                "a claim of class plain does not fit on node-1; the checks of the calls did not run"
            ),
            WHOLE: "generation 1 of pool node-1: resourceSliceCount is [2], number of slices: 1",
        }
        with pytest.raises(api_objects.ClaimError):
            conformance.check_plugin(dataclasses.replace(subject, published=lambda _: [published(0), published(1)]))


def test_a_socket_of_something_else_is_an_error_of_the_caller(folder: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "reg.sock"))
    with pytest.raises(sockets.UnreachableError, match="no driver answers"):
        conformance.check_plugin(conformance.Subject(path=folder))
    with pytest.raises(sockets.UnreachableError, match="does not exist"):
        conformance.check_plugin(conformance.Subject(path=folder / "nothing"))


def test_a_driver_is_found_among_others_by_its_name(folder: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        for name in ("a", "b"):
            (folder / name).mkdir()
            stack.enter_context(in_this_process(folder / name))
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
        ([published(0), published(1)], WHOLE, drakit.Verdict.OK, ""),
        ([published(0), published(1)], LIMITS, drakit.Verdict.OK, ""),
        ([], WHOLE, WARN, "no ResourceSlice"),
        ([published(0)], WHOLE, FAIL, "resourceSliceCount is [2], number of slices: 1"),
        ([published(0, generation=1), published(1, generation=2, count=1)], WHOLE, WARN, "still has slices of generations [1]"),
        ([published(0), published(1, devices=[{"name": "Not a label"}])], LIMITS, FAIL, "spec.devices[0].name"),
        ([published(0), published(1, devices=[{"name": "device-0"}])], LIMITS, FAIL, "is in pool"),
        ([published(0), published(1, devices=DRAWS)], LIMITS, FAIL, "no counter set chip"),
        ([published(0), published(1)], "slices: the devices of the claims are published", FAIL, "node-1/device-7"),
    ],
)
def test_a_fault_of_slices_is_found(items: list[Object], name: str, verdict: drakit.Verdict, message: str) -> None:
    given = [claims.Claim.of(claim(7), plain_driver.NAME)]
    found = report.judged(name, slices.checks(items, given)[name])
    assert (found.verdict, message in found.message) == (verdict, True), found


def test_fields_that_an_older_server_stored_are_no_finding() -> None:
    mappings = {"cpu": {"allocationMultiplier": "1"}}
    items = [published(0, count=1, devices=[{"name": "device-0", "nodeAllocatableResourceMappings": mappings}])]

    class Server:
        def request(self, method: str, path: str, **_: object) -> Object:
            assert (method, path) == ("GET", "/version")
            return {"gitVersion": "v1.36.2"}

    server = api_objects.Objects(Server()).server  # type: ignore[arg-type] # answers this one request
    assert server.version == "1.36"
    check = slices.checks(items, (), lambda: server)[LIMITS]
    assert report.judged(LIMITS, check).verdict is drakit.Verdict.OK
    assert "only Kubernetes 1.36 has it" in report.judged(LIMITS, slices.checks(items, ())[LIMITS]).message


def test_claims_wait_until_a_started_driver_replaces_slices_of_an_earlier_one(folder: pathlib.Path) -> None:
    (folder / "claims.json").write_text("{}")
    reads: list[str] = []

    def slices_now(_: str) -> list[Object]:
        reads.append("old" if len(reads) < 4 else "new")
        return [published(0 if reads[-1] == "old" else 1, count=1)]

    def given(_: str) -> list[Object]:
        reads.append("claims")
        raise api_objects.ClaimError("enough was seen")

    restarter = restarts.Restarter(start=shlex.join([sys.executable, str(PROGRAM), str(folder)]))
    with pytest.raises(api_objects.ClaimError):
        conformance.check_plugin(conformance.Subject(path=folder / "reg.sock", claims=given, published=slices_now, restarter=restarter))
    before = reads[: reads.index("claims")]
    assert (before[:4], set(before[4:])) == (["old"] * 4, {"new"})


def test_a_claim_of_another_driver_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"claim default/claim-0 has no device of nobody\.example\.com"):
        claims.Claim.of(claim(0), "nobody.example.com")
