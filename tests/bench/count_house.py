"""Count what a reader has to read: lines, modules, entries of folders, and the files and functions that one prepare and one publish cross.

Run it as ``.venv/bin/python tests/bench/count_house.py [ROOT]``; ROOT is a checkout, by default this one. A prepare is that of one MIG partition of a
mock machine through the engine, a publish the first round of a publisher for that machine's devices. Both are traced by ``sys.setprofile``. The mock
hardware counts, and is also printed by itself.
"""

import ast
import importlib
import pathlib
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

MACHINE = "dgx-a100-40gb-2gpu"
DEVICE = "gpu-0-mig-3g20gb-9-0"
IMPORTS = 5


class Crossed:
    """The files and functions of a package that a call enters."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = str(root)
        self.functions: set[tuple[str, str, int]] = set()

    @property
    def files(self) -> set[str]:
        return {file for file, *_ in self.functions}

    @property
    def mock_files(self) -> set[str]:
        """The files that stand for the hardware and that a node with real hardware does not enter."""
        return {file for file in self.files if set(pathlib.Path(file).parts) & {"mock", "machines"} or file.endswith("/devices/tables.py")}

    def during(self, work: Callable[[], object]) -> None:
        """Trace a call of this thread."""
        sys.setprofile(self._enter)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _enter(self, frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._root) and not code.co_name.startswith("<"):
            self.functions.add((code.co_filename, code.co_name, code.co_firstlineno))


def first(*names: str) -> Any:
    """Return the first module of these that there is: names differ between the commits that are compared."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error
    raise missing


def house(package: pathlib.Path) -> list[tuple[str, object]]:
    """Return the figures of a package's source."""
    modules = [path for path in package.rglob("*.py") if "_proto" not in path.parts]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in modules}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    folders = {
        folder: len([path for path in modules if path.parent == folder and path.name != "__init__.py"])
        for folder in {p.parent for p in modules}
    }
    fullest = sorted(folders, key=lambda folder: -folders[folder])[:5]
    name = package.name
    return [
        (f"{name}: lines", sum(len(path.read_text("utf-8").splitlines()) for path in modules)),
        (f"{name}: modules", len([path for path in modules if path.name != "__init__.py"])),
        (f"{name}: functions", len(functions)),
        (f"{name}: fullest folders", ", ".join(f"{folder.relative_to(package.parent)} {folders[folder]}" for folder in fullest)),
    ]


def family(folder: pathlib.Path) -> Any:
    """Return the GPU family of a mock machine below a folder."""
    composition, options = importlib.import_module("drakit.cli.composition"), importlib.import_module("drakit.cli.options")
    settings = options.read(config=None, assignments=None, mock=MACHINE, folder=folder, node="node-1", flags={})
    return next(item for item in composition.families(settings) if item.name == "gpu")


def prepare(folder: pathlib.Path, crossed: Crossed) -> None:
    """Prepare one MIG partition."""
    claims, sources = importlib.import_module("drakit.core.claim"), importlib.import_module("fakes.claim_source")
    world = importlib.import_module("fakes.crash_node")
    nodes = first("drakit.node.local_node", "drakit.node.station")
    gpu = family(folder)
    spec = gpu.spec if hasattr(gpu, "spec") else gpu.post
    ref = claims.ClaimRef(uid="4cf8db2d-06c0-4d70-9a51-e59b25b2c16c", namespace="default", name="mig")
    result = claims.AllocationResult(request="gpu", driver=spec.driver_name, pool="node-1", device=DEVICE)
    source = sources.FakeClaimSource(claims.Claim(ref=ref, results=(result,)))
    opened = getattr(nodes, "LocalNode", None) or nodes.Station
    with opened.open(spec, gpu.folders, source) as node:
        node.offered.refresh()
        answers: dict[str, Any] = {}
        crossed.during(lambda: answers.update(node.engine.prepare([ref], world.Waiting())))
        if answers[ref.uid].error:
            raise RuntimeError(answers[ref.uid].error)


def publish(folder: pathlib.Path, crossed: Crossed) -> None:
    """Publish the devices of the machine."""
    publishers = first("drakit.node.publishing.publisher", "drakit.node.publisher")
    clock = first("drakit.node.timing", "drakit.node.clock")
    stores = importlib.import_module("fakes.slice_store")
    gpu = family(folder)
    spec = gpu.spec if hasattr(gpu, "spec") else gpu.post
    target = publishers.Target(driver=spec.driver_name, node="node-1", pool="node-1")
    publisher = publishers.Publisher(target, store=stores.FakeSliceStore(), clock=clock.SystemClock())
    publisher.offer(spec.build(lambda _=None: ()).discover())
    crossed.during(publisher.reconcile)


def import_ms(statement: str) -> float:
    """Return the shortest of a few imports in a new process, less that of a bare interpreter, in milliseconds."""

    def shortest(code: str) -> float:
        taken = []
        for _ in range(IMPORTS):
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", code], check=True)
            taken.append(time.monotonic() - began)
        return min(taken)

    return (shortest(statement) - shortest("pass")) * 1000


def main() -> None:
    """Print the figures of a checkout."""
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).absolute()
    paths = [str(root / name) for name in ("driver", "cluster", "tests")]
    if paths[0] not in sys.path[:3]:
        environment = {"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"}
        sys.exit(subprocess.run([sys.executable, __file__, str(root)], env=environment, check=False).returncode)
    rows: list[tuple[str, object]] = []
    for package in (root / "driver" / "drakit", root / "driver" / "drakit" / "node", root / "driver" / "drakit" / "journal"):
        rows += house(package)
    if (root / "cluster").is_dir():
        rows += house(root / "cluster" / "drakit_cluster")
    for name, work in (("one MIG prepare", prepare), ("one publish", publish)):
        with tempfile.TemporaryDirectory(prefix="dk") as folder:
            crossed = Crossed(root / "driver" / "drakit")
            work(pathlib.Path(folder), crossed)
        rows += [(f"{name}: files crossed", len(crossed.files)), (f"{name}: functions crossed", len(crossed.functions))]
        rows += [
            (f"{name}: of these, mock hardware: files", len(crossed.mock_files)),
            (f"{name}: of these, mock hardware: functions", len([file for file, *_ in crossed.functions if file in crossed.mock_files])),
        ]
    rows.append(("import of drakit, ms", round(import_ms("import drakit"))))
    rows.append(("import of the node's modules, ms", round(import_ms("import drakit.node.node"))))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        sys.stdout.write(f"{name:<{width}}  {value}\n")


if __name__ == "__main__":
    main()
