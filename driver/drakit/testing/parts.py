"""The parts of hardware that a container gets, by the names of the variables and device nodes that identify them.

An author or an operator names them, because no check can tell a variable that chooses a part (``ENGINE_A=0``) from one that says the same to all
containers (``MODE=0``). A name may contain ``*``. A variable may list several parts, separated by commas, semicolons or blanks.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_SEPARATORS = re.compile(r"[\s,;]+")


class Part(NamedTuple):
    """A part: the pattern that names it, the variable (empty for a device node), and its value or path."""

    pattern: str
    variable: str
    name: str

    def __str__(self) -> str:
        return f"{self.variable}={self.name}" if self.variable else self.name


def of_container(patterns: Sequence[str], variables: Mapping[str, str], device_nodes: Sequence[str]) -> Iterator[Part]:
    """Yield the parts that a container with these variables and device nodes gets."""
    for pattern in patterns:
        for variable in fnmatch.filter(variables, pattern):
            yield from (Part(pattern, variable, name) for name in _SEPARATORS.split(variables[variable]) if name)
        yield from (Part(pattern, "", node) for node in fnmatch.filter(device_nodes, pattern))


def given_twice(first: Sequence[Part], second: Sequence[Part]) -> tuple[Part, Part] | None:
    """Return a part that two claims have at once, as each of them gets it; None if there is none."""
    pairs = itertools.product(first, second)
    return next(((one, two) for one, two in pairs if (one.pattern, one.name) == (two.pattern, two.name)), None)
