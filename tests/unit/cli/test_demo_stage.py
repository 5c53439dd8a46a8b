"""The demo's stage: promises are compared, waiting ends, and a pipe gets plain lines."""

import io

import pytest
import rich.console

from drakit_tools.demo import stage


def staged(*, patience_ends: bool = False) -> tuple[stage.Stage, io.StringIO]:
    """A stage that writes to a pipe; one whose wait times out when asked so."""
    written = io.StringIO()

    def check_alive() -> None:
        if patience_ends:
            raise stage.DemoError("the driver exited unexpectedly with status 1")

    return stage.Stage(rich.console.Console(file=written, width=200), chapters=2, check_alive=check_alive), written


def test_a_promise_that_holds_is_reported_and_counted() -> None:
    result, written = staged()
    result.chapter("Sums")
    result.check("two and two are four", 2 + 2, 4)
    assert (result.checks, written.getvalue()) == (1, "\n[1/2] Sums\n  ok  two and two are four\n")


@pytest.mark.parametrize("found", [5, None, "4", [4]])
def test_a_broken_promise_ends_the_demo_and_reports_the_value_found(found: object) -> None:
    result, written = staged()
    with pytest.raises(stage.DemoError, match=r"^two and two are four: expected 4, found ") as raised:
        result.check("two and two are four", found, 4)
    assert str(raised.value).endswith(repr(found))
    assert (result.checks, written.getvalue()) == (0, "")


def test_a_condition_that_already_holds_costs_no_wait() -> None:
    result, written = staged(patience_ends=True)
    assert result.wait("the sun rises", lambda: "sun") == "sun"
    assert written.getvalue() == ""


def test_a_wait_returns_the_value_found() -> None:
    result, _ = staged()
    looks = iter(["", "", "sun"])
    assert result.wait("the sun rises", lambda: next(looks)) == "sun"


def test_a_wait_in_vain_ends_and_names_its_condition() -> None:
    result, _ = staged()
    with pytest.raises(stage.DemoError, match=r"^timed out after 0 s waiting until the sun rises$"):
        result.wait("the sun rises", lambda: None, patience=0.01)


def test_waiting_for_a_driver_that_died_ends_at_once() -> None:
    result, _ = staged(patience_ends=True)
    with pytest.raises(stage.DemoError, match="the driver exited unexpectedly"):
        result.wait("the sun rises", lambda: None)


def test_long_explanations_are_wrapped_without_blanks_at_the_end() -> None:
    result, written = staged()
    result.say("word " * 60)
    result.table(["A", "B"], [("1", "[bold]not markup[/bold]")])
    lines = written.getvalue().splitlines()
    assert all(len(line) <= 110 and line == line.rstrip() and line.startswith("  ") for line in lines)
    assert "[bold]not markup[/bold]" in lines[-1]
