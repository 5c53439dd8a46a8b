"""Count what a reader has to read: lines, modules, entries of folders, and the files and functions that one prepare and one publish cross.

Run it as ``.venv/bin/python tests/bench/count_house.py [--list] [ROOT]``; ROOT is a checkout, by default this one. A prepare is that of one MIG
partition of a mock machine through the engine, a publish the first round of a publisher for that machine's devices. Both are traced by
``sys.setprofile``. The mock hardware counts, and is also printed by itself. The first prepare of a process also compiles formats and looks for the
driver's files; a later one does not. ``--list`` prints the functions that one prepare crosses, with the number of calls, by folder and file, in the
order in which they are first entered; ``first`` marks those that no later prepare enters.

``--stack`` prints the frames between the method that gRPC calls and the one that writes a CDI file, in a node with metrics as ``drakit run`` makes
it. A function only forwards if its body, without docstring, is one call. The files that ``drakit run`` loads are those of its process once it serves
a mock machine.
"""

import argparse
import ast
import collections
import functools
import importlib
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tokenize
import types
from collections.abc import Callable
from typing import Any

HANDLER, CDI_WRITE = "DraService.NodePrepareResources", "Directory.write"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
MACHINE = "dgx-a100-40gb-2gpu"
DEVICES = ("gpu-0-mig-3g20gb-9-0", "gpu-0-mig-3g20gb-9-4")
IMPORTS = 5
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Crossed:
    """The files and functions of a package that a call enters."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = str(root)
        self.functions: collections.Counter[tuple[str, str, int]] = collections.Counter()

    @property
    def files(self) -> set[str]:
        return {file for file, *_ in self.functions}

    @property
    def mock_files(self) -> set[str]:
        """The files that stand for the hardware and that a node with real hardware does not enter."""
        return {
            str(path)
            for path in map(pathlib.Path, self.files)
            if set(path.parts) & {"mock", "machines"} or path.name in {"mock.py", "tables.py"}
        }

    @property
    def framework_files(self) -> set[str]:
        """The files of the framework, without those that stand for the hardware."""
        return {file for file in self.files - self.mock_files if pathlib.Path(file).is_relative_to(self._root + "/")}

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
            self.functions[code.co_filename, code.co_qualname, code.co_firstlineno] += 1


class Frames:
    """The functions of a package that are running when a CDI file is written, from the method that gRPC calls."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = str(root)
        self.stack: list[types.CodeType] = []

    def during(self, work: Callable[[], object]) -> None:
        """Trace a call of this thread."""
        sys.setprofile(self._enter)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _enter(self, frame: types.FrameType, event: str, _: object) -> None:
        if self.stack or event != "call" or frame.f_code.co_qualname != CDI_WRITE:
            return
        running: types.FrameType | None = frame
        while running is not None and running.f_code.co_qualname != HANDLER:
            self._add(running)
            running = running.f_back
        if running is not None:
            self._add(running)
        self.stack.reverse()

    def _add(self, frame: types.FrameType) -> None:
        if frame.f_code.co_filename.startswith(self._root):
            self.stack.append(frame.f_code)

    def forwarding(self) -> list[types.CodeType]:
        """Return those that only forward."""
        trees = {code.co_filename: ast.parse(pathlib.Path(code.co_filename).read_text("utf-8")) for code in self.stack}
        lines = {
            file: {
                min((node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))))
                for node in ast.walk(tree)
                if isinstance(node, FUNCTIONS) and only_forwards(node)
            }
            for file, tree in trees.items()
        }
        return [code for code in self.stack if code.co_firstlineno in lines[code.co_filename]]


