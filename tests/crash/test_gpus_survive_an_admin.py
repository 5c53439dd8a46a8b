"""An admin who changes a GPU's MIG mode between any two steps of prepare and unprepare, and then puts it back.

``flip`` changes the mode where the hardware lets him: not while instances exist. ``wipe`` destroys all instances first and resets the GPU, which
takes the claim's own instance along. Once the mode is as it was and the kubelet has tried again, the world is that of a node nobody meddled with.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Mapping

import pytest

from crash import gpu_scenarios, killable_gpu_driver
from drakit_gpu import nvml_errors
from drakit_gpu.mock import mock_gpus
from fakes import examples

HERE = gpu_scenarios.InThisProcess()


class Admin:
    """Flips the mode at a step, and can put back what it was then."""

    def __init__(self, hardware: mock_gpus.MockGpus, *, wipes: bool) -> None:
        self._hardware = hardware
        self._gpu = hardware.gpus()[0].uuid
        self._wipes = wipes
        self._before: bool | None = None

    def meddle(self, _step: str) -> None:
        mode = self._hardware.mig_mode(self._gpu)
        assert mode is not None
        self._before = mode.current
        if self._wipes:
            self._hardware.reset(self._gpu)
        self._set(enabled=not mode.current)

    def put_back(self) -> None:
        assert self._before is not None
        self._set(enabled=self._before)

    def _set(self, *, enabled: bool) -> None:
        with contextlib.suppress(nvml_errors.CallError):
            self._hardware.set_mig_mode(self._gpu, enabled=enabled)


# What an admin wipes is not there afterwards, so only worlds in which nothing else lies can be compared.
EMPTY = (gpu_scenarios.ALONE, gpu_scenarios.WHOLE, gpu_scenarios.SLICE, gpu_scenarios.FIRST_SHARE, gpu_scenarios.FIRST_SLICE)
KINDS: Mapping[bool, tuple[str, ...]] = {False: gpu_scenarios.KINDS, True: EMPTY}


def check(result: gpu_scenarios.Scenario, act: str, step: int, folder: pathlib.Path, *, wipes: bool) -> None:
    node = (result.before if act == "prepare" else result.prepared).copy(folder)
    admin = Admin(node.hardware, wipes=wipes)
    HERE.live(node, act, result.wants, killable_gpu_driver.Stepper(step, admin.meddle))
    admin.put_back()
    gpu_scenarios.judge(HERE, result, act, node, f"{result.name} {act} step {step} {'wipe' if wipes else 'flip'}")


@pytest.mark.parametrize("model", gpu_scenarios.TABLES)
def test_a_sampled_change_of_mode_changes_nothing_in_the_end(model: str) -> None:
    """One of flip and wipe for each table, the other one for the next."""
    number = gpu_scenarios.TABLES.index(model) + examples.draw("admin").randrange(2)
    wipes = bool(number % 2)
    kinds = KINDS[wipes]
    kind = kinds[number // 2 % len(kinds)]
    with tempfile.TemporaryDirectory(prefix="dk") as made:
        folder = pathlib.Path(made)
        result = gpu_scenarios.story(HERE, folder / kind, model, kind)
        act, step = examples.draw(f"admin {model} {wipes}").choice(result.points)
        check(result, act, step, folder / "world", wipes=wipes)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", gpu_scenarios.TABLES)
def test_a_change_of_mode_at_any_step_changes_nothing_in_the_end(model: str, record_property: gpu_scenarios.Record) -> None:
    total = 0
    for kind in gpu_scenarios.KINDS:
        with tempfile.TemporaryDirectory(prefix="dk") as made:
            folder = pathlib.Path(made)
            result = gpu_scenarios.story(HERE, folder / kind, model, kind)
            for wipes in (wipes for wipes, kinds in KINDS.items() if kind in kinds):
                for act, step in result.points:
                    check(result, act, step, folder / f"{wipes}-{act}-{step}", wipes=wipes)
                    total += 1
    record_property("matrix", f"{model}: {total} changes of mode")
    assert total > 400
