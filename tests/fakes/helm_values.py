"""Paths of values for one run of helm, which reports all values that the schema of a chart refuses."""

from collections.abc import Sequence


def apart(paths: Sequence[str]) -> list[list[int]]:
    """Return the numbers of paths in few groups. In a group no two are in the same object, and none is in the value of another."""
    groups: list[list[int]] = []
    for number, path in enumerate(paths):
        free = (group for group in groups if not any(_meet(path, paths[other]) for other in group))
        if (group := next(free, None)) is None:
            groups.append(group := [])
        group.append(number)
    return groups


def _meet(one: str, other: str) -> bool:
    one, other = one.replace("[]", ""), other.replace("[]", "")
    same = one.rpartition(".")[0] == other.rpartition(".")[0]
    return same or f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
