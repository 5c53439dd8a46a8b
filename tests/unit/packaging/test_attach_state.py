"""The hook client's parser agrees with Python's on the container runtime's state, under ASan and UBSan; `make fuzz` searches further."""

import json
import pathlib
import random
import shutil
import string
import struct
import subprocess
from typing import Any

import pytest

from fakes import waits

FUZZ = pathlib.Path(__file__).parents[2] / "fuzz"
PLAIN = frozenset("-._:" + string.digits + string.ascii_letters)
FIELD = {"io.kubernetes.cri.sandbox-id": "sandbox", "io.kubernetes.cri-o.SandboxID": "sandbox", "io.kubernetes.cri.sandbox-uid": "pod"}
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b'"',
    b"\\",
    b'"id":"x"',
    b'"pid":7',
    b'"annotations":{',
    b"null",
    b"-1e9",
    b"\x00",
    b"\xff",
    b'"id":',
]


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    target = tmp_path_factory.mktemp("parser") / "parser"
    flags = ["-std=gnu11", "-g", "-O1", "-DREPLAY", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wno-unused-function"]
    subprocess.run([compiler, *flags, "-o", str(target), str(FUZZ / "attach_state.c")], check=True, timeout=waits.SECONDS)
    return target


def parsed(parser: pathlib.Path, texts: list[bytes]) -> list[list[str]]:
    records = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    answer = subprocess.run([str(parser)], input=records, capture_output=True, check=False, timeout=waits.SECONDS)
    assert answer.returncode == 0, answer.stderr.decode("utf-8", "replace")[-2000:]
    return [line.split(" ") for line in answer.stdout.decode("ascii").splitlines()]


def mutated(source: random.Random, text: bytes) -> bytes:
    for _ in range(source.randint(1, 4)):
        at, end = sorted((source.randint(0, len(text)), source.randint(0, len(text))))
        kind = source.randrange(4)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + source.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + bytes([source.randrange(256)]) + text[at + 1 :]
        else:
            text = text[:end] + text[at:end] + text[end:]
    return text


def fields(value: Any) -> list[tuple[str, Any]]:
    """The members of a JSON object, in order and with repetitions; ValueError for anything else."""
    if not (isinstance(value, list) and all(isinstance(pair, tuple) for pair in value)):
        raise ValueError(value)
    return value


def words_and_pid(text: bytes) -> tuple[list[Any], Any]:
    state = fields(json.loads(text, object_pairs_hook=list))
    known = [(key, value) for key, value in state if key in ("id", "pid")]
    for annotations in [value for key, value in state if key == "annotations"]:
        known += [(FIELD[key], value) for key, value in fields(annotations) if key in FIELD]
    read = dict(known)
    if len(read) != len(known):
        raise ValueError(known)
    return [read.get(name) for name in ("id", "sandbox", "pod")], read.get("pid")


def expected(text: bytes) -> list[str] | None:
    """What a full JSON parser reads of the state; None where the text is no JSON or has what the client refuses on purpose."""
    try:
        words, pid = words_and_pid(text)
    except (ValueError, RecursionError):
        return None
    is_plain = all(word is None or (isinstance(word, str) and 0 < len(word) <= 253 and set(word) <= PLAIN) for word in words)
    is_pid = pid is None or (type(pid) is int and 0 < pid <= 999_999_999)
    if b"\\" in text or not is_plain or not is_pid:
        return None
    return ["1", str(pid or 0), *(word or "-" for word in words)]


@pytest.mark.parametrize("seed", range(4))
def test_the_parser_reads_what_a_json_parser_reads_and_never_leaves_the_text(parser: pathlib.Path, seed: int) -> None:
    source = random.Random(seed)
    seeds = [path.read_bytes() for path in sorted((FUZZ / "seeds").iterdir())]
    texts = seeds + [mutated(source, source.choice(seeds)) for _ in range(3000)]
    answers = parsed(parser, texts)
    compared = [(text, answer, want) for text, answer in zip(texts, answers, strict=True) if (want := expected(text)) is not None]
    assert len(compared) > 100
    assert [(text, answer) for text, answer, want in compared if answer != want] == []


def test_the_seeds_are_states_of_both_runtimes(parser: pathlib.Path) -> None:
    answers = parsed(parser, [path.read_bytes() for path in sorted((FUZZ / "seeds").iterdir())])
    assert answers == [
        ["1", "4711", "c0ffee", "5a", "293c5d1b-6f1e-4a54-9a3a-5f3a53a0a6f1"],
        ["1", "1", "a.b_c:1", "9f", "-"],
    ]


@pytest.mark.parametrize("text", [b"", b"{", b'{"id":"x","id":"y"}', b'{"id":"a b"}', b'{"pid":0}', b"[" * 40, b'{"a":' + b"[" * 40])
def test_what_is_ambiguous_or_cut_off_is_refused(parser: pathlib.Path, text: bytes) -> None:
    assert parsed(parser, [text])[0][0] == "0"
