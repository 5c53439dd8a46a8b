"""The kit's two worlds: a node without wires, and a cluster with all of them."""

import pathlib
from typing import Any

import pytest

import drakit
from drakit import testing
from drakit.core import claim as claims
from drakit.testing import cluster as clusters
from fakes import author


@pytest.fixture
def hardware() -> author.Hardware:
    return author.Hardware()


def test_a_node_prepares_and_shows_what_the_container_gets(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node:
        claim = node.claim("chip-0-left", parameters={"apiVersion": "fake.example.com/v1", "kind": "Tuning", "speed": 7})
        container = node.prepare(claim)
        assert container.env == {"FAKE_CHIP_0_LEFT": "chip-0-left"}
        assert hardware.made == {"chip-0-left": 7}
        node.restart()
        assert node.prepare(claim) == container
        node.unprepare(claim)
        assert node.is_clean
        assert hardware.made == {}


def test_a_refusal_reads_as_the_pods_owner_would_read_it(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node:
        wrong = {"apiVersion": "fake.example.com/v1", "kind": "Tuning", "spede": 7}
        claim = node.claim("chip-0-left", parameters=wrong, source=claims.ConfigSource.CLASS)
        with pytest.raises(AssertionError, match=r"parameters\.spede"):
            node.prepare(claim)
        node.caller.waits = False
        assert "stopped waiting" in node.try_prepare(node.claim("chip-1")).error


def test_shares_get_ids_of_their_own(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node:
        for _ in range(2):
            node.prepare(node.claim("pipe", consumed={"bandwidth": "2G"}))
        shares = {grant.share_id for entry in node.entries for grant in entry.grants}
        assert len(shares) == len(hardware.made) == 2


def test_a_share_that_asks_for_nothing_takes_the_policys_default(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node:
        node.prepare(node.claim("pipe"))
        (grant,) = node.context.grants()
        assert {name: str(amount) for name, amount in grant.consumed_capacity.items()} == {"bandwidth": "100M"}


def test_a_capacity_that_no_device_has_is_named(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node, pytest.raises(ValueError, match="'bandwith'; known are bandwidth"):
        node.claim("pipe", consumed={"bandwith": "1G"})


def test_an_admin_has_a_device_beside_its_owner(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node:
        node.prepare(node.claim("chip-0"))
        assert "still held by" in node.try_prepare(node.claim("chip-0")).error
        node.prepare(node.claim("chip-0", admin_access=True))
        assert [grant.admin_access for grant in node.context.grants()] == [False, True]


@pytest.mark.parametrize(
    "verb, answer, message",
    [
        ("prepare", {"env": {}}, "prepare() returned dict; return drakit.Prepared"),
        ("prepare", None, "prepare() returned NoneType; return drakit.Prepared"),
        ("plan", None, "plan() returned NoneType; return a mapping"),
    ],
)
def test_an_answer_of_a_wrong_type_is_named_by_its_verb(hardware: author.Hardware, verb: str, answer: object, message: str) -> None:
    wrong = type("Wrong", (author.FakeDriver,), {verb: lambda *_: answer})
    with testing.Node(lambda: wrong(hardware)) as node:
        assert message in node.try_prepare(node.claim("chip-0")).error
        assert node.is_clean


def test_a_discovery_that_gives_no_inventory_is_named(hardware: author.Hardware) -> None:
    wrong = type("Wrong", (author.FakeDriver,), {"discover": lambda _: []})
    with pytest.raises(TypeError, match=r"discover\(\) returned list; return drakit\.Inventory\.of"):
        testing.Node(lambda: wrong(hardware))


def test_edits_of_a_wrong_type_are_named() -> None:
    wrong: Any = {"env": {}}
    with pytest.raises(TypeError, match=r"Prepared\.edits is dict; give drakit\.Edits"):
        drakit.Prepared(edits=wrong)


def test_a_reboot_prepares_anew(hardware: author.Hardware) -> None:
    with testing.Node(lambda: author.FakeDriver(hardware)) as node:
        claim = node.claim("chip-0")
        node.prepare(claim)
        hardware.made.clear()
        node.restart(boot_id="boot-2")
        node.prepare(claim)
        assert hardware.made == {"chip-0": 1}


def test_only_devices_of_complete_pools_count_as_published() -> None:
    def page(pool: str, generation: int, count: int, *devices: str) -> dict[str, Any]:
        names = [{"name": name} for name in devices]
        return {"spec": {"pool": {"name": pool, "generation": generation, "resourceSliceCount": count}, "devices": names}}

    probe, old = page("node-1/probe", 1, 2, "probe"), page("node-1", 1, 1, "a")
    assert clusters.published_devices([probe, old]) == 1
    assert clusters.published_devices([probe, old, page("node-1", 2, 2, "a")]) == 0
    assert clusters.published_devices([old, page("node-1", 2, 2, "a"), page("node-1", 2, 2, "b", "c")]) == 3


def test_a_cluster_runs_a_pod_on_the_drivers_device(hardware: author.Hardware) -> None:
    with testing.Cluster(lambda: author.FakeDriver(hardware)) as cluster:
        cluster.wait_published(7)
        cluster.apply(
            testing.device_class("half", driver="fake.example.com", expression='device.attributes["fake.example.com"].kind == "half"')
        )
        cluster.apply(testing.claim("mine", device_class="half"), testing.pod("p", claims=["mine"]))
        assert cluster.wait_running("p").env["FAKE_CHIP_0_LEFT"] == "chip-0-left"
        assert cluster.claim("mine")["status"]["allocation"]["devices"]["results"][0]["device"] == "chip-0-left"
        cluster.delete_pod("p")
        assert hardware.made == {}
        bad = testing.claim(
            "bad",
            device_class="half",
            driver="fake.example.com",
            parameters={"apiVersion": "fake.example.com/v1", "kind": "Tuning", "speed": 0},
        )
        cluster.apply(bad, testing.pod("q", claims=["bad"]))
        assert len(cluster.wait_events("FailedPrepareDynamicResources", containing="speed: must be at least 1")) == 1


_RULE = """
apiVersion: resource.k8s.io/{version}
kind: DeviceTaintRule
metadata: {{name: unhealthy}}
spec: {{deviceSelector: {{driver: fake.example.com}}, taint: {{key: example.com/hot, effect: NoExecute}}}}
---
"""


def test_a_cluster_takes_files_with_objects_of_every_served_version(hardware: author.Hardware, tmp_path: pathlib.Path) -> None:
    rule = tmp_path / "rule.yaml"
    with testing.Cluster(lambda: author.FakeDriver(hardware)) as cluster:
        cluster.wait_published(7)
        cluster.apply(testing.device_class("half", driver="fake.example.com"))
        cluster.apply(testing.claim("mine", device_class="half"), testing.pod("p", claims=["mine"]))
        cluster.wait_running("p")
        rule.write_text(_RULE.format(version="v9"))
        with pytest.raises(ValueError, match=r"the local cluster has no DeviceTaintRule of resource\.k8s\.io/v9"):
            cluster.apply_file(rule)
        rule.write_text(_RULE.format(version="v1beta2"))
        cluster.apply_file(rule)
        cluster.wait_gone("p")
    assert hardware.made == {}


class Watchful(author.FakeDriver):
    """Says something when it is started, and keeps what it was given."""

    def __init__(self, hardware: author.Hardware) -> None:
        super().__init__(hardware)
        self.running: drakit.DriverContext | None = None

    def start(self, context: drakit.DriverContext) -> None:
        self.running = context
        context.report_health(drakit.HealthReport(device="chip-0", health=drakit.Health.UNHEALTHY))
        context.taint("chip-0", drakit.Taint(key="example.com/hot"))

    def stop(self) -> None:
        self.running = None


def test_a_node_starts_and_stops_the_driver_and_keeps_what_it_says(hardware: author.Hardware) -> None:
    with testing.Node(lambda: Watchful(hardware)) as node:
        first = node.driver
        assert isinstance(first, Watchful)
        assert first.running is node.context
        assert [report.device for report in node.reports.health] == ["chip-0"]
        assert [taint.key for taint in node.offered.by_name()["chip-0"].taints] == ["example.com/hot"]
        claim = node.claim("chip-1")
        node.prepare(claim)
        assert [grant.claim for grant in node.context.grants()] == [claim]
        node.restart()
        assert node.driver is not first
        running = [one.running for one in (first, node.driver) if isinstance(one, Watchful)]
        assert running == [None, node.context]


def test_what_is_promised_of_a_device_is_seen_by_plan(hardware: author.Hardware) -> None:
    seen: list[list[object]] = []

    class Planning(author.FakeDriver):
        def plan(self, grant: drakit.Grant[author.Tuning]) -> drakit.Record:
            seen.append([intent["identity"] for intent in self.planned(grant.device)])
            return super().plan(grant)

    with testing.Node(lambda: Planning(hardware)) as node:
        node.prepare(node.claim("chip-1"))
        node.prepare(node.claim("pipe", "pipe", consumed={"bandwidth": "1G"}))
        last = node.claim("pipe", consumed={"bandwidth": "1G"})
        node.prepare(last)
        shares = [grant.share_id for entry in node.entries[1:] for grant in entry.grants]
        assert seen == [[], [], shares[:1], shares[:2]]


def test_a_taint_is_awaited_on_its_device_and_node_and_named_where_it_does_not_come(hardware: author.Hardware) -> None:
    with testing.Cluster(lambda: Watchful(hardware), node_names=("node-1", "node-2")) as cluster:
        assert cluster.wait_taint("chip-0", "example.com/hot")["effect"] == "NoSchedule"
        assert cluster.wait_taint("chip-0", "example.com/hot", node="node-2")["timeAdded"]
        for device, key, node in (
            ("chip-1", "example.com/hot", ""),
            ("chip-0", "example.com/cold", ""),
            ("chip-0", "example.com/hot", "node-3"),
        ):
            with pytest.raises(TimeoutError, match=rf"^timed out after 0 s waiting for the taint {key} of device {device}$"):
                cluster.wait_taint(device, key, node=node, seconds=0)


def test_a_claim_has_several_requests_and_constraints(hardware: author.Hardware) -> None:
    asked = {
        "one": testing.request("part", expression=f"device.attributes['{author.FakeDriver.name}'].kind == 'half'"),
        "two": testing.request("part"),
    }
    kind = f"{author.FakeDriver.name}/kind"
    made = testing.claim("both", requests=asked, constraints=[{"matchAttribute": kind}, {"matchAttribute": kind, "requests": ["two"]}])
    with testing.Cluster(lambda: author.FakeDriver(hardware)) as cluster:
        cluster.apply(testing.device_class("part", driver=author.FakeDriver.name), made, testing.pod("p", claims=["both"]))
        assert cluster.wait_allocated("both") == ["chip-0-left", "chip-0-right"]
    with pytest.raises(ValueError, match="claim both: give device_class or requests, and not both"):
        testing.claim("both")
