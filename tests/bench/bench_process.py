"""What a driver's process costs while nobody asks anything of it: its start, its memory and where that went, its processor time when idle.

Measured on ``drakit run --mock dgx-a100-40gb-2gpu``, beside a bare interpreter of the same run.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

from bench import processes, table
from drakit.kube import client

MACHINE, DRIVER = "dgx-a100-40gb-2gpu", "gpu.drakit.dev"
START_AIM, MEMORY_LIMIT, MEMORY_AIM, IDLE_AIM = 1500.0, 100.0, 80.0, 0.002
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
MODULES = ("drakit.cli.app", "drakit_gpu.driver", "drakit_nic.driver")
LARGEST = 14
WINDOWS = 3
SETTLE = 3.0


def _command(*more: str) -> list[str]:
    return [sys.executable, "-m", "drakit", *more]


def _drakit(folder: pathlib.Path, api: processes.Api) -> processes.DriverProcess:
    return processes.DriverProcess(_command(), DRIVER, folder, api, "--mock", MACHINE)


def start(folder: pathlib.Path, api: processes.Api, repeats: int) -> None:
    """Print how long a driver takes to listen, and to have its first slice accepted, from the start of its process."""
    bare = statistics.median(table.timed(lambda: subprocess.run([sys.executable, "-c", ""], check=True)) for _ in range(repeats))
    asking = client.connect_to(api.url, token=api.token, ca_file=api.ca)
    listening, published = [], []
    for number in range(repeats):
        began = time.perf_counter()
        with _drakit(folder / f"s{number}", api) as served:
            served.until(served.is_listening)
            listening.append((time.perf_counter() - began) * 1000)
            served.until(lambda: bool(_slices(asking)))
            published.append((time.perf_counter() - began) * 1000)
        for name in _slices(asking):
            asking.request("DELETE", f"{SLICES}/{name}")
    asking.close()
    table.line("floor of a start: an interpreter that ends at once", f"p50 {bare:7.0f} ms", 1.0)
    for title, taken in (("start to sockets listening", listening), ("start to first slice accepted", published)):
        median = statistics.median(taken)
        table.line(title, f"p50 {median:7.0f} ms  max {max(taken):7.0f} ms", median / bare, "< 1500 ms", met=median < START_AIM)


def _slices(asking: client.Client) -> list[str]:
    """Names of the slices of the node's own pool; a probe slice is in another."""
    found = asking.request("GET", SLICES)["items"]
    assert isinstance(found, list)
    return [one["metadata"]["name"] for one in found if one["spec"]["pool"]["name"] == processes.NODE]


def idle(folder: pathlib.Path, api: processes.Api, seconds: float) -> None:
    """Print the memory of a driver that has published, and its processor time over a while in which nothing happens."""
    asking = client.connect_to(api.url, token=api.token, ca_file=api.ca)
    with _drakit(folder / "idle", api) as served:
        served.until(lambda: served.is_started() and bool(_slices(asking)))
        served.register()
        time.sleep(SETTLE)
        bare = memory()["interpreter"]
        resident = served.resident()
        met = resident < MEMORY_AIM
        aim = f"< 100 MiB {'met' if resident < MEMORY_LIMIT else 'MISSED'}; 80 as the aim"
        table.line("resident memory, published and registered", f"{resident:.1f} MiB", resident / bare, aim, met=met)
        used = statistics.median(_busy(served, seconds) for _ in range(WINDOWS))
        table.line(f"processor time when idle, {WINDOWS} times {seconds:.0f} s", f"{used:.3%}", None, "< 0.2%", met=used < IDLE_AIM)
    asking.close()


def _busy(served: processes.DriverProcess, seconds: float) -> float:
    """The part of a processor that a process takes over some seconds."""
    before = served.scheduled_seconds()
    time.sleep(seconds)
    return (served.scheduled_seconds() - before) / seconds


def memory() -> dict[str, float]:
    """MiB that a bare interpreter takes, and that each package brings which a driver imports."""
    script = pathlib.Path(__file__).with_name("memory.py")
    result = subprocess.run([sys.executable, str(script), *MODULES], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(result.stdout)
    return found


def imports() -> None:
    """Print which imports take how much memory."""
    found = memory()
    bare = found.pop("interpreter")
    table.line("floor of memory: a bare interpreter", f"{bare:6.1f} MiB", 1.0)
    ordered = sorted(found.items(), key=lambda item: -item[1])
    for name, size in ordered[:LARGEST]:
        table.line(f"  import of {name}", f"{size:6.1f} MiB", size / bare)
    table.line("  import of all others", f"{sum(size for _, size in ordered[LARGEST:]):6.1f} MiB")


def report(folder: pathlib.Path, *, repeats: int, idle_seconds: float) -> None:
    """Print the lines."""
    with processes.api_server(folder, shares=1) as api:
        start(folder, api, repeats)
        idle(folder, api, idle_seconds)
    imports()
