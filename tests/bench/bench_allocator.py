"""How long the allocator takes, beside what Kubernetes' own allocator in Go took for the same questions.

Every line runs in a fresh process for every seed. *Cold* is the first time: slices and claims are parsed and expressions compiled, but
nothing is indexed and no verdict is known. *Warm* is the same once more with what the first time taught about the slices (in the best of
three), as for the next pod of a scheduler. Printed are medians over the seeds, the worst cold time, the processor's own time of the cold run
(where it is far below the cold time, other processes kept the machine busy), and the ratio of the cold median to Go.

Run some lines as ``PYTHONPATH=tests python -m bench.bench_allocator LINE...``.
"""

import dataclasses
import gc
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from bench import allocator_inputs as inputs
from drakit_cluster.cel import EnvType, Selectors
from drakit_cluster.objects import devices, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState

SEEDS = range(5)
WARM_RUNS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """Claims to allocate one after the other; ``fits`` says how many allocations there must be over all nodes."""

    fleet: inputs.Fleet
    claims: Sequence[Object]
    fits: int
    together: bool = False
    """All claims in one decision, as for one pod."""
    held: Sequence[Object] = ()
    """Allocated claims that are there before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the report. ``go`` is the time in ms of Kubernetes' allocator, of the 1.37 snapshot where it is better; ``limit`` is our aim."""

    title: str
    go: float
    limit: float
    ask: Callable[[str, int], Question]
    beyond: bool = False
    """Go gave no answer in that time."""


def _ones(template: str, seed: int, *, together: bool = False) -> Question:
    claims = [inputs.claim(f"c-{seed}-{number}", inputs.mig("r", "1g.5gb")) for number in range(56)]
    return Question(fleet=inputs.gpu_fleet(template, 1, seed), claims=claims, fits=56, together=together)


def _fours(template: str, seed: int) -> Question:
    profiles = {"a": "1g.5gb", "b": "1g.5gb", "c": "2g.10gb", "d": "3g.20gb"}
    requests = [inputs.mig(name, profile) for name, profile in profiles.items()]
    claims = [inputs.claim(f"c-{seed}-{number}", *requests, constraints=[inputs.SAME_GPU]) for number in range(8)]
    return Question(fleet=inputs.gpu_fleet(template, 1, seed), claims=claims, fits=8)


def _shares(_template: str, seed: int) -> Question:
    claims = [inputs.claim(f"c-{seed}-{number}", inputs.share("r", "100M")) for number in range(800)]
    return Question(fleet=inputs.nic_fleet(seed), claims=claims, fits=800)


def _one_of_hundred(template: str, seed: int) -> Question:
    fleet = inputs.gpu_fleet(template, 100, seed)
    chosen = inputs.Fleet(nodes=[random.Random(seed).choice(fleet.nodes)], slices=fleet.slices)
    claims = [inputs.claim(f"c-{seed}-{number}", inputs.mig("r", "1g.5gb")) for number in range(24)]
    return Question(fleet=chosen, claims=claims, fits=24)


def _nowhere(template: str, seed: int, nodes: int, *requests: Object, constraints: Sequence[Object] = ()) -> Question:
    wanted = inputs.claim(f"c-{seed}", *requests, constraints=constraints)
    return Question(fleet=inputs.gpu_fleet(template, nodes, seed), claims=[wanted], fits=0)


def _separate(profile: str, count: int) -> list[Object]:
    return [inputs.mig(f"r{number}", profile) for number in range(count)]


def _half_taken(template: str, seed: int) -> Question:
    """28 of the 56 places for a 1g are taken, so that 28 are left."""
    fleet = inputs.gpu_fleet(template, 1, seed)
    pool = json_types.text(fleet.nodes[0], "metadata", "name")
    held: list[Object] = []
    for number, name in enumerate(random.Random(seed).sample(inputs.device_names(fleet, "1g.5gb"), 28)):
        result: Object = {"request": "r", "driver": inputs.DRIVER, "pool": pool, "device": name}
        taken = inputs.claim(f"h-{number}", inputs.mig("r", "1g.5gb"))
        held.append({**taken, "status": {"allocation": {"devices": {"results": [result]}}}})
    return Question(fleet=fleet, claims=[inputs.claim("c", inputs.mig("r", "1g.5gb", 29))], fits=0, held=held)


