"""hello.example.com keeps its contract, and a pod gets its board."""

import pathlib

import pytest

from drakit import testing
from hello_driver import driver, hardware

# The API server of the test refuses what this manifest does not grant, as RBAC does.
RBAC = pathlib.Path(__file__).parents[1] / "deploy" / "rbac.yaml"
TURBO = {"apiVersion": "hello.example.com/v1", "kind": "HelloConfig", "mode": "turbo"}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two boards."""
    for name in ("board-0", "board-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text("example-9\n")
        (tmp_path / name / "memory").write_text("16Gi\n")
    return tmp_path


def test_the_driver_keeps_its_contract(folder: pathlib.Path) -> None:
    boards = hardware.Hardware(folder)
    report = testing.check_driver(
        lambda: driver.HelloDriver(boards),
        hardware=lambda: [boards.mode("board-0"), boards.mode("board-1")],
        parameters=[TURBO],
        refused_parameters=[{**TURBO, "mode": "ludicrous"}],
        death=testing.Death.KILL,
        every=7,
    )
    assert report.crash_points > 0


def test_a_pod_gets_a_board_in_the_mode_it_asked_for(folder: pathlib.Path) -> None:
    boards = hardware.Hardware(folder)
    with testing.Cluster(lambda: driver.HelloDriver(boards), rbac=RBAC) as cluster:
        cluster.wait_published(2)
        cluster.apply(
            testing.device_class("hello.example.com", driver="hello.example.com"),
            testing.claim("board", device_class="hello.example.com", driver="hello.example.com", parameters=TURBO),
            testing.pod("p", claims=["board"]),
        )
        assert cluster.wait_running("p").env["HELLO_BOARD_0"] == "turbo"
        assert boards.mode("board-0") == "turbo"
        cluster.delete_pod("p")
        assert boards.mode("board-0") is None


def test_a_misspelt_parameter_is_named(folder: pathlib.Path) -> None:
    with testing.Node(lambda: driver.HelloDriver(hardware.Hardware(folder))) as node:
        claim = node.claim("board-0", parameters={**TURBO, "mood": "turbo"})
        assert "parameters.mood" in node.try_prepare(claim).error
