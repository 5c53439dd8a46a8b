"""The steps of docs/howto/nic-traffic.md, run as one script by root: what the page promises of rates, a dead driver and the end is so."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from fakes import demo, netns, nic_network
from unit.docs import markdown

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

PAGE = markdown.ROOT / "docs/howto/nic-traffic.md"
SPACES = ("dk-node", "dk-peer", "dk-training", "dk-storage")
SECONDS = 200
RATES = {"training": 300.0, "storage": 100.0}
LEAST = 0.3
"""The part of its rate that a share gets on a machine that is busy with other tests."""


def run_steps(folder: pathlib.Path) -> str:
    steps = "\n".join(block.text for block in markdown.blocks(PAGE) if block.mark == "step")
    environment = {**os.environ, "TMPDIR": str(folder), "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-euc", steps], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        out, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        out = f"it hangs after:\n{(error.stdout or b'').decode()}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for space in SPACES:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False, timeout=30)
    assert process.returncode == 0, out
    return out


@pytest.mark.long
def test_every_step_of_the_page_works_and_shares_keep_their_rates() -> None:
    missing = netns.why_not() or nic_network.why_not() or ("" if shutil.which("kubectl") else "kubectl is not installed")
    if missing:
        pytest.skip(missing)
    with demo.short_folder() as folder:
        out = run_steps(folder)
        assert not list(folder.iterdir())
    measured = {name: [float(rate) for rate in re.findall(rf"^{name}: ([\d.]+) Mbits/sec", out, re.MULTILINE)] for name in RATES}
    assert {name: len(rates) for name, rates in measured.items()} == dict.fromkeys(RATES, 3), out
    assert not [(name, rates) for name, rates in measured.items() if not all(LEAST * RATES[name] < rate < RATES[name] for rate in rates)]
    assert re.search(r"net0@\S+ +UP +10\.9\.0\.11/24", out), out
    assert out.count("rate 300Mbit ceil 300Mbit") == 2, "before and after the driver was killed"
    assert out.splitlines()[-1] == "left: "
