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
        assert "has 0 free cores" in node.ask(node.claim("numa-0", consumed={"cores": "1"})).error


class Life(stateful.RuleBasedStateMachine):
    """Claims come and go, the process dies, the node reboots: live grants never share a core."""

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
            if not self.node.ask(claim).error:
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
        self.live = [claim for claim in self.live if not self.node.ask(claim).error]

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


def only(environment: object) -> str:
    """The value of the one variable that a container got from the driver."""
    assert isinstance(environment, dict)
    [cores] = [value for key, value in environment.items() if key.startswith("CPUSET_")]
    return str(cores)
