"""Whatever is typed or written into a file, a command ends with a status and a sentence: no traceback, no hang."""

import copy
import json
import pathlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import typer.main
import yaml

from drakit import cli
from drakit.cli import app
from fakes import command_line

ROOT = pathlib.Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "daemonset" / "samples").glob("*.yaml"))
SERVING = {"run", "cluster", "dashboard", "demo", "publish", "new"}
"""Commands that go on until they are stopped, or make a folder; their options are tried after --help, which no option can then take as its value."""
WORDS = [
    "",
    "-",
    "x",
    "../..",
    "-1",
    "9" * 30,
    "=",
    "a=b",
    "gpu.shares=",
    "\u202e",
    "{",
    "[1,",
    "true",
    "/dev/null",
    "/",
    "*",
    "\x7f",
    "é",
    "dgx-h100",
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x",
    "-5Gi",
    "1e400",
    "\x1b[31m",
    "a" * 300,
    [],
    {},
    [[]],
    {"": None},
    [None],
    {"a": {"b": []}},
]
ROUNDS = [pytest.param(0, 24, id="sample"), *(pytest.param(seed, 400, marks=pytest.mark.full, id=f"seed-{seed}") for seed in range(1, 6))]


def options_of(command: Any) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts if name.startswith("-")]


def ended(shell: command_line.CommandLine, *arguments: str) -> command_line.Result:
    ran = shell.run(*arguments)
    assert ran.status in (0, 1, 2), (arguments, ran)
    assert "Traceback" not in ran.err, (arguments, ran.err)
    assert ran.status == 0 or ran.err or ran.out, arguments
    return ran


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed, rounds", ROUNDS)
def test_no_command_line_makes_a_traceback(
    shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch, seed: int, rounds: int
) -> None:
    place = shell.folder / "some" / "where"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)  # A relative --folder is made there, and not in the repository.
    source = random.Random(seed)
    commands = typer.main.get_command(app.app).commands  # type: ignore[attr-defined] # a group
    assert len(commands) > 10
    for _ in range(rounds):
        name = source.choice(sorted(commands))
        known = options_of(commands[name])
        typed = [source.choice(known + WORDS) if source.random() < 0.7 else source.choice(WORDS) for _ in range(source.randint(0, 5))]
        ended(shell, name, *(("--help",) if name in SERVING else ()), *typed)


def mutated(source: random.Random, value: Any) -> Any:
    """The value with one part of it replaced, removed, doubled or renamed."""
    value = copy.deepcopy(value)
    at, holders = value, []
    while isinstance(at, dict | list) and at:
        key = source.choice(sorted(at) if isinstance(at, dict) else range(len(at)))
        holders.append((at, key))
        at = at[key]
    if not holders:
        return source.choice(VALUES)
    holder, key = source.choice(holders)
    kind = source.randrange(4)
    if kind == 0:
        holder[key] = source.choice(VALUES)
    elif kind == 1:
        del holder[key]
    elif kind == 2 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    elif isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[key] = [copy.deepcopy(holder[key])]
    return value


def as_text(source: random.Random, documents: list[Any]) -> bytes:
    text = (yaml.dump_all(documents, Dumper=yaml.CSafeDumper) if source.random() < 0.5 else json.dumps(source.choice(documents))).encode()
    if source.random() < 0.3:
        at = source.randrange(len(text) + 1)
        text = text[:at] + bytes([source.randrange(256)]) + text[at + source.randint(0, 3) :]
    return text


def samples() -> list[list[Any]]:
    return [list(yaml.load_all(path.read_text("utf-8"), Loader=yaml.CSafeLoader)) for path in SAMPLES]


def allocated() -> list[list[Any]]:
    results = [command_line.mig(), command_line.share("10G")]
    allocation = {"devices": {"results": results, "config": []}, "nodeSelector": {"nodeSelectorTerms": []}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", "uid": command_line.UID},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drakit.dev"}}]}},
        "status": {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "p", "uid": command_line.UID}]},
    }
    return [[claim]]


def machines() -> list[list[Any]]:
    folder = pathlib.Path(cli.__file__).parents[1] / "machines"
    return [[yaml.load((folder / f"{command_line.MACHINE}.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)]]


SETTINGS = {"node": {"name": "n"}, "gpu": {"shares": 2}, "nic": {"include": ["eth*"]}}
FILES: dict[str, tuple[Callable[[], list[list[Any]]], tuple[str, ...]]] = {
    "lint": (samples, ("lint", "-f")),
    "allocate": (samples, ("allocate", "--why", "-f")),
    "free": (samples, ("free", "-f")),
    "prepare": (allocated, ("prepare", "--mock", command_line.MACHINE, "-f")),
    "unprepare": (allocated, ("unprepare", "--mock", command_line.MACHINE, "-f")),
    "machine": (machines, ("slices", "--node", "n", "--mock")),
    "settings": (
        lambda: [[{"node": {"name": "n"}, "gpu": {"shares": 2}, "nic": {"include": ["eth*"]}}]],
        ("show", "--mock", command_line.MACHINE, "--config"),
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed, rounds", ROUNDS)
@pytest.mark.parametrize("kind", FILES)
def test_no_file_makes_a_traceback(shell: command_line.CommandLine, kind: str, seed: int, rounds: int) -> None:
    source = random.Random(f"{kind} {seed}")
    seeds, command = FILES[kind]
    given = seeds()
    refused = 0
    for number in range(rounds // 3):
        documents = source.choice(given)
        for _ in range(source.randint(1, 3)):
            documents = [mutated(source, document) for document in documents]
        file = shell.folder / f"{kind}-{number}.yaml"
        file.write_bytes(as_text(source, documents))
        refused += ended(shell, *command, str(file)).status != 0
    assert refused > 0, "mutations that nobody notices try nothing"
