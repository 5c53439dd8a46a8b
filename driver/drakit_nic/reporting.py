"""Reports about NICs and their shares: device health with its reasons, statuses in claims, and metrics.

A status has the rates read back from the kernel, and the interfaces recorded when sandboxes were attached. A claim that no sandbox uses yet has no
status, unless its share is missing in the kernel. An unchanged status is not written again.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import drakit
from drakit_nic import config, port
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases
from drakit_nic.attach import attachment_records, service
from drakit_nic.discovery import attributes, device_names
from drakit_nic.passthrough import sriov, whole_interface

READY = "Ready"
FAILURE_SECONDS = 660.0
"""Seconds after which a failed attach no longer counts. The kubelet retries a container within five minutes, unless its pod is gone."""

_ADDRESSES_MAX = 16
_MESSAGE_MAX = 1024

Grant = drakit.Grant[object]


class DeviceHealth:
    """The health of devices by the reports of several sources. A device is healthy when no source reports a problem. Safe between threads."""

    def __init__(self, context: drakit.DriverContext) -> None:
        self._context = context
        self._guard = threading.Lock()
        self._problems: dict[str, dict[str, str]] = {}

    def set(self, device: str, source: str, message: str) -> None:
        """Set the problem that a source reports, empty for none."""
        with self._guard:
            problems = self._problems.setdefault(device, {})
            if problems.get(source, "") == message:
                return
            problems[source] = message
            message = "; ".join(text for _, text in sorted(problems.items()) if text)
            health = drakit.Health.UNHEALTHY if message else drakit.Health.HEALTHY
            self._context.report_health(drakit.HealthReport(device=device, health=health, message=message))


@dataclasses.dataclass(frozen=True)
class _Failure:
    """The reason that a pod has no interface, and the time at which it expires without a new attempt."""

    reason: str
    until: float


class StatusReporter:
    """Writes the changed statuses of prepared grants. A failed attach counts until the pod is attached or the failure expires.

    Without ``attaches``, containers get no interface, as on a mock machine. A share is then ready once it is prepared.
    """

    def __init__(
        self,
        machine: port.Port,
        context: drakit.DriverContext,
        *,
        attaches: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine, self._context, self._attaches = machine, context, attaches
        self._written: dict[tuple[str, str, str], drakit.DeviceStatus] = {}
        self._failures: dict[tuple[str, str, str], dict[str, _Failure]] = {}
        self._monotonic = monotonic
        self._guard = threading.Lock()

    def report(self) -> None:
        """Write the changed statuses. Raises HardwareError."""
        traffic = {entry.share_id: entry for entry in self._machine.traffic()}
        present = set()
        for grant in self._context.grants():
            if not grant.admin_access:
                present.add(_key_of(grant))
                status = self._with_failure(grant, self._status(grant, traffic))
                if status is not None:
                    self._write(grant.claim, status)
        with self._guard:
            self._written = {key: status for key, status in self._written.items() if key in present}
            self._failures = {key: failures for key, failures in self._failures.items() if key in present}

    def failed(self, grant: Grant, pod: str, reason: str) -> None:
        """Record that a sandbox did not get its interface, for the next report."""
        with self._guard:
            failures = self._failures.setdefault(_key_of(grant), {})
            failures.pop(pod, None)
            failures[pod] = _Failure(reason, self._monotonic() + FAILURE_SECONDS)

    def attached(self, grant: Grant, pod: str) -> None:
        """Record that a sandbox of a pod got its interface."""
        with self._guard:
            self._failures.get(_key_of(grant), {}).pop(pod, None)

    def _with_failure(self, grant: Grant, status: drakit.DeviceStatus | None) -> drakit.DeviceStatus | None:
        """Return the status, with the last unexpired failure as its condition."""
        with self._guard:
            now = self._monotonic()
            failures = self._failures.get(_key_of(grant), {})
            for pod in [pod for pod, failure in failures.items() if failure.until < now]:
                del failures[pod]
            reasons = [failure.reason for failure in failures.values()]
        if not reasons:
            return status
        conditions = (_condition("AttachFailed", reasons[-1], holds=False),)
        return _status(grant, conditions) if status is None else dataclasses.replace(status, conditions=conditions)

    def _write(self, claim: drakit.ClaimRef, status: drakit.DeviceStatus) -> None:
        key = _key(claim, status.device, status.share_id)
        with self._guard:
            if self._written.get(key) == status:
                return
            self._written[key] = status
        self._context.set_status(claim, status)

    def _status(self, grant: Grant, traffic: Mapping[str, port.Traffic]) -> drakit.DeviceStatus | None:
        if device_names.is_whole(grant.device):
            return self._of_whole(grant)
        if device_names.is_vfio(grant.device):
            return _status(grant, (_condition("Prepared", "the NIC is bound to vfio-pci for a virtual machine"),))
        attached = sorted(attachment_records.attachments_of(self._context.state(grant)), key=lambda attachment: attachment.cookie)
        share_traffic = traffic.get(shares.id_on_node(grant.claim, grant.device, grant.share_id))
        if share_traffic is None:
            return _status(grant, (_condition("ShareMissing", "the NIC does not have the share; the driver restores it", holds=False),))
        if not self._attaches:
            return self._of_prepared(grant, share_traffic)
        if not attached:
            return None
        leases = address_leases.leases_of(self._context, grant)
        pod_addresses = tuple(dict.fromkeys(text for lease in leases for text in lease.addresses))[:_ADDRESSES_MAX]
        share = shares.from_record(grant.record)
        is_ipvlan = share is not None and share.child is port.ChildKind.IPVLAN
        mac = str(grant.device.attributes.get("mac", "")) if is_ipvlan else attached[0].mac if len(attached) == 1 else ""
        network = drakit.NetworkStatus(interface=attached[0].name, addresses=pod_addresses, hardware_address=mac)
        message = f"{share_traffic.egress.rate} bit/s out, {share_traffic.ingress.rate} bit/s in, read back from the kernel; {len(attached)} in use"
        return _status(grant, (_condition("Attached", message),), values=_rates(share_traffic), network=network)

    def _of_prepared(self, grant: Grant, traffic: port.Traffic) -> drakit.DeviceStatus:
        """Return the status of a share without attachment, with the interface that its container's variables name."""
        chosen = config.of(grant)
        prepared = shares.from_record(grant.record)
        network = drakit.NetworkStatus(
            interface=attachment_records.interface_name(chosen, traffic.share_id),
            addresses=chosen.addresses[:_ADDRESSES_MAX],
            hardware_address=chosen.mac or (prepared.mac if prepared is not None else ""),
        )
        message = f"{traffic.egress.rate} bit/s out, {traffic.ingress.rate} bit/s in; no interface is made in pods here"
        return _status(grant, (_condition("Prepared", message),), values=_rates(traffic), network=network)

    def _of_whole(self, grant: Grant) -> drakit.DeviceStatus | None:
        """Return the status of a whole interface; none while a container has yet to get it by the hook."""
        planned, placement = whole_interface.intent_of(grant.intent), whole_interface.placement_of(self._context, grant)
        is_attached = placement is not None and placement.is_attached
        if planned is None or not (is_attached or service.RECORDED not in grant.record):
            return None
        chosen = config.of(grant)
        leases = address_leases.leases_of(self._context, grant)
        pod_addresses = leases[0].addresses if leases else chosen.addresses
        network = drakit.NetworkStatus(
            interface=chosen.interface_name or planned.host_state.name,
            addresses=pod_addresses,
            hardware_address=chosen.mac or planned.host_state.mac,
        )
        function = None if planned.function is None else self._machine.function(planned.function)
        values: drakit.Record = {} if function is None else {"function": sriov.to_record(function)}
        altered = () if function is None or planned.function_is is None else sriov.differing(function, planned.function_is)
        if altered:
            message = f"the physical function no longer enforces the claim's {' and '.join(altered)}"
            return _status(grant, (_condition("FunctionAltered", message, holds=False),), values=values, network=network)
        ready = ("Attached", "the pod has the whole interface") if is_attached else ("Prepared", "the whole interface is the claim's")
        return _status(grant, (_condition(*ready),), values=values, network=network)


