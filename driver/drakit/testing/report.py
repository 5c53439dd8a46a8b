"""The result of a conformance suite: one verdict for each obligation, as text, as JSON and as JUnit XML."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Literal
from xml.etree import ElementTree

from drakit.core import advanced

WORDS: Mapping[advanced.Verdict, str] = {
    advanced.Verdict.OK: "pass",
    advanced.Verdict.FAILED: "FAIL",
    advanced.Verdict.WARNING: "warn",
    advanced.Verdict.UNKNOWN: "n/a",
}
"""The words of reports, which are those of test runners. ``doctor`` prints the values of ``drakit.Verdict``."""


class NotApplicableError(Exception):
    """A check that does not apply. The text is the reason."""


class AdviceError(Exception):
    """A broken recommendation that the kubelet accepts. The text is the advice."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """The verdict on one obligation, and its duration."""

    name: str
    verdict: advanced.Verdict
    message: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool | None:
        """Whether the check passed; None if it does not apply."""
        return None if self.verdict is advanced.Verdict.UNKNOWN else self.verdict is not advanced.Verdict.FAILED

    def __str__(self) -> str:
        return f"{WORDS[self.verdict]:4}  {self.name}{f': {self.message}' if self.message else ''}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All checks of a driver, in order. ``crash_points`` is the number of simulated crashes."""

    driver: str
    checks: tuple[Check, ...]
    crash_points: int = 0

    def __str__(self) -> str:
        died = f", {self.crash_points} crash points" if self.crash_points else ""
        return "\n".join([f"{self.driver}{died}", *map(str, self.checks)])

    def count(self, verdict: advanced.Verdict) -> int:
        """Return the number of checks with a verdict."""
        return sum(check.verdict is verdict for check in self.checks)

    def document(self) -> Mapping[str, object]:
        """Return the report as a JSON object."""
        checks = [
            {"name": check.name, "verdict": WORDS[check.verdict].lower(), "message": check.message, "seconds": round(check.seconds, 3)}
            for check in self.checks
        ]
        died = {"crashPoints": self.crash_points} if self.crash_points else {}
        return {"driver": self.driver, "checks": checks, **died}

    def write_junit(self, file: pathlib.Path) -> None:
        """Write the report as JUnit XML, with one test case for each obligation. A warning is a passed case with output."""
        seconds = sum(check.seconds for check in self.checks)
        counts = {
            "tests": len(self.checks),
            "failures": self.count(advanced.Verdict.FAILED),
            "errors": 0,
            "skipped": self.count(advanced.Verdict.UNKNOWN),
        }
        attributes = {"name": self.driver, "time": f"{seconds:.3f}"} | {name: str(count) for name, count in counts.items()}
        suite = ElementTree.Element("testsuite", attributes)
        for check in self.checks:
            case = ElementTree.SubElement(suite, "testcase", classname=self.driver, name=check.name, time=f"{check.seconds:.3f}")
            message = "".join(character if character.isprintable() else " " for character in check.message)
            if check.verdict is advanced.Verdict.FAILED:
                ElementTree.SubElement(case, "failure", message=message).text = message
            elif check.verdict is advanced.Verdict.UNKNOWN:
                ElementTree.SubElement(case, "skipped", message=message)
            elif check.verdict is advanced.Verdict.WARNING:
                ElementTree.SubElement(case, "system-out").text = message
        root = ElementTree.Element("testsuites")
        root.append(suite)
        ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


def judged(name: str, check: Callable[[], None]) -> Check:
    """Run one check and return its result. AdviceError and NotApplicableError have their own verdicts; any other error is a failure."""
    began = time.monotonic()

    def verdict(of: advanced.Verdict, error: Exception | Literal[""] = "") -> Check:
        return Check(name=name, verdict=of, message=str(error), seconds=time.monotonic() - began)

    try:
        check()
    except NotApplicableError as reason:
        return verdict(advanced.Verdict.UNKNOWN, reason)
    except AdviceError as advice:
        return verdict(advanced.Verdict.WARNING, advice)
    except AssertionError as error:
        return verdict(advanced.Verdict.FAILED, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the author has to see
        return dataclasses.replace(verdict(advanced.Verdict.FAILED, error), message=f"{type(error).__name__}: {error}")
    return verdict(advanced.Verdict.OK)
