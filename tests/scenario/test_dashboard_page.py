"""The scene with faults of docs/howto/dashboard.md: its commands, in its order, and what the dashboard's state then says."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from fakes import demo, driver_process, forked_cli, waits
from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "howto" / "dashboard.md"
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
FOLDER = "/tmp/scene"
POLL_SECONDS = 0.5
"""The dashboard reads its state at most that often."""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("kubectl", path=PATH) is None, reason="kubectl is not on PATH"),
]


class Scene:
    """The page's blocks, with a folder of the test's own in place of ``FOLDER``, and the processes that the page starts."""

    def __init__(self, folder: pathlib.Path, commands: forked_cli.Commands, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        programs = folder / "programs"
        programs.mkdir()
        commands.script(programs)
        self._environment = {"PATH": f"{programs}:{PATH}", "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}
        self.processes: list[driver_process.Process] = []
        for line in self.text("scene", "start").splitlines():
            words = line.removeprefix("drakit ").split()
            started = driver_process.running(driver_process.drakit(*words), folder / f"{len(self.processes)}.log", commands=commands)
            self.processes.append(stack.enter_context(started))
            if words[0] == "cluster":
                assert waits.eventually(lambda: "Ctrl-C to stop it" in self.processes[0].said())
        for name in ("scene.yaml", "xid.py"):
            (folder / name).write_text(self.text("file", name))

    def text(self, mark: str, name: str) -> str:
        """The block of the page with this remark."""
        (block,) = [block for block in markdown.blocks(PAGE) if (block.mark, block.value) == (mark, name)]
        return block.text.replace(FOLDER, str(self._folder))

    def follow(self, name: str, *, status: int = 0) -> None:
        """Run the commands of a block, which end with a status; those with output below them must print it."""
        (block,) = [block for block in markdown.blocks(PAGE) if (block.mark, block.value) == ("scene", name)]
        for command in markdown.commands(block):
            ran = self._run(command.line.replace(FOLDER, str(self._folder)))
            assert ran.returncode == status, ran.stderr
            if command.output:
                assert ran.stdout.splitlines() == list(command.output)

    def says(self, name: str) -> bool:
        """Whether the dashboard's state comes to say each line of a block, in the words of ``drakit top``."""
        lines = self.text("says", name).splitlines()
        end = time.monotonic() + waits.SECONDS
        while time.monotonic() < end:
            state = self._state()
            if all(line in self._run("drakit top --live --once").stdout for line in lines):
                return True
            while self._state() == state and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
        return False

    def prepared(self, claim: str) -> object:
        """Whether the first device of a claim is prepared, as the state says; None if it is unknown."""
        (row,) = [row for row in json.loads(self._state())["claims"] if row["claim"] == claim]
        return row["devices"][0].get("prepared")

    def _state(self) -> bytes:
        """The state that the page shows."""
        address = re.search(r"http://(\S+)/#(\S+)", self.processes[-1].said())
        assert address is not None
        with contextlib.closing(http.client.HTTPConnection(address[1], timeout=waits.SECONDS)) as connection:
            connection.request("GET", "/state", headers={"Authorization": f"Bearer {address[2]}"})
            return connection.getresponse().read()

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=waits.SECONDS,
            check=False,
        )


@pytest.fixture
def scene(commands: forked_cli.Commands) -> Iterator[Scene]:
    with demo.short_folder() as folder, contextlib.ExitStack() as stack:
        yield Scene(folder, commands, stack)


@pytest.mark.long
def test_the_scene_with_faults_is_on_the_dashboard_as_the_page_says(scene: Scene) -> None:
    cluster, _, driver, dashboard = scene.processes
    assert waits.eventually(lambda: "Dashboard: http://127.0.0.1:" in dashboard.said())
    scene.follow("objects")
    assert scene.says("objects")
    assert waits.eventually(lambda: scene.prepared("default/storage") is False)
    scene.follow("xid")
    assert scene.says("xid")
    scene.follow("cordon")
    assert scene.says("cordon")
    scene.follow("drain", status=1)
    driver.send(signal.SIGINT)
    assert scene.says("down")
    assert cluster.status is None
