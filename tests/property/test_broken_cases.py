"""Recorded cases with something broken in them: every kind of case still gets an answer in its form, or one clear refusal."""

import json
from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from conformance import adapter
from conformance.test_recorded_decisions import KINDS, recorded
from drakit_cluster.objects import errors, json_types, quantity
from drakit_cluster.objects.json_types import Json, Object
from fakes import examples

BOUNDED = settings(
    max_examples=examples.count(120), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
REFUSALS = (errors.BadRequestError, quantity.QuantityError)
FIXED = {"kind", "name", "operation", "objectKind", "apiVersion"}
Path = tuple[str | int, ...]
CASES: Mapping[str, list[Object]] = {kind: list(recorded(kind)) for kind in KINDS}
FAILURES = {"Required", "Invalid", "Duplicate", "TooLong", "TooMany", "NotSupported", "Forbidden", "NotFound"}
EMPTY: list[Json] = [None, [], [None], [[]], {}, {"": None}, {"a": {"b": 1}}]
TEXTS: list[Json] = ["", "x" * 300, "é", "\x00", "!@#", "a/b/c", "NoSchedule"]
AMOUNTS: list[Json] = [0, -1, 1, 1.5, 2**70, "-0", "0.5", "1e3", "100m", "1.5Gi", "9" * 30, "1e400", "1Xi"]
JUNK: list[Json] = [*EMPTY, *TEXTS, *AMOUNTS, True, False]


def places(value: Json, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of everything in a value that may be broken."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            if path or name not in FIXED:
                yield from places(item, (*path, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from places(item, (*path, position))


def breaks(draw: st.DrawFn, case: Object) -> None:
    """Delete, replace or repeat something."""
    found = list(places(case))
    if not found:
        return
    *above, last = draw(st.sampled_from(found))
    holder = json_types.at(case, *above)
    how = draw(st.sampled_from(["delete", "junk", "junk", "move", "repeat"]))
    if isinstance(holder, dict) and isinstance(last, str):
        if how == "delete":
            del holder[last]
        elif how == "repeat":
            holder[f"{last}x"] = json_types.copy(holder[last])
        else:
            holder[last] = other(draw, case, found, how)
    elif isinstance(holder, list) and isinstance(last, int):
        if how == "delete":
            del holder[last]
        elif how == "repeat":
            holder.insert(last, json_types.copy(holder[last]))
        else:
            holder[last] = other(draw, case, found, how)


def other(draw: st.DrawFn, case: Object, found: list[Path], how: str) -> Json:
    chosen = json_types.at(case, *draw(st.sampled_from(found))) if how == "move" else draw(st.sampled_from(JUNK))
    return json_types.copy(chosen)


@st.composite
def broken(draw: st.DrawFn, kind: str) -> Object:
    whole = draw(st.sampled_from(CASES[kind]))
    case = json_types.copy_object({name: value for name, value in whole.items() if name != "expect"})
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        breaks(draw, case)
    return case


def is_allocation(answer: Object) -> bool:
    if answer["outcome"] != "allocated":
        return answer["outcome"] in ("none", "error")
    return all("devices" in result for result in json_types.objects(answer, "results"))


def is_verdict(answer: Object) -> bool:
    return answer["outcome"] in ("compileError", "matchError") or isinstance(answer["match"], bool)


def is_amount(answer: Object) -> bool:
    return isinstance(answer["value"], (bool, int, dict))


def is_toleration(answer: Object) -> bool:
    return isinstance(answer["tolerated"], bool)


def are_failures(answer: Object) -> bool:
    failures = json_types.objects(answer, "failures")
    return {one["type"] for one in failures} <= FAILURES and all(one["field"] for one in failures)


FORMS: dict[str, Callable[[Object], bool]] = {
    "allocate": is_allocation,
    "capacity": is_amount,
    "cel": is_verdict,
    "toleration": is_toleration,
    "validate": are_failures,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_case_gets_an_answer_or_one_clear_refusal(kind: str) -> None:
    @BOUNDED
    @given(broken(kind))
    def answered(case: Object) -> None:
        before = json_types.copy_object(case)
        try:
            answer = adapter.answer(case)
        except REFUSALS:
            event("refused")
            return
        json.dumps(answer)
        assert FORMS[kind](answer), answer
        assert adapter.answer(case) == answer, "the answer depends on the case alone"
        assert case == before, "answering changes nothing"

    answered()
