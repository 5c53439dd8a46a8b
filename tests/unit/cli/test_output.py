"""Tables are whole in a pipe and readable on a terminal of 80 columns: no cell is ever cut."""

import contextlib
import io
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

import pytest
import rich.console

from drakit.cli import drawing, output, process, terminal
from drakit.core import quantity

ID = "gpu.drakit.dev/claim=4cf8db2d-06c0-4d70-9a51-e59b25b2c16c-gpu-0-mig-1g5gb-19-6"
TABLE = output.table(
    "", ["CLAIM", "REQUEST", "DEVICE", "SHARE", "CDI DEVICE"], [("default/training", "small", "gpu-0-mig-1g5gb-19-6", "", ID)]
)


class Terminal(io.StringIO):
    """What a terminal shows."""

    def isatty(self) -> bool:
        return True


def printed(table: output.Table, width: int, *, terminal: bool) -> list[str]:
    written = Terminal() if terminal else io.StringIO()
    console = rich.console.Console(file=written, width=width, color_system=None, emoji=False)
    output.put(console, table, indent=2)
    return written.getvalue().splitlines()


def test_a_pipe_gets_one_line_for_each_row_at_any_columns_setting() -> None:
    header, row = printed(TABLE, 80, terminal=False)
    assert header.split() == ["CLAIM", "REQUEST", "DEVICE", "CDI", "DEVICE"]
    assert row.split() == ["default/training", "small", "gpu-0-mig-1g5gb-19-6", ID]


def test_a_narrow_terminal_gets_a_paragraph_for_each_row_and_every_value_whole() -> None:
    assert printed(TABLE, 80, terminal=True) == [
        "  default/training",
        "    request small  device gpu-0-mig-1g5gb-19-6",
        f"    cdi device {ID}",
    ]


def test_a_wide_terminal_gets_the_table() -> None:
    assert printed(TABLE, 200, terminal=True) == printed(TABLE, 80, terminal=False)


def test_a_table_omits_empty_columns_and_keeps_its_header_without_rows() -> None:
    assert output.table("", ["A", "B", "C"], [("1", "", "3"), ("4", "", "")]).lines() == ["A  C", "1  3", "4"]
    assert output.table("", ["A", "B"], []).lines() == ["A  B"]


def test_text_that_looks_like_markup_or_an_emoji_is_printed_unchanged() -> None:
    assert printed(output.table("", ["A"], [("[bold]:smile:[/bold]",)]), 80, terminal=True) == ["  A", "  [bold]:smile:[/bold]"]


def test_pictures_fit_80_columns() -> None:
    share = ("default/a-claim share 1b4e28ba-2fa1-41d2-883f-0016d3cca427", quantity.Quantity.parse("30G"))
    bar = drawing.Bar(device="nic", capacity=quantity.Quantity.parse("100G"), shares=(share,))
    gpu = drawing.GpuMap(counter_set="gpu-0", width=8)
    assert max(len(f"    {line}") for line in (*drawing.draw_bar(bar), *drawing.draw_gpu(gpu))) <= 80


@pytest.mark.parametrize(
    "stream, options, seconds, wanted",
    [
        (Terminal, (), 0.0, "drakit: still searching\n"),
        (Terminal, (), 60.0, ""),
        (Terminal, ("--quiet",), 0.0, ""),
        (io.StringIO, (), 0.0, ""),
    ],
    ids=["a slow search", "a quick search", "with --quiet", "in a pipe"],
)
def test_a_slow_search_says_once_on_a_terminal_what_it_does(
    stream: Callable[[], io.StringIO], options: Sequence[str], seconds: float, wanted: str
) -> None:
    written = stream()
    token = terminal.QUIET.set("--quiet" in options)
    try:
        with contextlib.redirect_stderr(written), output.progress(lambda: "still searching", after=seconds):
            deadline = time.monotonic() + (5 if wanted else 0.05)
            while not written.getvalue().endswith("\n") and time.monotonic() < deadline:
                time.sleep(0.005)
    finally:
        terminal.QUIET.reset(token)
    assert written.getvalue() == wanted


@pytest.mark.parametrize(
    "text, wanted",
    [("A\nb.\n\nC\nd.", "A b.\n\nC d."), ("A.\n\n  drakit show\n\n  drakit lint", "A.\n\n  drakit show\n\n  drakit lint")],
)
def test_paragraphs_of_help_flow_and_examples_stay_lines(text: str, wanted: str) -> None:
    assert terminal.flowed(text) == wanted


@pytest.mark.parametrize("place, expected", [("a venv", "drakit"), ("", "'{program}'")], ids=["in PATH", "not in PATH"])
def test_printed_commands_start_in_the_shell_that_started_drakit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str, expected: str
) -> None:
    program = tmp_path / "a venv" / "drakit"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path / place))
    assert process.invocation() == expected.format(program=program)
