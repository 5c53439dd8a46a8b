"""A pod is bound when its board is programmed, gets another board when that fails, and nothing is left when it does not come after all."""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from drakit import testing
from fpga_driver import driver, hardware

NAME = "fpga.example.com"


def parameters(bitstream: str) -> dict[str, object]:
    return {"apiVersion": f"{NAME}/v1", "kind": "FpgaConfig", "bitstream": bitstream}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two boards, three bitstreams."""
    for board in ("board-0", "board-1"):
        (tmp_path / "boards" / board).mkdir(parents=True)
        (tmp_path / "boards" / board / "model").write_text("example-9\n")
    (tmp_path / "bitstreams").mkdir()
    for name in ("passthrough", "fft", "sort"):
        (tmp_path / "bitstreams" / f"{name}.bit").touch()
    return tmp_path


def state(boards: hardware.Hardware) -> list[tuple[str | None, str | None]]:
    return [(boards.running(name), boards.loading(name)) for name in ("board-0", "board-1")]


def test_the_driver_keeps_its_contract(folder: pathlib.Path) -> None:
    boards = hardware.Hardware(folder)
    report = testing.check_driver(
        lambda: driver.FpgaDriver(boards),
        hardware=lambda: state(boards),
        parameters=[parameters("fft")],
        refused_parameters=[parameters("nothing"), parameters("../fft")],
        death=testing.Death.KILL,
        every=9,
    )
    assert report.crash_points > 5
    assert next(check for check in report.checks if "bound" in check.name).passed


def test_a_crash_at_any_line_of_bind_leaves_nothing_once_the_claim_is_deallocated(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    boards, place = hardware.Hardware(folder), tmp_path / "node"
    with testing.Node(lambda: driver.FpgaDriver(boards)) as node:
        claim = node.claims.fetch(node.claim("board-0", parameters=parameters("fft")))

    def bind() -> None:
        with testing.Node(lambda: driver.FpgaDriver(boards), folder=place) as node:
            node.claims.put(claim)
            node.bind(claim.ref)
            node.deallocate(claim.ref)

    points = 0
    for point in testing.crash_points(driver.FpgaDriver(boards), bind, death=testing.Death.KILL, every=11):
        points += 1
        with testing.Node(lambda: driver.FpgaDriver(boards), folder=place) as node:
            node.deallocate(claim.ref)
            assert node.is_clean, point
        assert state(boards) == [(None, None)] * 2, point
    assert points > 5


@pytest.fixture
def cluster(folder: pathlib.Path) -> Iterator[testing.Cluster]:
    boards = hardware.Hardware(folder)
    with testing.Cluster(lambda: driver.FpgaDriver(boards, ask_again=0.05)) as running:
        running.wait_published(2)
        running.apply(testing.device_class("fpga", driver=NAME))
        yield running


def ask(cluster: testing.Cluster, bitstream: str = "fft") -> None:
    claim = testing.claim("c", device_class="fpga", driver=NAME, parameters=parameters(bitstream))
    cluster.apply(claim, testing.pod("p", claims=["c"]))


def is_bound(cluster: testing.Cluster) -> bool:
    return bool(cluster.pod("p")["spec"].get("nodeName"))


def conditions(cluster: testing.Cluster) -> dict[str, Any]:
    told = cluster.claim("c")["status"].get("devices", [])
    return {one["type"]: one for entry in told for one in entry.get("conditions", ())}


def test_a_pod_waits_until_its_board_is_programmed(cluster: testing.Cluster, folder: pathlib.Path) -> None:
    boards, slow = hardware.Hardware(folder), folder / "boards" / "board-0" / "slow"
    slow.touch()
    ask(cluster)
    cluster.wait_events("WaitingForBindingConditions")
    cluster.local.wait_for(lambda: boards.loading("board-0") == "fft", timeout=30, what="the programming")
    assert not is_bound(cluster)
    assert conditions(cluster) == {}
    slow.unlink()
    assert cluster.wait_running("p").env == {"FPGA_BOARD_0": "fft"}
    assert conditions(cluster)[driver.PROGRAMMED]["status"] == "True"
    cluster.delete_pod("p")
    cluster.local.wait_for(lambda: state(boards) == [(None, None)] * 2, timeout=30, what="blank boards")


def test_a_board_that_cannot_be_programmed_is_exchanged_for_another(cluster: testing.Cluster, folder: pathlib.Path) -> None:
    (folder / "boards" / "board-0" / "broken").touch()
    ask(cluster)
    assert cluster.wait_running("p").env == {"FPGA_BOARD_1": "fft"}


def test_a_bitstream_that_nobody_has_is_reported_to_the_user(cluster: testing.Cluster) -> None:
    ask(cluster, "tetris")
    told = cluster.wait_events("FailedScheduling", containing=driver.FAILED)
    assert "board-0" in told[0]
    assert not is_bound(cluster)


def test_a_driver_that_restarts_in_the_middle_goes_on(cluster: testing.Cluster, folder: pathlib.Path) -> None:
    boards, slow = hardware.Hardware(folder), folder / "boards" / "board-0" / "slow"
    slow.touch()
    ask(cluster)
    cluster.local.wait_for(lambda: boards.loading("board-0"), timeout=30, what="the programming")
    cluster.restart_driver()
    assert boards.loading("board-0") == "fft"
    slow.unlink()
    assert cluster.wait_running("p").env == {"FPGA_BOARD_0": "fft"}


def test_a_claim_that_goes_away_while_its_board_is_programmed_leaves_a_blank_board(cluster: testing.Cluster, folder: pathlib.Path) -> None:
    boards = hardware.Hardware(folder)
    (folder / "boards" / "board-0" / "slow").touch()
    ask(cluster)
    cluster.local.wait_for(lambda: boards.loading("board-0"), timeout=30, what="the programming")
    cluster.delete_pod("p")
    cluster.local.wait_for(lambda: state(boards) == [(None, None)] * 2, timeout=30, what="blank boards")
