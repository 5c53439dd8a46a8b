"""On a terminal prose is broken between words: no line is wider than the terminal unless it is one word."""

import os
import pathlib
import pty
import re
import termios
import threading

import pytest

from drakit.cli import drawing, terminal
from fakes import forked_cli

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)\d(?:;\d+)*m")
NAMES = 24
"""The room that a margin and the name of a column take beside a word in a table's paragraph."""
SLICES = ("slices", "--mock", "dgx-a100-40gb-2gpu", "--family", "gpu", "-o", "yaml")
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mig}
spec:
  selectors:
  - cel: {expression: 'device.driver == "gpu.drakit.dev" && device.attributes["gpu.drakit.dev"].profile == "7g.40gb"'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: three, namespace: default}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: mig, count: 3}}
"""
COMMANDS = {
    "show": "show --mock dgx-a100-40gb-2gpu",
    "all": "show --mock dgx-a100-40gb-2gpu --all",
    "doctor": "doctor --mock dgx-a100-40gb-2gpu",
    "lint": "lint slices.yaml claim.yaml",
    "free": "free slices.yaml",
    "top": "top slices.yaml claim.yaml",
    "why": "allocate slices.yaml claim.yaml --why",
    "plan": "plan --ask mig=3g.20gb:9 --buy dgx-a100-40gb-2gpu --why",
    "simulate": "simulate --mock dgx-a100-40gb-2gpu:2 --workload day.csv",
    "error": "show --mock no-such-machine",
}


def plain(written: str) -> str:
    """What a command wrote on a terminal, without colours, and without what a bar of progress was before it was overwritten."""
    text = CODES.sub("", written).replace("\r\n", "\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))


def raw(
    commands: forked_cli.Commands, words: list[str], folder: pathlib.Path, width: int, program: str = "drakit", **variables: str
) -> str:
    """What a command writes on a terminal of this width, with these variables in its environment."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, width))
    written: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                written.append(piece)
        except OSError:
            """The other end is closed."""

    reader = threading.Thread(target=read)
    reader.start()
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | {"HOME": str(folder), "TERM": "xterm"}
    environment = {key: value for key, value in environment.items() if key not in {"NO_COLOR", "FORCE_COLOR"}} | variables
    order = forked_cli.Order(words=words, folder=str(folder), environment=environment, namespace="", session=False, program=program)
    forked_cli.request(commands.server, order, [theirs, theirs, theirs]).wait(forked_cli.SECONDS)
    os.close(theirs)
    reader.join()
    os.close(ours)
    return b"".join(written).decode()


@pytest.fixture(scope="module")
def files(commands: forked_cli.Commands, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "slices.yaml").write_text(commands.run(*SLICES, folder=folder).stdout)
    (folder / "claim.yaml").write_text(CLAIM)
    (folder / "day.csv").write_text("name,arrival,duration,template,count\ntrain,0,2h,gpu=9,1\nnotebook,5m,,mig=1g.5gb,3\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_line_wider_than_the_terminal_is_one_word_and_no_color_has_no_colours(
    commands: forked_cli.Commands, files: pathlib.Path, command: str
) -> None:
    for width in (60, 200):
        written = raw(commands, command.split(), files, width, NO_COLOR="1")
        lines = plain(written).splitlines()
        assert sum(len(line.split()) for line in lines) > 10
        assert [line for line in lines if len(line) > width and max(map(len, line.split())) < width - NAMES] == []
        assert COLOURS.findall(written) == []


STAGE = """
from drakit.cli import output
from drakit_tools.demo import stage
shown = stage.Stage(output.console(), chapters=1)
shown.chapter("what the demo shows")
shown.check("it holds", 1, 1)
"""
COLOURED = {
    "help": ("drakit", ["--help"]),
    "help of a command": ("drakit", ["show", "--help"]),
    "the demo's stage": ("python", ["-c", STAGE]),
}


@pytest.mark.parametrize("program, words", COLOURED.values(), ids=COLOURED)
def test_a_terminal_shows_colours_that_no_color_turns_off(
    commands: forked_cli.Commands, files: pathlib.Path, program: str, words: list[str]
) -> None:
    coloured, written = (raw(commands, words, files, 80, program, **variables) for variables in ({}, {"NO_COLOR": "1"}))
    assert COLOURS.findall(coloured)
    assert plain(written).split() == plain(coloured).split()
    assert COLOURS.findall(written) == []


def test_force_color_adds_colours_in_a_pipe_and_changes_no_line(commands: forked_cli.Commands, files: pathlib.Path) -> None:
    words = COMMANDS["all"].split()
    plain, coloured = (commands.run(*words, folder=files, environment=os.environ | {"FORCE_COLOR": value}).stdout for value in ("", "1"))
    assert CODES.findall(plain) == []
    assert CODES.findall(coloured)
    assert CODES.sub("", coloured) == plain


def test_wrapped_text_has_the_words_of_the_whole_text() -> None:
    text = 'fix: write /a/path/that/is/wider/than/any/line/of/this/terminal or remove device.driver == "x" && true'
    lines = terminal.wrapped(text, 30, indent=2, hang=4)
    assert " ".join(lines).split() == text.split()
    assert [line[:6].strip() for line in lines[1:]] == [""] * (len(lines) - 1)
    assert [line for line in lines if len(line) > 30] == ["      /a/path/that/is/wider/than/any/line/of/this/terminal"]


def test_a_label_that_does_not_fit_into_one_of_its_places_is_written_below_all() -> None:
    wide = drawing.Span(start=2, size=3, label="training-of-a-model")
    spans = (drawing.Span(start=0, size=1, label="training-of-a-model"), drawing.Span(start=1, size=1, label="short"), wide)
    _, _, middle, _, *labels = drawing.draw_gpu(drawing.GpuMap(counter_set="gpu-0", width=6, spans=spans))
    assert [cell.strip() for cell in middle.split("|")[1:4]] == ["A", "short", "A"]
    assert labels == ["  A  training-of-a-model"]
