"""Each NVML error at each call of prepare and unprepare, before its effect, after it, and from then on.

Once the error is gone and the kubelet has tried again, the world is that of a node that never met it; a claim that is given up leaves nothing. The
normal run takes a seeded sample. The full one takes every error at every call, before and after its effect, on one table that needs resets and one
that does not; everything else with the errors that mean something of their own to the driver, and one more.
"""

import pathlib
import random

import pytest

from crash import gpu_stories, gpu_victims
from drakit.devices.gpu import port

HERE = gpu_stories.Here()
SAMPLE = 8
EVERY_CODE = frozenset({"a100-sxm4-40gb", "h100-sxm5-80gb"})
OWN_MEANING = (port.Code.NOT_FOUND, port.Code.NOT_SUPPORTED, port.Code.IN_USE, port.Code.INSUFFICIENT_RESOURCES)
# A call may fail once before or after its effect, or again and again from a point on.
Point = tuple[str, int, bool, port.Code]
Codes = tuple[port.Code, ...]


class Failing(gpu_victims.Stepper):
    """Makes a hardware call fail at a step; with ``lasts`` also every later one of the same name."""

    def __init__(self, at: int, code: port.Code, *, lasts: bool) -> None:
        super().__init__(at, self._begin_to_fail)
        self._code = code
        self._lasts = lasts
        self._failing = ""

    def __call__(self, name: str) -> None:
        if name == self._failing:
            self._fail(name)
        super().__call__(name)

    def _begin_to_fail(self, name: str) -> None:
        self._failing = name if self._lasts else ""
        self._fail(name)

    def _fail(self, name: str) -> None:
        raise port.CallError(port.CALLS[name.split()[1]], self._code, f"injected {name}")


def points(told: gpu_stories.Story, folder: pathlib.Path, once: Codes, lasting: Codes) -> list[Point]:
    """Every hardware call of the story, before and after its effect, with the codes that it gives once and those that it gives from then on."""
    found: list[Point] = []
    node = told.before.copy(folder)
    faults = [*((code, False) for code in once), *((code, True) for code in lasting)]
    for act in ("prepare", "unprepare"):
        names = HERE.names(node, act, device=told.device)
        calls = [step for step, name in enumerate(names) if name.split()[1] in port.CALLS]
        found += [(act, step, lasts, code) for step in calls for code, lasts in faults]
    return found


def check(told: gpu_stories.Story, point: Point, folder: pathlib.Path) -> None:
    act, step, lasts, code = point
    node = (told.before if act == "prepare" else told.prepared).copy(folder)
    HERE.live(node, act, device=told.device, stepper=Failing(step, code, lasts=lasts))
    gpu_stories.judge(HERE, told, act, node, f"{told.name} {act} step {step} {code.name}{' lasting' if lasts else ''}")


def few(chance: random.Random) -> Codes:
    """The codes with a meaning of their own, and one of the others."""
    return (*OWN_MEANING, chance.choice([code for code in port.Code if code not in OWN_MEANING]))


@pytest.mark.parametrize("model", gpu_stories.TABLES)
def test_a_sampled_error_changes_nothing_in_the_end(tmp_path: pathlib.Path, model: str) -> None:
    chance = random.Random(model)
    kind = gpu_stories.KINDS[gpu_stories.TABLES.index(model) % 3]
    told = gpu_stories.story(HERE, tmp_path / kind, model, kind)
    found = points(told, tmp_path / "names", tuple(port.Code), tuple(port.Code))
    assert len(found) > 400
    for number, point in enumerate(chance.sample(found, SAMPLE)):
        check(told, point, tmp_path / str(number))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", gpu_stories.TABLES)
def test_an_error_at_any_call_changes_nothing_in_the_end(tmp_path: pathlib.Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(model)
    total = 0
    for kind in gpu_stories.KINDS:
        told = gpu_stories.story(HERE, tmp_path / kind, model, kind)
        found = points(told, tmp_path / f"{kind}-names", tuple(port.Code) if model in EVERY_CODE else few(chance), few(chance))
        for number, point in enumerate(found):
            check(told, point, tmp_path / f"{kind}-{number}")
        total += len(found)
    with capsys.disabled():
        print(f"\n{model}: {total} errors")  # noqa: T201 - the matrix says how large it was
    assert total > 200
