"""A problem of an object that the API server would refuse, with the parts that fixes use."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from drakit_cluster.manifests import Problem
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_VALUE = re.compile(r'(?:Invalid|Unsupported|Duplicate) value: ("(?:[^"\\]|\\.)*"|[\[{].*[\]}](?=: )|[^:]*)')


def steps(path: str) -> Sequence[tuple[str, str]]:
    """Return the steps of a field's path, each a name or an index in brackets."""
    return _STEP.findall(path)


def keys(path: str) -> list[str | int]:
    """Return the steps of a field's path as keys of objects and indices of lists."""
    return [int(index) if index.isdecimal() else index or name for name, index in steps(path)]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A problem, with the parts that fixes use."""

    problem: Problem

    @property
    def field(self) -> str:
        return self.problem.field

    @property
    def body(self) -> Object:
        return self.problem.document.body

    @property
    def detail(self) -> str:
        """The message after the kind of failure and the value."""
        kind, _, rest = self.problem.text.partition(": ")
        if kind in ("Invalid value", "Unsupported value"):
            match = _VALUE.match(self.problem.text)
            return self.problem.text[match.end() :].removeprefix(": ") if match else rest
        return rest or ("" if kind == "Required value" else kind)

    @cached_property
    def value(self) -> str:
        """The value in the message, as text."""
        match = _VALUE.match(self.problem.text)
        try:
            return str(json.loads(match[1])) if match else ""
        except ValueError:
            return match[1] if match else ""

    def holder(self, levels: int = 1) -> Json:
        """Return the object or list ``levels`` above the field."""
        path = keys(self.field)
        return json_types.at(self.body, *path[: len(path) - levels])

    def at(self, path: str) -> Json:
        """Return the value at a path of the object."""
        return json_types.at(self.body, *keys(path))

    @property
    def written(self) -> Json:
        return self.holder(0)
