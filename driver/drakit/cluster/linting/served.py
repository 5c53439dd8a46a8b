"""What a server said about documents, with the fix: fields of older versions of the API are named with what took their place."""

import re
from collections.abc import Iterable, Iterator

from drakit.cluster.linting import findings
from drakit.cluster.linting.findings import Finding
from drakit.cluster.manifests import Problem
from drakit.cluster.schema import table
from drakit.cluster.schema.shape import ListOf, MapOf, Shape, Struct

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_IN_EXACTLY = "resource.k8s.io/v1 has it in exactly: write requests[].exactly.{name}"
_OLDER = {
    "basic": "resource.k8s.io/v1 has no basic: move what it holds into the device itself",
    "boolean": "write bool",
    "integer": "write int",
    "deviceClassName": _IN_EXACTLY.format(name="deviceClassName"),
    "selectors": _IN_EXACTLY.format(name="selectors"),
    "allocationMode": _IN_EXACTLY.format(name="allocationMode"),
    "count": _IN_EXACTLY.format(name="count"),
    "adminAccess": _IN_EXACTLY.format(name="adminAccess"),
    "tolerations": _IN_EXACTLY.format(name="tolerations"),
}
_BY_FIELD = (
    (re.compile(r".*\.exactly"), "write one object; for a list of alternatives write firstAvailable"),
    (re.compile(r".*\.(constraints|config)\[\d+\]\.requests\[\d+\]"), "write the name of a request of this claim, or request/subrequest"),
    (re.compile(r".*\.adminAccess"), "label the Namespace resource.kubernetes.io/admin-access=true, or remove it"),
    (re.compile(r"apiVersion"), "write resource.k8s.io/v1, and check the fields that it renamed"),
    (re.compile(r".*\.cel\.expression"), "mend the expression; device has driver, attributes, capacity and allowMultipleAllocations"),
    (re.compile(r"spec"), "put sharedCounters into a slice of its own, of the same pool, and count both in resourceSliceCount"),
)


def check(problems: Iterable[Problem]) -> Iterator[Finding]:
    """Yield a finding for every problem."""
    for problem in problems:
        fix = _unknown(problem) if problem.text == "unknown field" else _refused(problem)
        yield findings.error(problem.document, problem.field, problem.text, fix)


def _refused(problem: Problem) -> str:
    for pattern, fix in _BY_FIELD:
        if pattern.fullmatch(problem.field) and (problem.field != "spec" or "sharedCounters" in problem.text):
            return fix
    return "remove it" if problem.text.startswith(("Forbidden", "Duplicate")) else "set it as the message says"


def _unknown(problem: Problem) -> str:
    parent, _, name = problem.field.rpartition(".")
    resource = problem.document.resource
    known = _fields(table.shape_of(resource), parent) if resource is not None else ()
    if name in _OLDER:
        return _OLDER[name]
    return f"{findings.suggestion(name, known)}, or remove it: kubectl refuses it and the server drops it"


def _fields(shape: Shape, path: str) -> Iterable[str]:
    """Return the names that an object at ``path`` may have."""
    found: Shape | None = shape
    for name, _ in _STEP.findall(path):
        match found:
            case Struct():
                found = found.fields.get(name) if name else None
            case ListOf():
                found = found.item
            case MapOf():
                found = found.value
    return found.fields if isinstance(found, Struct) else ()
