"""What is told of NICs beside the verbs: changes, links lost and found, statuses of claims, counters."""

import dataclasses
import pathlib
from typing import cast

import pytest

from drakit import machines
from drakit.core import claim as claims
from drakit.core import claim_status, device, driver, names, quantity, records
from drakit.core import context as contexts
from drakit.testing import fake_context
from drakit_nic import config, link_monitor, mock_port, options, port, reporting
from drakit_nic import driver as nic_driver
from drakit_nic.addresses import address_leases
from drakit_nic.attach import attachment_records
from drakit_nic.discovery import offers
from fakes import log_lines, waits, watched_driver

NIC = "pci-0000-0c-00-0"
SHARE = names.ShareId("a671734a-e8e5-11e4-8fde-42010af09327")
CLAIM = claims.ClaimRef(uid=names.ClaimUid("0a6b1c1e-0000-4000-8000-000000000001"), namespace="default", name="net")


class Machine(mock_port.MockPort):
    """A mock machine whose links the test loses and finds."""

    def link(self, name: str, *, carrier: bool) -> None:
        whole = {interface.name: interface for interface in mock_port.from_machine(machines.load("dgx-a100-40gb"))}[name]
        changed = whole if carrier else dataclasses.replace(whole, carrier=False, state="down", speed=None)
        self._interfaces = tuple(changed if interface.name == name else interface for interface in self._interfaces)

    def pull(self, name: str) -> None:
        self._interfaces = tuple(interface for interface in self._interfaces if interface.name != name)

    def plug_in(self) -> None:
        self._interfaces = mock_port.from_machine(machines.load("dgx-a100-40gb"))

    def use(self, name: str, use: str) -> None:
        """Let another program use an interface."""
        self._interfaces = tuple(
            dataclasses.replace(interface, used=use) if interface.name == name else interface for interface in self._interfaces
        )


class MonitorSetup:
    def __init__(
        self,
        folder: pathlib.Path,
        carrier_loss: options.CarrierLoss = "report",
        *,
        take_over: tuple[str, ...] = (),
    ) -> None:
        self.machine = Machine(machines.Choice(name="dgx-a100-40gb", directory=folder))
        chosen = options.NicOptions(carrier_loss=carrier_loss, take_over=take_over)
        self.driver = nic_driver.NicDriver(self.machine, node="node-1", options=chosen)
        self.context = fake_context.FakeContext(folder)
        self.health = reporting.DeviceHealth(self.context)
        self.reporter = reporting.StatusReporter(self.machine, self.context)
        self.monitor = link_monitor.LinkMonitor(
            self.context,
            survey=self.driver.survey,
            carrier_loss=carrier_loss,
            health=self.health,
            reporter=self.reporter,
        )

    def prepared(self) -> fake_context.Grant:
        grant = driver.Grant(
            claim=CLAIM,
            request="uplink",
            pool="node-1",
            device=self.driver.discover().by_name()[NIC],
            config=config.NicConfig(),
            share_id=SHARE,
            consumed_capacity={"bandwidth": quantity.Quantity.of("1G")},
        )
        grant = dataclasses.replace(grant, intent=self.driver.plan(grant))
        grant = dataclasses.replace(grant, record=self.driver.prepare(grant).record)
        return self.context.put(cast("fake_context.Grant", grant))

    def attach(self, grant: fake_context.Grant, cookie: int = 7) -> None:
        noted = attachment_records.Attachment(
            cookie=cookie, nsid=1, sandbox=f"s{cookie}", pod=f"pod-{cookie}", name="net1", mac=f"02:aa:00:00:00:{cookie:02x}"
        )
        self.context.set_state(grant, noted.key, attachment_records.to_record(noted))
        sandbox_id = address_leases.SandboxId(cookie=cookie, pod=noted.pod)
        self.context.set_state(grant, sandbox_id.key, {"cookie": f"{cookie:x}", "pod": noted.pod, "addresses": (f"10.9.1.{cookie}/16",)})


def test_a_take_over_that_would_cut_the_host_off_is_logged_once(tmp_path: pathlib.Path, logged: log_lines.LogLines) -> None:
    setup = MonitorSetup(tmp_path, take_over=("eth0",))
    for _ in range(2):
        setup.monitor.check()
    (line,) = (record for record in logged.lines if record["level"] == "warning")
    assert (line["event"], line["interface"]) == ("interface not offered", "eth0")
    assert line["reason"].startswith("matches nic.take_over and has no reserve:")
    assert "eth0" not in [nic.interface.name for nic in setup.driver.survey().nics]


