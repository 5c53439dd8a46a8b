"""Shares, pod interfaces, marks and parts of traffic control that no claim of the journal has, and their release.

The driver's marks decide: the map of shares, the alias of an interface in a pod, the alias of a whole interface, and the alias of the ifb. They
outlive the journal. A share that has an interface in a pod is in use: releasing it takes the interface from the pod.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import drakit
from drakit_nic import pod_interfaces, port
from drakit_nic.attach import attachment_records, sandboxes
from drakit_nic.discovery import device_names, offers
from drakit_nic.passthrough import whole_interface

SHARE, POD_INTERFACE, WHOLE, SHAPING = "NIC share", "pod interface", "mark of a whole interface", "traffic control"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Known:
    """The intents of the journal: shares by id, marks of whole interfaces, and the indices of NICs with shares."""

    ids: frozenset[str]
    marks: frozenset[str]
    nics: frozenset[int]

    @classmethod
    def of(cls, intents: Iterable[drakit.Record]) -> "_Known":
        every = tuple(intents)
        whole = (whole_interface.intent_of(record) for record in every)
        return cls(
            ids=frozenset(str(record.get("id")) for record in every),
            marks=frozenset(intent.mark for intent in whole if intent is not None),
            nics=frozenset(index for record in every if isinstance(index := record.get("ifIndex"), int)),
        )

    def __or__(self, other: "_Known") -> "_Known":
        return _Known(ids=self.ids | other.ids, marks=self.marks | other.marks, nics=self.nics | other.nics)


class Unclaimed:
    """Finds and releases what no intent names. ``kernel`` is None if no pod has an interface, as on a mock machine."""

    def __init__(
        self,
        machine: port.Port,
        kernel: sandboxes.KernelSandboxes | None,
        *,
        intents: Callable[[], Iterable[drakit.Record]],
        survey: Callable[[], offers.Survey],
        uplink: Callable[[port.Interface, int], port.Uplink],
    ) -> None:
        self._machine, self._kernel = machine, kernel
        self._intents, self._survey, self._uplink = intents, survey, uplink

    def find(self) -> Sequence[drakit.Leftover]:
        """Return all leftovers. Raises HardwareError."""
        before = _Known.of(self._intents())
        survey = self._survey()
        offered = {nic.interface.ifindex: nic.to_device().lock_names for nic in survey.nics}
        own = {
            interface.ifindex: interface
            for interface in self._machine.interfaces()
            if not interface.other_driver and interface.kind != "ifb"
        }
        locks = {interface.ifindex: (name,) for name, interface in device_names.by_name(own.values()).items()} | offered
        installed = [share for share in self._machine.shares() if share.ifindex in own]
        in_pods = _by_share(self._kernel)
        # Veths of pods are left out, because no setting of now offers them and a node has hundreds.
        offerable = {index for index, interface in own.items() if not interface.is_virtual or index in survey.interest.ifindexes}
        parts = [] if self._kernel is None else self._parts(own, offerable - {share.ifindex for share in installed})
        marks = self._marks(own)
        known = before | _Known.of(self._intents())
        share_ids = {share.id for share in installed}
        shares = [_share(share, locks[share.ifindex], in_pods.get(share.id, ())) for share in installed if share.id not in known.ids]
        strays = [
            drakit.Leftover(kind=POD_INTERFACE, name=share_id, detail=f"{', '.join(names)} of a share that is not installed")
            for share_id, names in in_pods.items()
            if share_id not in known.ids | share_ids
        ]
        wholes = [
            drakit.Leftover(kind=WHOLE, name=interface.name, detail=mark, locks=locks[interface.ifindex])
            for interface, mark in marks
            if mark not in known.marks
        ]
        shaping = [
            drakit.Leftover(kind=SHAPING, name=interface.name, detail="; ".join(found), locks=locks[interface.ifindex])
            for interface, found in parts
            if interface.ifindex not in known.nics
        ]
        return [*shares, *strays, *wholes, *shaping]

    def release(self, leftover: drakit.Leftover) -> None:
        """Release a leftover; one that is gone is ignored. Raises HardwareError."""
        if leftover.kind in {SHARE, POD_INTERFACE} and self._kernel is not None:
            for nsid, link in self._kernel.marked():
                if attachment_records.share_of(link.alias) == leftover.name:
                    self._kernel.delete(nsid, link)
        if leftover.kind == SHARE:
            self._machine.remove(leftover.name)
        elif leftover.kind == WHOLE and (state := self._machine.host_state(leftover.name)) is not None:
            self._machine.mark(state, "")
        elif leftover.kind == SHAPING and (interface := self._machine.interface(leftover.name)) is not None:
            self._machine.repair(self._uplink(interface, 0), ())

    def _parts(self, own: Mapping[int, port.Interface], idle: Iterable[int]) -> list[tuple[port.Interface, tuple[str, ...]]]:
        """Return the parts of traffic control on NICs without a share, also on NICs that are no longer offered.

        A crash or a deleted map leaves them.
        """
        nics = [own[ifindex] for ifindex in sorted(idle)]
        differences = ((interface, self._machine.check(self._uplink(interface, 0), ())) for interface in nics)
        return [(interface, found) for interface, found in differences if found]

    def _marks(self, own: Mapping[int, port.Interface]) -> list[tuple[port.Interface, str]]:
        """Return the interfaces of the host that have the mark of a claim that held them whole."""
        aliases = ((interface, self._machine.alias(interface.name)) for interface in own.values() if not interface.is_virtual)
        return [(interface, alias) for interface, alias in aliases if alias.startswith(pod_interfaces.mark_of(""))]


def _by_share(kernel: sandboxes.KernelSandboxes | None) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the interfaces in pods by the share that their marks name."""
    names: dict[str, tuple[str, ...]] = {}
    for _, link in () if kernel is None else kernel.marked():
        share_id = attachment_records.share_of(link.alias)
        names[share_id] = (*names.get(share_id, ()), link.name)
    return names


def _share(share: port.Share, locks: tuple[str, ...], in_pods: Sequence[str]) -> drakit.Leftover:
    rate = drakit.Quantity.of(share.bandwidth)
    user = f"{', '.join(in_pods)} in a pod" if in_pods else ""
    return drakit.Leftover(
        kind=SHARE, name=share.id, detail=f"HTB class 1:{share.minor:x} of {share.interface}, {rate}bit/s", locks=locks, user=user
    )
