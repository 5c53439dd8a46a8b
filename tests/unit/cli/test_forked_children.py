"""Children that a verb forks end by a signal, although the driver handles signals itself."""

import subprocess
import sys

import pytest

from fakes import waits

PROGRAM = """
import os, signal, sys, threading, time
from drakit.cli import process

process.at_signals(threading.Event())
child = os.fork()
if not child:
    while True:
        time.sleep(60)
os.kill(child, getattr(signal, sys.argv[1]))
for _ in range(500):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        print(signal.Signals(os.WTERMSIG(status)).name)
        break
    time.sleep(0.01)
else:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("still running")
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_a_forked_child_of_a_driver(name: str) -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, timeout=waits.SECONDS, check=True)
    assert result.stdout.strip() == name


POOLS = """
import multiprocessing, signal, sys, threading
from drakit.cli import process

def double(number):
    return 2 * number

def work():
    for _ in range(10):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(double, range(10)) == list(range(0, 20, 2))

process.at_signals(threading.Event())
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def test_pools_of_forked_processes_in_four_threads_of_a_driver_all_end() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", POOLS], capture_output=True, text=True, timeout=waits.SECONDS, check=True
    )
    assert result.stdout.strip() == "done"
