"""The benchmark of NICs says what it measured, and what of the machine was somebody else's; its cheap parts are run here, small."""

import re

import pytest

from bench import __main__ as bench
from bench import bench_nic, bench_nic_turnover, machine
from fakes import netns


def test_a_figure_beyond_the_tolerance_is_marked() -> None:
    assert bench_nic.against([95.6, 94.0], [95.6, 95.6], 0.02) == "95.6 94.0  worst -1.7% ok"
    assert bench_nic.against([95.6, 90.0], [95.6, 95.6], 0.02) == "95.6 90.0  worst -5.9% NOT WITHIN 2%"


def test_every_promised_row_is_measured() -> None:
    rows = {(row.rate, row.shares, row.ways) for row in bench_nic.ROWS}
    promised = {(rate, shares, way) for rate in (100, 500, 1000) for shares in (1, 2, 4) for way in ("out", "in")}
    promised |= {(rate, shares, "both") for rate in (100, 500) for shares in (1, 2, 4)} | {(5000, 1, "out"), (5000, 1, "in")}
    assert rows == promised
    assert {row.tolerance for row in bench_nic.ROWS if row.rate <= 1000} == {0.02}


def test_the_cpu_time_of_other_processes_is_reported() -> None:
    with machine.watched() as usage:
        pass
    assert re.fullmatch(r"\[stolen \d+\.\d%, idle \d+%, busy before \d+%\]", usage.text)


def test_a_benchmark_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["nobody"]) == 2
    assert "nic" in capsys.readouterr().err


@pytest.mark.root
def test_a_share_s_set_up_is_measured_part_by_part_and_leaves_nothing() -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    lines = dict(bench_nic_turnover.lines(4))
    assert list(lines)[:3] == ["one share: prepare", "one share: attach", "one share: attach, socket alone"]
    for title in ("one share: prepare", "one share: attach", "one share: attach, socket alone", "one share: unprepare"):
        assert float(re.findall(r"p50 +(\d+\.\d+) ms", lines[title])[0]) > 0
    assert "of which bare deletion takes the kernel" in lines["4 shares: unprepare"]
