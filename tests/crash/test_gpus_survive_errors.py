"""Each NVML error at each call of prepare and unprepare, before its effect, after it, and from then on.

Once the error is gone and the kubelet has tried again, the world is that of a node that never met it; a claim that is given up leaves nothing. The
normal run draws a sample. The full one takes every code that the port knows, at every call of every table: given once, before or after the
effect, and given by that call from then on. (A code that the port does not know reaches the driver as ``UNKNOWN``.)

What comes after an error depends on nothing but what a driver that starts then would find. Many errors leave the very same world, so each world is
judged once; every error is met for itself.
"""

import pathlib
import shutil
import tempfile

import pytest

from crash import gpu_scenarios, killable_gpu_driver
from drakit_gpu import nvml_errors, port
from fakes import examples

HERE = gpu_scenarios.InThisProcess()
SAMPLE = 2
# A call may fail once before or after its effect, or again and again from a point on.
Point = tuple[str, int, bool, nvml_errors.Code]


class Failing(killable_gpu_driver.Stepper):
    """Makes a hardware call fail at a step; with ``lasts`` also every later one of the same name."""

    def __init__(self, at: int, code: nvml_errors.Code, *, lasts: bool) -> None:
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
        call = name.split()[1]
        raise nvml_errors.CallError(nvml_errors.CALLS.get(call, call), self._code, f"injected {name}")


def points(result: gpu_scenarios.Scenario, folder: pathlib.Path) -> list[Point]:
    """Every hardware call of the story, before and after its effect, with every code, once and from then on."""
    found: list[Point] = []
    node = result.before.copy(folder)
    for act in ("prepare", "unprepare"):
        names = HERE.names(node, act, result.wants)
        calls = [step for step, name in enumerate(names) if hasattr(port.GpuPort, name.split()[1])]
        found += [(act, step, lasts, code) for step in calls for code in nvml_errors.Code for lasts in (False, True)]
    return found


class Judge:
    """Judges what errors leave of a story, each world once; ``worlds`` is how many there were."""

    def __init__(self, result: gpu_scenarios.Scenario) -> None:
        self._told = result
        self._judged: set[tuple[str, str]] = set()
        self._worlds = {"prepare": result.before, "unprepare": result.prepared}
        self._known = {act: killable_gpu_driver.offered(world.life(act, result.wants)) for act, world in self._worlds.items()}

    @property
    def worlds(self) -> int:
        return len(self._judged)

    def check(self, point: Point, folder: pathlib.Path) -> None:
        act, step, lasts, code = point
        result = self._told
        node = self._worlds[act].copy(folder)
        HERE.live(node, act, result.wants, Failing(step, code, lasts=lasts), self._known[act])
        left = (act, node.whole())
        if left in self._judged:
            shutil.rmtree(folder)
            return
        gpu_scenarios.judge(HERE, result, act, node, f"{result.name} {act} step {step} {code.name}{' lasting' if lasts else ''}")
        self._judged.add(left)


@pytest.mark.parametrize("model", gpu_scenarios.TABLES)
def test_a_sampled_error_changes_nothing_in_the_end(model: str) -> None:
    kind = gpu_scenarios.KINDS[gpu_scenarios.TABLES.index(model) % len(gpu_scenarios.KINDS)]
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        folder = pathlib.Path(made)
        result = gpu_scenarios.story(HERE, folder / kind, model, kind)
        found = points(result, folder / "names")
        assert len(found) > 400
        judge = Judge(result)
        for number, point in enumerate(examples.draw(f"errors {model}").sample(found, SAMPLE)):
            judge.check(point, folder / str(number))
        assert judge.worlds


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", gpu_scenarios.TABLES)
def test_an_error_at_any_call_changes_nothing_in_the_end(model: str, record_property: gpu_scenarios.Record) -> None:
    total = worlds = 0
    for kind in gpu_scenarios.KINDS:
        with tempfile.TemporaryDirectory(prefix="dk") as made:
            folder = pathlib.Path(made)
            result = gpu_scenarios.story(HERE, folder / kind, model, kind)
            judge = Judge(result)
            for number, point in enumerate(points(result, folder / "names")):
                judge.check(point, folder / str(number))
                total += 1
            worlds += judge.worlds
    record_property("matrix", f"{model}: {total} errors, which left {worlds} different worlds")
    assert total > 5000