class ShareCounters:
    """The counters of every share, for the metrics; labels name the NIC, the share and the direction. Safe between threads.

    The kernel counts drops where frames wait, in each sandbox's own class, and loses them with the sandbox. They are stored here, so that the counter
    only grows.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._drops: dict[tuple[str, str], tuple[int, int]] = {}

    def readings(self, machine: port.Port) -> Sequence[drakit.Metric]:
        """Return the metrics of all shares. Raises HardwareError."""
        with self._guard:
            nics = {share.id: share.interface for share in machine.shares()}
            traffic = machine.traffic()
            metrics = tuple(
                reading for entry in traffic for reading in _readings(self._with_all_drops(entry), nics.get(entry.share_id, ""))
            )
            present = {entry.share_id for entry in traffic}
            self._drops = {key: drops for key, drops in self._drops.items() if key[0] in present}
        return metrics

    def _with_all_drops(self, traffic: port.Traffic) -> port.Traffic:
        egress, ingress = (
            dataclasses.replace(counters, drops=self._all_drops((traffic.share_id, direction), counters.drops))
            for direction, counters in (("egress", traffic.egress), ("ingress", traffic.ingress))
        )
        return dataclasses.replace(traffic, egress=egress, ingress=ingress)

    def _all_drops(self, key: tuple[str, str], now: int) -> int:
        """Return the drops of a share, including those of former sandboxes."""
        of_former, before = self._drops.get(key, (0, 0))
        of_former += max(before - now, 0)
        self._drops[key] = (of_former, now)
        return of_former + now


def shaping_metric(shaping: port.Shaping) -> drakit.Metric:
    """Return the metric of how the senders of frames are recognized, as the attribute ``shaping`` has it."""
    documentation = "How the driver recognizes the sender of a frame: netns, or mac where a pod can forge it."
    return drakit.Metric(name="nic_shaping", documentation=documentation, value=1.0, labels={"by": shaping.classifier.value})


def _readings(traffic: port.Traffic, nic: str) -> Iterator[drakit.Metric]:
    for direction, counters in (("egress", traffic.egress), ("ingress", traffic.ingress)):
        labels = {"nic": nic, "share": traffic.share_id, "direction": direction}
        for name, documentation, value, total in (
            ("nic_share_bytes", "Bytes of a share of a NIC.", counters.bytes, True),
            ("nic_share_packets", "Packets of a share of a NIC.", counters.packets, True),
            ("nic_share_drops", "Dropped packets of a share.", counters.drops, True),
            ("nic_share_backlog_bytes", "Bytes in the queue of a share.", counters.backlog, False),
            ("nic_share_rate_bits_per_second", "Bandwidth of a share, as the kernel enforces it.", counters.rate, False),
        ):
            yield drakit.Metric(name=name, documentation=documentation, value=float(value), labels=labels, total=total)


def _rates(traffic: port.Traffic) -> drakit.Record:
    """Return the rates read back from the kernel, in bits per second."""
    directions = (("egress", traffic.egress), ("ingress", traffic.ingress))
    return {direction: {"rate": counters.rate, "ceil": counters.ceil} for direction, counters in directions}


def _status(
    grant: Grant,
    conditions: tuple[drakit.Condition, ...],
    *,
    values: drakit.Record = drakit.EMPTY_RECORD,
    network: drakit.NetworkStatus | None = None,
) -> drakit.DeviceStatus:
    return drakit.DeviceStatus(
        device=grant.device.name,
        pool=grant.pool,
        share_id=grant.share_id,
        conditions=conditions,
        values={"interface": str(grant.device.attributes.get(attributes.IF_NAME, "")), **values},
        network=network,
    )


def _condition(reason: str, message: str, *, holds: bool = True) -> drakit.Condition:
    return drakit.Condition(type=READY, status=holds, reason=reason, message=drakit.cut_text(message, _MESSAGE_MAX))


def _key_of(grant: Grant) -> tuple[str, str, str]:
    return _key(grant.claim, grant.device.name, grant.share_id)


def _key(claim: drakit.ClaimRef, device: str, share_id: str | None) -> tuple[str, str, str]:
    return claim.uid, device, share_id or ""