def only_forwards(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Return whether the body of a function or lambda is one call."""
    if isinstance(node, ast.Lambda):
        return isinstance(node.body, ast.Call)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr) and isinstance(body[0].value, ast.Call)


def has_second_block(tree: ast.Module) -> bool:
    """Return whether a module has constants before its first class, and others after it."""
    kinds = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            kinds.append("class")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id) for target in targets):
                kinds.append("constant")
    return "class" in kinds and "constant" in kinds[: kinds.index("class")] and "constant" in kinds[kinds.index("class") :]


def lines_of_code(path: pathlib.Path, tree: ast.Module) -> int:
    """Return the number of lines that are neither empty nor only comments or docstrings."""
    with tokenize.open(path) as source:
        tokens = [token for token in tokenize.generate_tokens(source.readline) if token.type not in NO_CODE]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


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
        (f"{name}: of these, code", sum(lines_of_code(path, trees[path]) for path in modules)),
        (f"{name}: modules", len([path for path in modules if path.name != "__init__.py"])),
        (f"{name}: functions", len(functions)),
        (f"{name}: functions that only forward", sum(map(only_forwards, functions))),
        (f"{name}: modules with a second block of constants", sum(map(has_second_block, trees.values()))),
        (f"{name}: fullest folders", ", ".join(f"{folder.relative_to(package.parent)} {folders[folder]}" for folder in fullest)),
    ]


def family(folder: pathlib.Path) -> Any:
    """Return the GPU family of a mock machine below a folder."""
    composition, options = importlib.import_module("drakit.cli.composition"), importlib.import_module("drakit.cli.options")
    settings = options.read(config=None, assignments=None, mock=MACHINE, folder=folder, node="node-1", flags={})
    return next(item for item in composition.families(settings) if item.name == "gpu")


def prepare(folder: pathlib.Path, crossed: Crossed, later: Crossed) -> None:
    """Prepare one MIG partition, and then another one of the same GPU."""
    claims, sources = importlib.import_module("drakit.core.claim"), importlib.import_module("fakes.claim_source")
    world = first("fakes.crash_node", "fakes.world")
    nodes = first("drakit.node.local_node", "drakit.node.station")
    gpu = family(folder)
    spec = gpu.spec if hasattr(gpu, "spec") else gpu.post
    source = sources.FakeClaimSource()
    opened = getattr(nodes, "LocalNode", None) or nodes.Station
    with opened.open(spec, gpu.folders, source) as node:
        node.offered.refresh()
        for number, (device, tracing) in enumerate(zip(DEVICES, (crossed, later), strict=True)):
            ref = claims.ClaimRef(uid=f"4cf8db2d-06c0-4d70-9a51-e59b25b2c16{number}", namespace="default", name=f"mig-{number}")
            result = claims.AllocationResult(request="gpu", driver=spec.driver_name, pool="node-1", device=device)
            source.put(claims.Claim(ref=ref, results=(result,)))
            tracing.during(functools.partial(node.engine.prepare, [ref], world.Waiting()))
            if [entry.state.value for entry in node.journal.entries()] != ["prepared"] * (number + 1):
                raise RuntimeError(f"{device} was not prepared")


def serve_one_call(folder: pathlib.Path, frames: Frames) -> None:
    """Prepare one MIG partition through the method that gRPC calls, in a node with metrics."""
    claims, sources = importlib.import_module("drakit.core.claim"), importlib.import_module("fakes.claim_source")
    nodes, dra = importlib.import_module("drakit.node.node"), importlib.import_module("drakit.kubelet.dra")
    metrics, clock = importlib.import_module("drakit.node.metrics"), first("drakit.node.timing", "drakit.node.clock")
    wire = importlib.import_module("drakit._proto.dra_v1_pb2")
    gpu, source = family(folder), sources.FakeClaimSource()
    dependencies = nodes.NodeDependencies(
        claim_source=source,
        slice_store=importlib.import_module("fakes.slice_store").FakeSliceStore(),
        registry=folder / "plugins_registry",
        clock=clock.SystemClock(),
        meter=metrics.Metrics().of(gpu.spec.driver_name),
    )
    node = nodes.Node(gpu.spec, gpu.folders, dependencies, node_name="node-1")
    with node.local:
        node.local.offered.refresh()
        uid = "4cf8db2d-06c0-4d70-9a51-e59b25b2c160"
        result = claims.AllocationResult(request="gpu", driver=gpu.spec.driver_name, pool="node-1", device=DEVICES[0])
        source.put(claims.Claim(ref=claims.ClaimRef(uid=uid, namespace="default", name="mig-0"), results=(result,)))
        request = wire.NodePrepareResourcesRequest(claims=[wire.Claim(uid=uid, namespace="default", name="mig-0")])
        frames.during(lambda: dra.DraService(node.local.engine, node.calls).NodePrepareResources(request, WaitingContext()))
    if not frames.stack:
        raise RuntimeError("no CDI file was written")


class WaitingContext:
    """A gRPC call whose caller waits."""

    def is_active(self) -> bool:
        return True

    def time_remaining(self) -> None:
        return None


def loaded_files() -> int:
    """Return the number of modules of ours that a process of ``drakit run`` has imported once it serves a mock machine."""
    processes = importlib.import_module("bench.processes")
    program = "import drakit_command; drakit_command.main()"
    with tempfile.TemporaryDirectory(prefix="dk") as scratch, processes.api_server(pathlib.Path(scratch), shares=1, units=1, slow=1) as api:
        command = [sys.executable, "-X", "importtime", "-c", program]
        with processes.DriverProcess(command, "gpu.drakit.dev", pathlib.Path(scratch) / "n", api, "--mock", MACHINE) as served:
            served.until(served.is_started)
        imported = re.findall(r"^import time: .*\| +(drakit[\w.]*)$", served.log.read_text(), flags=re.MULTILINE)
    return len({name for name in imported if not name.startswith("drakit_cluster")})


def publish(folder: pathlib.Path, crossed: Crossed, _: Crossed) -> None:
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


def listing(root: pathlib.Path, crossed: Crossed, later: Crossed) -> list[str]:
    """Return the functions crossed, below their files and folders."""
    lines: list[str] = []
    by_file = itertools.groupby(sorted(crossed.functions, key=lambda function: function[0]), key=lambda function: function[0])
    folder = ""
    for file, functions in by_file:
        place, name = os.path.split(os.path.relpath(file, root))
        lines += [place] * (place != folder)
        folder = place
        listed = list(functions)
        lines.append(f"    {name}: {len(listed)}{' (mock hardware)' if file in crossed.mock_files else ''}")
        in_order = (function for function in crossed.functions if function[0] == file)
        lines += [
            f"        {crossed.functions[function]:4} {function[1]}:{function[2]}{'' if function in later.functions else '  first'}"
            for function in in_order
        ]
    return lines


def crossings(name: str, crossed: Crossed) -> list[tuple[str, object]]:
    """Return the figures of one call."""
    return [
        (f"{name}: files crossed", len(crossed.files)),
        (f"{name}: functions crossed", len(crossed.functions)),
        *of_these(name, "the framework", crossed, crossed.framework_files),
        *of_these(name, "mock hardware", crossed, crossed.mock_files),
    ]


def of_these(name: str, part: str, crossed: Crossed, files: set[str]) -> list[tuple[str, object]]:
    """Return the figures of a part of one call."""
    functions = [file for file, *_ in crossed.functions if file in files]
    return [(f"{name}: of these, {part}: files", len(files)), (f"{name}: of these, {part}: functions", len(functions))]


def main() -> None:
    """Print the figures of a checkout."""
    parser = argparse.ArgumentParser(description="Count what a reader has to read.")
    parser.add_argument("--list", action="store_true", help="print the functions that one prepare crosses instead")
    parser.add_argument("--stack", action="store_true", help="print the frames from gRPC to the CDI write instead")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parents[2], type=pathlib.Path)
    given = parser.parse_args()
    root = given.root.absolute()
    paths = [str(root / name) for name in ("driver", "cluster", "tests")]
    if paths[0] not in sys.path[:3]:
        environment = {"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"}
        sys.exit(subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment, check=False).returncode)
    rows: list[tuple[str, object]] = []
    traced = {}
    for name, work in (("one MIG prepare", prepare), ("one publish", publish)):
        with tempfile.TemporaryDirectory(prefix="dk") as folder:
            traced[name] = crossed, later = Crossed(root / "driver" / "drakit"), Crossed(root / "driver" / "drakit")
            work(pathlib.Path(folder), crossed, later)
        rows += crossings(name, crossed)
        rows += crossings("a later MIG prepare", later) if later.functions else []
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        frames = Frames(root / "driver")
        serve_one_call(pathlib.Path(folder), frames)
    forwarding = frames.forwarding()
    rows.append(("one MIG prepare: frames from gRPC to the CDI write", len(frames.stack)))
    rows.append(("one MIG prepare: of these, frames that only forward", len(forwarding)))
    if given.stack:
        for code in frames.stack:
            place = f"{os.path.relpath(code.co_filename, root)}:{code.co_firstlineno}"
            sys.stdout.write(f"{place:<50} {code.co_qualname}{'  forwards' if code in forwarding else ''}\n")
        return
    if given.list:
        sys.stdout.write("\n".join([*listing(root / "driver" / "drakit", *traced["one MIG prepare"]), ""]))
        return
    names = (
        "driver/drakit",
        "driver/drakit/node",
        "driver/drakit/journal",
        "driver/drakit_gpu",
        "driver/drakit_nic",
        "driver/drakit_tools",
    )
    packages = [root / name for name in (*names, "cluster/drakit_cluster") if (root / name).is_dir()]
    rows = [row for package in packages for row in house(package)] + rows
    rows.append(("import of drakit, ms", round(import_ms("import drakit"))))
    rows.append(("import of the node's modules, ms", round(import_ms("import drakit.node.node"))))
    rows.append(("files of ours that drakit run loads", loaded_files()))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        sys.stdout.write(f"{name:<{width}}  {value}\n")


if __name__ == "__main__":
    main()
