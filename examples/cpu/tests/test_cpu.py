"""No core is ever given twice, whatever happens; and pods get as many as they asked for, rounded up to whole ones."""

import pathlib
import tempfile
import uuid

import pytest
from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

import drakit
from cpu_driver import driver, topology
from drakit import testing


def machine(root: pathlib.Path, *lists: str, online: str = "0-15", isolated: str = "") -> topology.Topology:
    """A made-up /sys/devices/system with a NUMA node for each list of cores."""
    (root / "cpu").mkdir(parents=True, exist_ok=True)
    (root / "cpu" / "online").write_text(f"{online}\n")
    (root / "cpu" / "isolated").write_text(f"{isolated}\n")
    for number, cores in enumerate(lists):
        (root / "node" / f"node{number}").mkdir(parents=True, exist_ok=True)
        (root / "node" / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    return topology.Topology(root)


def test_the_driver_keeps_its_contract(tmp_path: pathlib.Path) -> None:
    cores = machine(tmp_path, "0-3", "4-7")
    report = testing.check_driver(lambda: driver.CpuDriver(cores), consumed={"cores": "2"}, every=12)
    assert report.crash_points > 10


def test_cores_that_are_offline_isolated_or_reserved_are_not_offered(tmp_path: pathlib.Path) -> None:
    machine(tmp_path, "0-3,8", "4-7", "9", online="0-6,8", isolated="3")
    nodes = topology.Topology(tmp_path, reserved=[0]).nodes()
    assert [(node.number, topology.written(node.cores)) for node in nodes] == [(0, "1-2,8"), (1, "4-6")]


def test_a_kernel_without_numa_is_one_node(tmp_path: pathlib.Path) -> None:
    assert [node.cores for node in machine(tmp_path, online="0-1").nodes()] == [(0, 1)]


def test_this_machine_can_be_read() -> None:
    assert driver.CpuDriver(topology.Topology()).discover().devices


@pytest.mark.parametrize("text", ["0-", "a", "1,,x", "-1"])
def test_a_list_that_makes_no_sense_is_a_hardware_error(tmp_path: pathlib.Path, text: str) -> None:
    with pytest.raises(drakit.HardwareError):
        machine(tmp_path, online=text).nodes()


def test_two_shares_in_one_claim_get_cores_of_their_own(tmp_path: pathlib.Path) -> None:
    cores = machine(tmp_path, "0-3")
    with testing.Node(lambda: driver.CpuDriver(cores)) as node:
        given = node.prepare(node.claim("numa-0", "numa-0", consumed={"cores": "2"}))
        assert sorted(given.env.values()) == ["0-1", "2-3"]
        assert "has 0 free cores" in node.try_prepare(node.claim("numa-0", consumed={"cores": "1"})).error


def told(container: testing.ContainerView) -> list[str]:
    return sorted(container.env.values())


def test_when_the_journal_is_lost_claims_keep_their_cores_and_others_get_the_rest(tmp_path: pathlib.Path) -> None:
    cores = machine(tmp_path, "0-7")
    with testing.Node(lambda: driver.CpuDriver(cores)) as node:
        first, one, two = (node.claim("numa-0", consumed={"cores": "2"}) for _ in range(3))
        assert [told(node.prepare(claim)) for claim in (first, one, two)] == [["0-1"], ["2-3"], ["4-5"]]
        node.unprepare(first)
        node.lose_journal()
        assert {entry.claim: driver.cores_of(entry.grants[0].intent) for entry in node.entries} == {one: (2, 3), two: (4, 5)}
        assert [told(node.prepare(claim)) for claim in (one, two)] == [["2-3"], ["4-5"]]
        third = node.claim("numa-0", consumed={"cores": "4"})
        assert told(node.prepare(third)) == ["0-1,6-7"]
        node.unprepare(one)
        assert told(node.prepare(node.claim("numa-0", consumed={"cores": "2"}))) == ["2-3"]
        for entry in node.entries:
            node.unprepare(entry.claim)
        assert node.is_clean


def test_a_claim_that_ended_while_the_journal_was_lost_gives_its_cores_back(tmp_path: pathlib.Path) -> None:
    cores = machine(tmp_path, "0-1")
    with testing.Node(lambda: driver.CpuDriver(cores)) as node:
        gone = node.claim("numa-0", consumed={"cores": "2"})
        node.prepare(gone)
        node.claims.remove(gone)
        node.lose_journal()
        after = node.claim("numa-0", consumed={"cores": "1"})
        assert "has 0 free cores" in node.try_prepare(after).error, "its containers may still run"
        node.unprepare(gone)
        assert told(node.prepare(after)) == ["0"]


@pytest.mark.parametrize(
    "written,refusal",
    [
        ("8-9", "core 8, which numa-0 does not have"),
        ("0-99999999999", "does not have"),
        ("2,2", "core 2, twice"),
        ("2-4", "the claim has 2 of numa-0"),
        ("", "the claim has 2 of numa-0"),
        ("two", "is no range of cores"),
        ("1-2", "another claim has 1"),
        (None, "does not say which cores"),
    ],
)
def test_cores_of_an_impossible_claim_are_not_restored_and_it_can_be_unprepared(
    tmp_path: pathlib.Path, written: str | None, refusal: str
) -> None:
    cores = machine(tmp_path, "0-7", "8-9")
    with testing.Node(lambda: driver.CpuDriver(cores)) as node:
        one, two = sorted((node.claim("numa-0", consumed={"cores": "2"}) for _ in range(2)), key=lambda claim: claim.uid)
        assert [told(node.prepare(claim)) for claim in (one, two)] == [["0-1"], ["2-3"]]
        [file] = (node.folder / "cdi").glob(f"*{two.uid}*")
        file.write_text(file.read_text().replace('=2-3"', '"' if written is None else f'={written}"'))
        node.lose_journal()
        assert [entry.claim for entry in node.entries] == [one]
        assert refusal in node.try_prepare(two).error
        node.unprepare(two)
        assert not list((node.folder / "cdi").glob(f"*{two.uid}*"))
        assert [entry.claim for entry in node.entries] == [one]


class Life(stateful.RuleBasedStateMachine):
    """Claims come and go, the process dies, the node reboots, the journal is lost: live grants never share a core."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        cores = machine(pathlib.Path(self.folder.name), "0-3", "4-9")
        self.node = testing.Node(lambda: driver.CpuDriver(cores))
        self.live: list[drakit.ClaimRef] = []

    @stateful.rule(numa=st.integers(0, 1), amounts=st.lists(st.integers(1, 5), min_size=1, max_size=3))
    def prepare(self, numa: int, amounts: list[int]) -> None:
        for amount in amounts:
            shares = ["numa-0", "numa-1"] if numa and amount == 1 else [f"numa-{numa}"]
            claim = self.node.claim(*shares, consumed={"cores": str(min(amount, 4))})
            if not self.node.try_prepare(claim).error:
                self.live.append(claim)

    @stateful.precondition(lambda self: self.live)
    @stateful.rule(which=st.integers(0, 20))
    def unprepare(self, which: int) -> None:
        self.node.unprepare(self.live.pop(which % len(self.live)))

    @stateful.rule()
    def restart(self) -> None:
        self.node.restart()

    @stateful.rule()
    def reboot(self) -> None:
        self.node.restart(boot_id=uuid.uuid4().hex)
        self.live = [claim for claim in self.live if not self.node.try_prepare(claim).error]

    @stateful.rule()
    def lose_journal(self) -> None:
        before = self.given()
        self.node.lose_journal()
        assert self.given() == before

    def given(self) -> dict[drakit.ClaimRef, list[tuple[int, ...]]]:
        return {entry.claim: [driver.cores_of(grant.intent) for grant in entry.grants] for entry in self.node.entries}

    @stateful.invariant()
    def no_core_is_given_twice(self) -> None:
        given = [core for entry in self.node.entries for grant in entry.grants for core in driver.cores_of(grant.intent)]
        assert len(given) == len(set(given))
        for entry in self.node.entries:
            for grant in entry.grants:
                assert len(driver.cores_of(grant.intent)) == grant.consumed_capacity["cores"].value

    def teardown(self) -> None:
        self.node.close()
        self.folder.cleanup()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=10, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))


def test_pods_share_a_numa_node_and_what_they_ask_for_is_rounded_up(tmp_path: pathlib.Path) -> None:
    cores = machine(tmp_path, "0-3", "4-5")
    with testing.Cluster(lambda: driver.CpuDriver(cores)) as cluster:
        cluster.wait_published(2)
        cluster.apply(testing.device_class("cpu", driver="cpu.example.com"))
        for name, amount in (("a", "1500m"), ("b", "2"), ("c", "2")):
            cluster.apply(testing.claim(name, device_class="cpu", capacity={"cores": amount}), testing.pod(name, claims=[name]))
        seen = [core for name in "abc" for core in topology.parse(only(cluster.wait_running(name).env))]
        assert sorted(seen) == [0, 1, 2, 3, 4, 5]
        cluster.apply(testing.claim("d", device_class="cpu"), testing.pod("d", claims=["d"]))
        cluster.wait_events("FailedScheduling")
        cluster.delete_pod("a")
        assert only(cluster.wait_running("d").env)


def test_pods_keep_their_cores_when_the_journal_is_lost(tmp_path: pathlib.Path) -> None:
    cores, broken = machine(tmp_path, "0-3"), list[pathlib.Path]()

    def make() -> driver.CpuDriver:
        for journal in broken:
            journal.write_bytes(b"not a journal any more")
        return driver.CpuDriver(cores)

    with testing.Cluster(make) as cluster:

        def run(name: str, amount: str) -> str:
            cluster.apply(testing.claim(name, device_class="cpu", capacity={"cores": amount}), testing.pod(name, claims=[name]))
            return only(cluster.wait_running(name).env)

        cluster.wait_published(1)
        cluster.apply(testing.device_class("cpu", driver="cpu.example.com"))
        assert [run("a", "1"), run("b", "1")] == ["0", "1"]
        place = cluster.local.node(cluster.pod("a")["spec"]["nodeName"]).folder.plugins
        cluster.delete_pod("a")
        broken.append(place / "cpu.example.com" / "journal.db")
        cluster.restart_driver()
        assert list(broken[0].parent.glob("journal.db.unreadable-*"))
        assert run("c", "3") == "0,2-3"
        cluster.delete_pod("b")
        cluster.delete_pod("c")
        assert run("d", "4") == "0-3"


def only(environment: object) -> str:
    """The value of the one variable that a container got from the driver."""
    assert isinstance(environment, dict)
    [cores] = [value for key, value in environment.items() if key.startswith("CPUSET_")]
    return str(cores)
