"""What other pods of the node cost the NIC driver: its processor time while nothing happens, and while pods that it does not serve come and go.

The driver has one share installed and works in this process, so the process' own time is the driver's; the pods are made by another. A foreign pod
is a namespace with a veth end whose other end is a port of a bridge, as common CNIs make them.
"""

import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

from bench import machine
from fakes import foreign_pods, nic_attach

PODS_A_MINUTE = 60
SECONDS = 60.0
SETTLING = 7.0
AIM = 0.005


def lines(seconds: float = SECONDS) -> Iterator[tuple[str, str]]:
    """The table's lines: title, and what was seen."""
    with machine.watched() as usage, nic_attach.world() as world, world.driver() as driver:
        driver.prepare(nic_attach.claim(1))
        time.sleep(SETTLING)
        still, _ = _spent(world, seconds, 0)
        busy, pods = _spent(world, seconds, PODS_A_MINUTE)
        yield "driver, nothing happens", f"{still:.2%} of a core"
        added = busy - still
        verdict = "ok" if added < AIM else f"NOT WITHIN {AIM:.1%}"
        yield f"driver, {pods} foreign pods in {seconds:.0f} s", f"{busy:.2%} of a core, {max(added, 0):.2%} by them  {verdict}"
    yield "machine during churn", usage.text


def _spent(world: nic_attach.World, seconds: float, rate: float) -> tuple[float, int]:
    """The part of a core that this process used, and how many foreign pods there were meanwhile."""
    with contextlib.ExitStack() as stack:
        churn = None
        if rate:
            words = [sys.executable, str(pathlib.Path(foreign_pods.__file__)), world.node.name, str(rate), str(seconds)]
            churn = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        start, used = time.monotonic(), time.process_time()
        time.sleep(seconds)
        part = (time.process_time() - used) / (time.monotonic() - start)
        return part, int(churn.communicate()[0]) if churn else 0


def main() -> None:
    """Print the lines."""
    for title, text in lines():
        sys.stdout.write(f"nic: {title:34s} {text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
