"""The page of metrics with every metric that a driver of any family can have, each with a sample."""

import threading
from collections.abc import Sequence

from drakit.cli import probes
from drakit.cli.commands import webhook
from drakit.core import advanced, context, inventory, lifecycle
from drakit.node import metrics
from drakit_gpu import metrics as gpu_metrics
from drakit_gpu import port as gpu_port
from drakit_nic import port, reporting
from drakit_nic.attach import call_metrics

COUNTERS = port.Counters(rate=1, ceil=1, bytes=1, packets=1, drops=1, backlog=1)


class Shown:
    """A node at rest."""

    failed = threading.Event()

    def registration(self) -> str:
        return ""

    def not_ready(self) -> str:
        return ""

    def is_published(self) -> bool:
        return True

    def devices(self) -> inventory.Inventory:
        return inventory.Inventory()

    def claims(self) -> dict[lifecycle.State, int]:
        return {}

    def device_health(self) -> dict[context.Health, int]:
        return {}

    def unclaimed(self) -> Sequence[advanced.Leftover]:
        return [advanced.Leftover(kind="NIC share", name="s")]

    def oldest_verb_seconds(self) -> float:
        return 0.0

    def unrecovered(self) -> int:
        return 0

    def note(self) -> str:
        return ""

    metrics_prefix = "drakit"

    def driver_metrics(self) -> Sequence[advanced.Metric]:
        nics = reporting._readings(port.Traffic(share_id="s", egress=COUNTERS, ingress=COUNTERS), "eth0")
        gpus = gpu_metrics.of_gpu(
            gpu_metrics.GpuCounts(
                gpu="gpu-0",
                shares=1,
                daemons=1,
                owners={"ours": 1, "others": 1},
                used=1,
                slices=8,
                healthy=True,
                monitored=True,
                sensors=gpu_port.Sensors(utilization=0.5, memory_used=1 << 30, temperature=40, power=100.0, power_limit=400.0),
            )
        )
        shaping = reporting.shaping_metric(port.Shaping(classifier=port.Classifier.NONE))
        return (shaping, *nics, *gpus, *call_metrics.Calls().readings())


def every_family(name: str = "gpu.drakit.dev") -> str:
    """Return the page of a process with one driver of this name."""
    served = probes.Probes()
    made = served.metrics
    served.overload_of("serve.address")
    driver = made.of(name)
    metrics.add_gauges(Shown(), driver)
    for phase in ("fetch", "lock", "journal", "cdi", "device_prepare", "device_unprepare"):
        driver.observe_phase(phase, ok=phase != "lock", seconds=0.1)
    driver.observe_claim("prepare", ok=True, seconds=0.1)
    driver.observe_claim("unprepare", ok=False, seconds=0.1)
    driver.published(1)
    driver.failed_to_publish()
    driver.watch_restarted()
    webhook.measures(made, lambda: 0.0)
    return made.text().decode()
