"""The process that forks commands for tests (``fakes.forked_cli``) ends with the process that started it."""

import os
import pathlib
import select

from fakes import forked_cli, waits

TEST_RUN = """
import os, pathlib, signal, sys
from fakes import forked_cli

with open(os.devnull) as nothing:
    commands = forked_cli.ForkServer(pathlib.Path(sys.argv[1]), modules=[])
    started = commands.code("import time; time.sleep(600)", out=nothing.fileno())
print(commands._serving.pid, started.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def has_ended(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], waits.SECONDS)[0])
    finally:
        os.close(process)


def test_a_killed_test_run_leaves_no_process_that_forks_and_no_command(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    said = commands.run("-c", TEST_RUN, str(tmp_path), program="python")
    assert said.returncode == -9, said.stderr
    server, command = map(int, said.stdout.split())
    assert has_ended(server)
    assert has_ended(command)
