"""The samples on the page of metrics are those of a driver on mock hardware, and every metric of that driver has one."""

import json
import pathlib
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping

import pytest

from drakit import testing
from drakit.inputs import documents
from drakit.node import metrics
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import resources
from fakes import driver_process, forked_cli, metrics_page, nic_attach, waits
from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "reference" / "metrics.md"
PORTS = re.compile(r"HTTP server started.*address=(\S+)")
_SAMPLE = re.compile(r"^(drakit_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
CHANGING = frozenset({"share", "address", "version", "python"})
"""Labels whose values differ between two runs."""

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]

OBJECTS = (
    testing.device_class("gpu", driver="gpu.drakit.dev"),
    testing.device_class("nic", driver="nic.drakit.dev"),
    testing.claim("partition", device_class="gpu", expression='device.attributes["gpu.drakit.dev"].profile == "2g.10gb"'),
    testing.claim("share", device_class="gpu", expression='device.attributes["gpu.drakit.dev"].type == "shared-gpu"'),
    testing.claim("net", device_class="nic", capacity={"bandwidth": "1G"}),
    testing.pod("p", claims=["partition", "share", "net"]),
)


def samples(text: str) -> Samples:
    """The samples of drakit's metrics, by name and labels; values of labels that change are left out."""
    found = {}
    for name, labels, value in _SAMPLE.findall(text):
        pairs = [(label, "" if label in CHANGING else content) for label, content in _LABEL.findall(labels)]
        found[name, frozenset(pairs)] = float(value)
    return found


def on_page() -> Samples:
    return samples("".join(block.text for block in markdown.blocks(PAGE) if block.language == "text"))


def families(text: str) -> dict[str, frozenset[str]]:
    """The labels of each metric but ``le``."""
    kinds = dict(re.findall(r"^# TYPE (drakit_\w+) (\w+)$", text, re.MULTILINE))
    found: dict[str, frozenset[str]] = {}
    for name, pairs in samples(text):
        family = next(one for one in (name, re.sub("_(bucket|count|sum)$", "", name)) if one in kinds)
        found[family] = frozenset(label for label, _ in pairs) - {"le"}
    return found


def text_of(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=waits.SECONDS) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def scrape(commands: forked_cli.Commands) -> Iterator[str]:
    """The metrics of a driver that has prepared a partition of a GPU, a share of another, and a share of a NIC."""
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        root = cluster.node("node-1").folder.root
        words = ["--mock", "dgx-a100-40gb-2gpu", "--node", "node-1", "--folder", str(root)]
        words += ["--kubeconfig", str(cluster.driver_kubeconfig("node-1")), "--set", "serve.address=127.0.0.1:0", "--set", "gpu.shares=4"]
        with driver_process.running(driver_process.drakit("run", *words), root / "log", commands=commands) as driver:
            for item in OBJECTS:
                kind = next(one for one in resources.ALL if (one.api_version, one.kind) == (item["apiVersion"], item["kind"]))
                cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")
            deadline, text = time.monotonic() + waits.SECONDS, ""
            while 'drakit_claims{driver="gpu.drakit.dev",state="prepared"} 2.0' not in text or "drakit_nic_share_bytes_total{" not in text:
                assert time.monotonic() < deadline, driver.said() + text
                time.sleep(0.1)
                address = PORTS.search(driver.said())
                text = text_of(address[1]) if address else ""
            yield text


def test_every_metric_of_a_scrape_has_a_sample_on_the_page_with_its_labels(scrape: str) -> None:
    shown = {name: frozenset(label for label, _ in pairs) - {"le"} for name, pairs in on_page()}
    absent = {
        family: labels for family, labels in families(scrape).items() if labels not in [shown.get(family + end) for end in ("", "_count")]
    }
    assert absent == {}


def test_every_sample_of_the_page_is_one_of_a_driver_or_of_the_webhook(scrape: str) -> None:
    made = {*samples(scrape), *samples(metrics_page.every_family("nic.drakit.dev")), *samples(metrics_page.every_family())}
    assert [key for key in on_page() if key not in made] == []


def test_the_values_of_the_samples_are_those_of_the_scrape(scrape: str) -> None:
    made = samples(scrape)
    # Times, metrics of other programs, and sensors, which mock GPUs lack.
    elsewhere = re.compile(r"_seconds_(bucket|sum|count)$|_webhook_|_attach_|_gpu_(utilization|memory_used|temperature|power)_")
    assert {key: value for key, value in on_page().items() if not elsewhere.search(key[0])} == {
        key: made[key] for key in on_page() if not elsewhere.search(key[0])
    }


def test_every_metric_of_every_driver_has_a_sample_on_the_page() -> None:
    shown = {name for name, _ in on_page()}
    assert [name for name in families(metrics_page.every_family()) if not {name, f"{name}_count"} & shown] == []


@pytest.mark.root
def test_the_samples_of_attachments_are_those_of_a_driver_on_the_kernel() -> None:
    with nic_attach.world() as world, nic_attach.pod() as pod, world.driver() as driver:
        ref, released = driver.prepare(nic_attach.claim(1)), driver.prepare(nic_attach.claim(2))
        (hook,) = world.hooks(released)
        driver.unprepare(released)
        assert world.call(ref, pod).code == 0
        assert nic_attach.run(hook["path"], hook["args"], json.dumps(pod.state()).encode()).code == 1
        found = metrics.Metrics()
        found.of("nic.drakit.dev").measure(nic_attach.author_of(driver).metrics)
        made = samples(found.text().decode())
    shown = {key: value for key, value in on_page().items() if key[0].startswith("drakit_nic_attach")}
    assert shown == {key: made[key] for key in shown}


def test_queries_and_alerts_name_metrics_and_labels_that_exist() -> None:
    known = {name: {label for label, _ in pairs} for name, pairs in on_page()}
    used = set()
    for name, matchers in re.findall(r"\b(drakit_\w+)(?:\{([^}]*)\})?", "\n".join(queries())):
        family = name if name in known else re.sub("_(bucket|sum)$", "_count", name)
        assert set(re.findall(r"(\w+)!?=", matchers)) <= known[family], (name, matchers)
        used.add(family)
    assert {name for name in known if not name.endswith(("_bucket", "_sum"))} - used == set(), "every metric has a use"


def queries() -> Iterator[str]:
    """The queries and the expressions of alerts on the page."""
    yield from re.findall(r"^\| .+\? \| `(.+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    for block in markdown.blocks(PAGE):
        groups = documents.load(block.text)["groups"] if block.language == "yaml" else []
        yield from (rule["expr"] for group in groups for rule in group["rules"])
