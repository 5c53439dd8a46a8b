"""What a server said about documents, each with its mend."""

import re
from collections.abc import Iterable, Iterator

from drakit_cluster.lint import findings, mends
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Dropped, Problem
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import ListOf, MapOf, Shape, Struct

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def check(problems: Iterable[Problem]) -> Iterator[Finding]:
    """Yield a finding for every problem."""
    for problem in problems:
        unknown = problem.text == "unknown field"
        fix = mends.of_unknown(problem, _known(problem)) if unknown else mends.of_refusal(problem)
        yield findings.error(problem.document, problem.field, problem.text, fix)


def dropped(fields: Iterable[Dropped]) -> Iterator[Finding]:
    """Yield a warning for what the server drops because a gate is off."""
    for one in fields:
        more = f" and {one.count - 1} more of its kind are" if one.count > 1 else " is"
        text = f"this field{more} dropped by the API server: feature gate {one.gate} is off"
        fix = f"enable the gate in the cluster and lint with --gate {one.gate}=true, or remove the field"
        yield findings.warning(one.document, one.field, text, fix)


def _known(problem: Problem) -> Iterable[str]:
    """Return the names that the object which has the unknown field may have."""
    found: Shape | None = table.shape_of(problem.document.resource) if problem.document.resource is not None else None
    for name, _ in _STEP.findall(problem.field.rpartition(".")[0]):
        match found:
            case Struct():
                found = found.fields.get(name) if name else None
            case ListOf():
                found = found.item
            case MapOf():
                found = found.value
    return found.fields if isinstance(found, Struct) else ()