LINES: Mapping[str, Line] = {
    "ones": Line(title="56 claims of one 1g.5gb, one after the other", go=298, limit=298, ask=_ones),
    "ones-together": Line(
        title="56 claims of one 1g.5gb, in one decision", go=298, limit=298, ask=lambda template, seed: _ones(template, seed, together=True)
    ),
    "fours": Line(title="8 claims of (1g, 1g, 2g, 3g; matchAttribute)", go=80, limit=80, ask=_fours),
    "shares": Line(title="800 shares of one bandwidth capacity", go=59, limit=59, ask=_shares),
    "one-of-hundred": Line(title="24 claims on one of 100 nodes", go=90, limit=90, ask=_one_of_hundred),
    "nowhere": Line(
        title="a profile that no device of 100 nodes has",
        go=990,
        limit=990,
        ask=lambda template, seed: _nowhere(template, seed, 100, inputs.mig("r", "5g.25gb")),
    ),
    "nowhere-full": Line(
        title="9 x 7g on each of 100 nodes",
        go=990,
        limit=990,
        ask=lambda template, seed: _nowhere(template, seed, 100, *_separate("7g.40gb", 9)),
    ),
    "nine-sevens": Line(
        title="9 x 7g as separate requests on 8 GPUs",
        go=9_000,
        limit=100,
        ask=lambda template, seed: _nowhere(template, seed, 1, *_separate("7g.40gb", 9)),
    ),
    "eight-ones": Line(
        title="8 x 1g with matchAttribute (7 fit)",
        go=60_000,
        limit=100,
        beyond=True,
        ask=lambda template, seed: _nowhere(template, seed, 1, *_separate("1g.5gb", 8), constraints=[inputs.SAME_GPU]),
    ),
    "seventeen-threes": Line(
        title="17 x 3g as separate requests (16 fit)",
        go=60_000,
        limit=100,
        beyond=True,
        ask=lambda template, seed: _nowhere(template, seed, 1, *_separate("3g.20gb", 17)),
    ),
    "one-too-many": Line(title="count 29 of 1g with 28 left", go=60_000, limit=100, beyond=True, ask=_half_taken),
}


@dataclasses.dataclass(frozen=True)
class Times:
    """Milliseconds."""

    cold: float
    cpu: float
    warm: float


def measure(question: Question) -> Times:
    """Answer the question once cold, then warm; an answer that is not the expected one raises."""
    selectors = Selectors(FeatureGates())
    for expression in inputs.expressions(question.claims):
        selectors.compile(expression, EnvType.STORED)
    gc.collect()  # What parsing left to collect is not the allocator's.
    start, busy = time.perf_counter(), time.process_time()
    allocator = Allocator(question.fleet.slices, inputs.CLASSES, selectors, FeatureGates())
    _answer(question, allocator)
    cold, cpu = time.perf_counter() - start, time.process_time() - busy
    warm = []
    for _ in range(WARM_RUNS):
        start = time.perf_counter()
        _answer(question, allocator)
        warm.append(time.perf_counter() - start)
    return Times(cold * 1e3, cpu * 1e3, min(warm) * 1e3)


def _answer(question: Question, allocator: Allocator) -> None:
    used = AllocatedState.of(question.held)
    groups = [question.claims] if question.together else [[one] for one in question.claims]
    fitted = 0
    for node in question.fleet.nodes:
        for claims in groups:
            results = allocator.allocate(claims=claims, node=node, allocated=used, new_share_id=lambda: "share")
            for claim, result in zip(claims, results or (), strict=results is not None):
                used.add({**claim, "status": {"allocation": result}})
                fitted += 1
    if fitted != question.fits:
        raise devices.AllocationError(f"{fitted} claims were allocated, {question.fits} fit")


def _measured(template: pathlib.Path, name: str, seed: int) -> Times:
    """Measure in a fresh process."""
    command = [sys.executable, "-m", "bench.bench_allocator", "--measure", str(template), name, str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return Times(*json.loads(done.stdout))


def _report(name: str, line: Line, times: Sequence[Times]) -> str:
    cold, cpu, warm = (statistics.median(getattr(one, name) for one in times) for name in ("cold", "cpu", "warm"))
    worst = max(one.cold for one in times)
    go = f"{'>' if line.beyond else ''}{line.go:.0f}"
    verdict = "" if worst < line.limit else f"  above the aim of {line.limit:.0f} ms"
    return f"{line.title:48} {cold:8.1f} {worst:8.1f} {cpu:8.1f} {warm:8.1f} {go:>8} {cold / line.go:8.4f}  {name}{verdict}\n"


def main(folder: pathlib.Path, names: Sequence[str] = ()) -> None:
    """Print a line for each question: milliseconds cold (median and worst over the seeds) and in CPU time, warm, Go, and the ratio cold to Go."""
    template = inputs.write_template(folder)
    columns = ("cold", "worst", "cpu", "warm", "Go", "cold/Go")
    sys.stdout.write(f"{'ms':48} {' '.join(f'{column:>8}' for column in columns)}\n")
    for name in names or LINES:
        times = [_measured(template, name, seed) for seed in SEEDS]
        sys.stdout.write(_report(name, LINES[name], times))
        sys.stdout.flush()


def _child(template: str, name: str, seed: str) -> None:
    question = LINES[name].ask(pathlib.Path(template).read_text(), int(seed))
    sys.stdout.write(json.dumps(dataclasses.astuple(measure(question))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _child(*sys.argv[2:5])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(pathlib.Path(scratch), sys.argv[1:])