def test_what_is_withheld_as_on_every_node_is_not_logged(tmp_path: pathlib.Path, logged: log_lines.LogLines) -> None:
    setup = MonitorSetup(tmp_path)
    setup.monitor.check()
    assert [withheld.name for withheld in setup.driver.survey().withheld] == ["eth0"]
    assert [record["event"] for record in logged.lines if record["level"] == "warning"] == []


def test_an_interface_that_the_host_begins_to_use_is_logged_once(tmp_path: pathlib.Path, logged: log_lines.LogLines) -> None:
    setup = MonitorSetup(tmp_path)
    setup.monitor.check()
    setup.machine.use("eth1", "has tc filters of another program")
    for _ in range(2):
        setup.monitor.check()
    (line,) = (record for record in logged.lines if record["level"] == "warning")
    assert (line["event"], line["interface"]) == ("interface no longer offered", "eth1")
    assert line["reason"] == "has tc filters of another program"
    assert setup.context.rediscoveries == 1


def test_a_claimed_nic_that_was_pulled_is_unhealthy_once_until_it_is_back(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    setup.prepared()
    setup.monitor.check()
    setup.machine.pull("eth1")
    for _ in range(2):
        setup.monitor.check()
    setup.machine.plug_in()
    setup.monitor.check()
    lost, back = setup.context.reports
    assert (lost.device, lost.health) == (NIC, contexts.Health.UNHEALTHY)
    assert lost.message.startswith("the interface eth1 is no longer there; plug the NIC in")
    assert (back.device, back.health, back.message) == (NIC, contexts.Health.HEALTHY, "")


def test_a_change_is_published_and_no_change_is_not(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    setup.monitor.check()
    setup.monitor.check()
    assert setup.context.rediscoveries == 0
    setup.machine.link("eth1", carrier=False)
    setup.monitor.check()
    assert setup.context.rediscoveries == 1


@pytest.mark.parametrize(
    "setting, effect",
    [
        ("report", None),
        ("taint", device.TaintEffect.NO_SCHEDULE),
        ("evict", device.TaintEffect.NO_EXECUTE),
    ],
)
def test_a_link_that_is_lost_is_reported_until_it_is_back(
    tmp_path: pathlib.Path, setting: options.CarrierLoss, effect: device.TaintEffect | None
) -> None:
    setup = MonitorSetup(tmp_path, setting)
    setup.monitor.check()
    for _ in range(2):
        setup.machine.link("eth1", carrier=False)
        for _ in range(2):
            setup.monitor.check()
        report = setup.context.health_of(NIC)
        assert report == contexts.HealthReport(
            device=NIC, health=contexts.Health.UNHEALTHY, message="the interface eth1 has no link (no carrier)"
        )
        assert [taint.effect for taint in setup.context.taints().get(NIC, ())] == ([effect] if effect else [])
        assert NIC in setup.driver.discover().by_name(), "it keeps the speed it had, and its place in the slice"
        setup.machine.link("eth1", carrier=True)
        setup.monitor.check()
        assert setup.context.health_of(NIC) == contexts.HealthReport(device=NIC, health=contexts.Health.HEALTHY)
        assert setup.context.taints() == {}
    assert len(setup.context.reports) == 4


def test_a_device_is_healthy_when_nobody_complains_any_more(tmp_path: pathlib.Path) -> None:
    context = fake_context.FakeContext(tmp_path)
    health = reporting.DeviceHealth(context)
    health.set("eth1", "queueing", "a class is missing")
    health.set("eth1", "carrier", "no link")
    health.set("eth1", "queueing", "")
    health.set("eth1", "carrier", "")
    assert [(report.health.value, report.message) for report in context.reports] == [
        ("Unhealthy", "a class is missing"),
        ("Unhealthy", "no link; a class is missing"),
        ("Unhealthy", "no link"),
        ("Healthy", ""),
    ]


def test_a_claim_has_no_status_before_a_sandbox_uses_it_and_then_what_is_there(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    grant = setup.prepared()
    setup.monitor.check()
    assert setup.context.statuses == []
    setup.attach(grant)
    for _ in range(2):
        setup.monitor.check()
    ((claim, status),) = setup.context.statuses
    assert claim == CLAIM
    assert (status.device, status.pool, status.share_id) == (NIC, "node-1", SHARE)
    assert status.network == claim_status.NetworkStatus(interface="net1", addresses=("10.9.1.7/16",), hardware_address="02:aa:00:00:00:07")
    assert status.conditions == (
        claim_status.Condition(
            type="Ready",
            status=True,
            reason="Attached",
            message="1000000000 bit/s out, 1000000000 bit/s in, read back from the kernel; 1 in use",
        ),
    )
    rates = {"rate": 10**9, "ceil": 10**9}
    assert records.thaw(status.values) == {"interface": "eth1", "egress": rates, "ingress": rates}


def test_two_pods_of_a_claim_are_reported_together(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    grant = setup.prepared()
    for cookie in (7, 8):
        setup.attach(grant, cookie)
    setup.monitor.check()
    status = setup.context.status_of(CLAIM.uid, NIC, SHARE)
    assert status is not None
    assert status.network == claim_status.NetworkStatus(interface="net1", addresses=("10.9.1.7/16", "10.9.1.8/16"))


def test_the_status_of_a_claim_says_what_went_wrong(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    grant = setup.prepared()
    setup.reporter.failed(grant, "pod-1", "the pod has another interface named 'net1'")
    setup.monitor.check()
    failed = setup.context.status_of(CLAIM.uid, NIC, SHARE)
    assert failed is not None
    assert [(condition.status, condition.reason, condition.message) for condition in failed.conditions] == [
        (False, "AttachFailed", "the pod has another interface named 'net1'")
    ]
    setup.attach(grant)
    setup.reporter.attached(grant, "pod-1")
    setup.machine.remove(SHARE)
    setup.monitor.check()
    missing = setup.context.status_of(CLAIM.uid, NIC, SHARE)
    assert missing is not None
    assert [(condition.status, condition.reason) for condition in missing.conditions] == [(False, "ShareMissing")]


def test_a_pod_s_failure_is_reported_until_that_pod_is_attached(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    grant = setup.prepared()
    setup.attach(grant)
    for pod, reason in (("pod-1", "first reason"), ("pod-2", "second reason"), ("pod-1", "third reason")):
        setup.reporter.failed(grant, pod, reason)
    reported = []
    for pod in ("", "pod-1", "pod-3", "pod-2"):
        setup.reporter.attached(grant, pod)
        setup.monitor.check()
        status = setup.context.status_of(CLAIM.uid, NIC, SHARE)
        assert status is not None
        assert status.network is not None, "what other pods of the claim have is told all the same"
        reported += [condition.message if condition.reason == "AttachFailed" else condition.reason for condition in status.conditions]
    assert reported == ["third reason", "second reason", "second reason", "Attached"]


def test_a_failure_that_is_not_repeated_is_forgotten(tmp_path: pathlib.Path) -> None:
    setup, now = MonitorSetup(tmp_path), [0.0]
    grant = setup.prepared()
    setup.attach(grant)
    reporter = reporting.StatusReporter(setup.machine, setup.context, monotonic=lambda: now[0])
    reporter.failed(grant, "pod-1", "the pod has another interface named 'net1'")
    reasons = []
    for now[0] in (300.0, reporting.FAILURE_SECONDS, reporting.FAILURE_SECONDS + 1):
        reporter.report()
        status = setup.context.status_of(CLAIM.uid, NIC, SHARE)
        reasons += [condition.reason for condition in status.conditions] if status is not None else []
    assert reasons == ["AttachFailed", "AttachFailed", "Attached"], "the kubelet tries again within five minutes"


def test_every_share_is_counted_in_both_directions(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    setup.prepared()
    metrics = setup.driver.metrics()
    assert {(metric.name, metric.labels["direction"]) for metric in metrics if metric.total} == {
        (f"nic_share_{what}", way) for what in ("bytes", "packets", "drops") for way in ("egress", "ingress")
    }
    rates = [metric for metric in metrics if metric.name == "nic_share_rate_bits_per_second"]
    assert [(dict(metric.labels), metric.value) for metric in rates] == [
        ({"nic": "eth1", "share": SHARE, "direction": way}, 1e9) for way in ("egress", "ingress")
    ]


def test_a_speed_is_remembered_while_the_link_is_away_only() -> None:
    linked = port.Interface(ifindex=2, name="eth1", mtu=1500, speed=10**10)
    unlinked = dataclasses.replace(linked, speed=None, carrier=False)
    speeds = offers.LastSpeeds()
    assert speeds.fill([unlinked]) == (unlinked,)
    assert speeds.fill([linked]) == (linked,)
    assert speeds.fill([unlinked]) == (dataclasses.replace(unlinked, speed=10**10),)
    assert speeds.fill([dataclasses.replace(linked, speed=None)]) == (dataclasses.replace(linked, speed=None),), "a link of unknown speed"


def test_it_looks_by_itself_until_it_is_stopped(tmp_path: pathlib.Path) -> None:
    setup = MonitorSetup(tmp_path)
    grant = setup.prepared()
    setup.attach(grant)
    with watched_driver.watching(setup.driver, setup.context), setup.context.updated:
        assert setup.context.updated.wait_for(lambda: bool(setup.context.statuses), waits.SECONDS)


def test_what_never_began_can_be_stopped(tmp_path: pathlib.Path) -> None:
    MonitorSetup(tmp_path).driver.stop()
