"""The NIC driver: interfaces shared by many claims, one share for each share id, with its bandwidth enforced in both directions.

``prepare`` installs a share's class on the NIC and returns the container's edits; the interface in the pod is created when the container runtime
calls the hook (``attach``). ``watch`` runs the checks of ``background``: a reconciler restores what was changed on a NIC, and a monitor publishes
changes of interfaces. A mock machine records shares, but does not shape or attach them.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import drakit
from drakit import vfio
from drakit.vfio import kernel, leftovers
from drakit_nic import background, config, link_monitor, port, reclaiming, reporting, tc_reconciler
from drakit_nic import options as nic_options
from drakit_nic import share as shares
from drakit_nic.addresses import ip_pools
from drakit_nic.attach import attachment_records, collector, service
from drakit_nic.discovery import attributes, device_names, offers
from drakit_nic.passthrough import function_counts, vfio_form, whole_interface
from drakit_nic.shaping import htb

NAME = "nic.drakit.dev"


class NicDriver(drakit.Driver[config.NicConfig]):
    """The driver that shares the interfaces of ``machine`` by ``options``. ``node`` makes the addresses of shares distinct between nodes.

    ``intents`` returns the intents of all journaled grants, so that a new share gets no class number of theirs. Without ``attachment``, containers
    get no interface, as on a mock machine. ``bus`` is the PCI bus, by default this machine's.

    The driver is volatile: a reboot removes classes, filters, maps, children, their addresses and sandboxes from the kernel. The settings of virtual
    functions are in the kernel's driver of the physical function.
    """

    device_metadata = True
    volatile = True
    watch_interval = 0.0
    watch_retry = (1.0, 10.0)
    config_types: ClassVar[tuple[type[object], ...]] = (config.NicConfig,)

    def __init__(
        self,
        machine: port.Port,
        *,
        node: str,
        options: nic_options.NicOptions | None = None,
        name: str = NAME,
        intents: Callable[[], Iterable[drakit.Record]] = tuple,
        attachment: service.Service | None = None,
        bus: vfio.Bus | None = None,
    ) -> None:
        self.name = name
        self._machine = machine
        self._node = node
        self._options = options or nic_options.NicOptions()
        self._intents = intents
        self._attachment = attachment
        self._link_monitor: link_monitor.LinkMonitor | None = None
        self._checks: background.Checks | None = None
        self._speeds = offers.LastSpeeds()
        self._counters = reporting.ShareCounters()
        self._numbers = htb.ShareNumbers()
        self._claim_conflicts = shares.ClaimConflicts()
        self._speed_by_device: Mapping[str, int] = {}
        self._withheld: Mapping[str, str] = {}
        home = None if attachment is None else attachment.home
        self._whole = whole_interface.Whole(machine, node=node, options=self._options, home=home)
        self._function_counts = function_counts.FunctionCounts(machine, self._options, intents)
        self._vfio = vfio_form.VfioForm(machine, bus or kernel.KernelBus(), self._whole, self._options)

    def survey(self) -> offers.Survey:
        """Return the offered and withheld interfaces, with reasons. A whole interface in a pod is still offered, unless its hardware was removed.

        Raises HardwareError.
        """
        own_namespaces = tuple if self._attachment is None else self._attachment.namespaces
        present = self._speeds.fill(self._machine.interfaces(own_namespaces))
        interfaces = (*present, *filter(self._machine.is_plugged, whole_interface.away(self._intents(), present)))
        guaranteeing = self._whole.functions.guaranteeing(interfaces)
        surveyed = offers.survey(interfaces, self._options, self._shaping(), guaranteeing, self._vfio.passed(interfaces))
        self._speed_by_device = {nic.name: nic.speed for nic in surveyed.nics}
        return surveyed

    def not_offered(self) -> Sequence[drakit.NotOffered]:
        surveyed = self.survey()
        withheld = [(one.name, one.refusal, {"is_expected": one.refusal.expected}) for one in surveyed.withheld]
        cautioned = [(nic.interface.name, nic.caution, {"is_caution": True}) for nic in surveyed.nics if nic.caution]
        not_passed = [(nic.interface.name, surveyed.not_passed[nic.name]) for nic in surveyed.nics if nic.name in surveyed.not_passed]
        return [
            *(
                drakit.NotOffered(kind="interface", name=name, reason=refused.reason, change=refused.change, **how)
                for name, refused, how in (*withheld, *cautioned)
            ),
            *(
                drakit.NotOffered(kind="interface for virtual machines", name=name, reason=refused.reason, change=refused.change)
                for name, refused in not_passed
            ),
        ]

    def diagnose(self) -> Iterator[drakit.Finding]:
        """Yield the findings of ``doctor`` that need the settings or the claims. Raises HardwareError."""
        yield from self._function_counts.findings()
        for nic in self.survey().nics:
            if nic.queueing:
                yield drakit.Finding.ok("interfaces", nic.interface.name, nic.queueing)

    def discover(self) -> drakit.Inventory:
        surveyed = self.survey()
        self._withheld = surveyed.withheld_devices()
        return surveyed.to_inventory()

    def withheld_devices(self) -> Mapping[str, str]:
        return self._withheld

    def plan(self, grant: drakit.Grant[config.NicConfig]) -> drakit.Record:
        """Return the record of the planned share or whole interface, complete before anything is installed."""
        if grant.admin_access:
            return types.MappingProxyType({})
        if device_names.is_vfio(grant.device):
            return self._vfio.plan(grant, self._interface)
        interface = self._interface(grant.device)
        self._claim_conflicts.add(grant.claim, self._wanted(grant, interface))
        if device_names.is_whole(grant.device):
            return self._whole.plan(grant, interface)
        share = self._share(grant, interface)
        shares.check_config(grant, interface, self._node, share.child)
        return shares.to_record(share)

    def prepare(self, grant: drakit.Grant[config.NicConfig]) -> drakit.Prepared:
        """Install the share and return the container's edits. Admin access installs nothing and gets no bandwidth."""
        self._claim_conflicts.clear()
        if grant.admin_access:
            return drakit.Prepared()
        if device_names.is_vfio(grant.device):
            return self._vfio.prepare(grant)
        if device_names.is_whole(grant.device):
            return self._prepare_whole(grant)
        missing = self._shaping().missing
        if missing:
            raise drakit.HardwareError("prepare", missing)
        interface = self._interface(grant.device)
        share = self._share(grant, interface)
        uplink = self.uplink(interface, self._speed_of(grant.device, share))
        self._machine.install(uplink, uplink.allowed(share))
        share_in_pod = dataclasses.replace(share, mac=grant.config.mac or share.mac)
        edits_with = functools.partial(shares.container_edits, share_in_pod, request=grant.request, device=grant.device.name)
        if self._attachment is None:
            if self._checks is not None:
                self._checks.wake()  # Elsewhere an attach does this.
            return drakit.Prepared(edits=edits_with(interface_name=grant.config.interface_name), record=shares.to_record(share))
        client = self._attachment.client_for(grant.record)
        container_edits = edits_with(
            interface_name=attachment_records.interface_name(grant.config, share.id), hook=self._attachment.hook(client, grant)
        )
        return drakit.Prepared(edits=container_edits, record={**shares.to_record(share), service.RECORDED: client})

    def _prepare_whole(self, grant: drakit.Grant[config.NicConfig]) -> drakit.Prepared:
        if self._attachment is None:
            return self._whole.prepare(grant, None)
        client = self._attachment.client_for(grant.record)
        prepared = self._whole.prepare(grant, self._attachment.hook(client, grant))
        return dataclasses.replace(prepared, record={**prepared.record, service.RECORDED: client})

    def unprepare(self, grant: drakit.Grant[config.NicConfig]) -> None:
        if grant.admin_access:
            return
        if device_names.is_vfio(grant.device):
            self._vfio.unprepare(grant)
            return
        if device_names.is_whole(grant.device):
            if self._attachment is not None:
                self._attachment.end_whole(grant)
            self._whole.unprepare(grant, None if self._attachment is None else self._attachment.placement_of(grant))
            return
        id_on_node = shares.id_on_node(grant.claim, grant.device, grant.share_id)
        if self._attachment is not None:
            self._attachment.detach(grant, id_on_node)
        self._machine.remove(id_on_node, shares.from_record(grant.record) or shares.from_record(grant.intent))
        self._numbers.release(id_on_node)

    def start(self, context: drakit.DriverContext) -> None:
        """Create virtual functions, start to attach sandboxes, and prepare the checks that ``watch`` runs."""
        if self._options.sriov:
            self._function_counts.ensure(context, at_start=True)
        if self._attachment is not None:
            self._attachment.start(context, self._intents)
        events = self._machine.watch()
        survey = functools.partial(background.survey_and_narrow, self.survey, events)
        health = reporting.DeviceHealth(context)
        reporter = reporting.StatusReporter(self._machine, context, attaches=self._attachment is not None)
        reconciler = tc_reconciler.TcReconciler(
            self._machine,
            context,
            survey=survey,
            uplink=self.uplink,
            intents=self._intents,
            health=health,
            on_read=self._numbers.load,
        )
        self._link_monitor = link_monitor.LinkMonitor(
            context, survey=survey, carrier_loss=self._options.carrier_loss, health=health, reporter=reporter
        )
        links = background.Check(self._link_monitor.check, lambda: link_monitor.LINK_INTERVAL)

        def reconcile() -> None:
            reconciler.reconcile()
            if events.wait(0):  # The reconciler's own requests cause events too, but a link may have changed meanwhile.
                events.drain()
                links.bring_forward()

        checks = [background.Check(reconcile, reconciler.interval), links]
        if self._options.sriov:
            ensure = functools.partial(self._function_counts.ensure, context, at_start=False)
            # Not after events: creating functions causes some, also where it fails.
            checks.append(background.Check(ensure, lambda: link_monitor.LINK_INTERVAL, on_events=False))
        if self._attachment is not None:
            checks.insert(0, background.Check(self._attachment.collect, lambda: collector.COLLECT_INTERVAL, on_events=False))
        self._checks = background.Checks(events, checks)
        if self._attachment is not None:
            self._attachment.callbacks = service.Callbacks(attached=reporter.attached, failed=reporter.failed, finished=self._checks.wake)

    def watch(self, context: drakit.DriverContext) -> None:
        """Run the checks that are due, and wait for the next one or for an event of the kernel. Raises DrakitError."""
        if self._checks is not None:
            self._checks.watch(context.stopping)

    def metrics(self) -> Sequence[drakit.Metric]:
        """Return the metrics of all shares and attachments. Raises HardwareError."""
        attachments = () if self._attachment is None else self._attachment.readings()
        return (reporting.shaping_metric(self._machine.shaping()), *self._counters.readings(self._machine), *attachments)

    def stop(self) -> None:
        """Stop the server and the checks. Installed shares and attached interfaces stay."""
        if self._attachment is not None:
            self._attachment.stop()
        if self._checks is not None:
            self._checks.close()
            self._checks = self._link_monitor = None

    def leftovers(self) -> Sequence[str]:
        """Return descriptions of this driver's traffic control and of its interfaces in pods. Raises HardwareError."""
        shaped = [f"traffic control on {interface.name}" for interface in self._own() if self._machine.check(self.uplink(interface, 0), ())]
        return [*shaped, *(() if self._attachment is None else self._attachment.leftovers())]

    def remove_leftovers(self) -> None:
        """Remove queues, filters and ifbs from every interface, and this driver's interfaces from pods. Raises HardwareError."""
        for interface in self._own():
            self._machine.repair(self.uplink(interface, 0), ())
        if self._attachment is not None:
            self._attachment.remove_leftovers()

    def unclaimed(self) -> Sequence[drakit.Leftover]:
        """Return shares, interfaces in pods, NICs at vfio-pci and traffic control that no intent names. Raises HardwareError."""
        return [*self._unclaimed().find(), *self._vfio.unclaimed(self._intents)]

    def reclaim(self, leftover: drakit.Leftover) -> None:
        """Release one of them. Raises HardwareError, DeviceBusyError."""
        if leftover.kind == leftovers.KIND:
            self._vfio.reclaim(leftover)
        else:
            self._unclaimed().release(leftover)

    def _unclaimed(self) -> reclaiming.Unclaimed:
        kernel = None if self._attachment is None else self._attachment.kernel
        return reclaiming.Unclaimed(self._machine, kernel, intents=self._intents, survey=self.survey, uplink=self.uplink)

    def _own(self) -> Sequence[port.Interface]:
        """Return the interfaces that no other driver shares, without the ifbs, which belong to their NICs."""
        return [interface for interface in self._machine.interfaces() if not interface.other_driver and interface.kind != "ifb"]

    def uplink(self, interface: port.Interface, speed: int) -> port.Uplink:
        """Return the wanted shaping of a NIC with this speed in bits per second."""
        rule = self._options.rule_for(interface)
        return port.Uplink(
            interface=interface.name,
            ifindex=interface.ifindex,
            mac=interface.mac,
            speed=speed,
            reserve=rule.reserve.value if rule.reserve is not None else 0,
            ceil=None if rule.ceil is None else rule.ceil.value,
        )

    def merge_configs(self, configs: Sequence[drakit.OpaqueConfig]) -> drakit.Record:
        return config.settle(configs)

    def _shaping(self) -> port.Shaping:
        """Return what this machine can enforce, and why it cannot attach."""
        shaping = self._machine.shaping()
        missing = shaping.missing or (self._attachment.missing() if self._attachment is not None else "")
        return dataclasses.replace(shaping, missing=missing)

    def _share(self, grant: drakit.Grant[config.NicConfig], interface: port.Interface) -> port.Share:
        shares.check_id(grant.device, grant.share_id)
        id_on_node = shares.id_on_node(grant.claim, grant.device, grant.share_id)
        bandwidth = shares.bandwidth(grant.device, grant.consumed_capacity, self.name)
        planned = grant.intent.get("mac")
        return port.Share(
            id=id_on_node,
            interface=interface.name,
            ifindex=interface.ifindex,
            mac=planned if isinstance(planned, str) else shares.mac_address(self._node, id_on_node),
            bandwidth=bandwidth,
            ceil=grant.config.ceil.value if grant.config.ceil else 0,
            minor=self._minor(id_on_node, grant.intent, interface),
            child=self._child(grant.intent, interface),
        )

    def _child(self, intent: drakit.Record, interface: port.Interface) -> port.ChildKind:
        """Return the kind of the share's interfaces: that of its plan, which an earlier version did not record, else the setting's."""
        planned = shares.from_record(intent)
        return planned.child if planned is not None else port.ChildKind(self._options.rule_for(interface).child)

    def _speed_of(self, device: drakit.Device, share: port.Share) -> int:
        """Return the NIC's speed of the last survey, else the published speed of the device."""
        published = device.attributes[attributes.SPEED]
        return self._speed_by_device.get(device.name, published if isinstance(published, int) else share.bandwidth)

    def _wanted(self, grant: drakit.Grant[config.NicConfig], interface: port.Interface) -> shares.Wanted:
        id_on_node = shares.id_on_node(grant.claim, grant.device, grant.share_id)
        default_name = (
            interface.name if device_names.is_whole(grant.device) else attachment_records.interface_name(grant.config, id_on_node)
        )
        return shares.Wanted(
            key=f"{grant.request} {id_on_node}",
            request=grant.request,
            name=grant.config.interface_name or default_name,
            hosts=ip_pools.hosts(grant.config.addresses),
        )

    def _minor(self, id_on_node: str, intent: drakit.Record, interface: port.Interface) -> int:
        """Return the share's class number: the planned one, else the installed one, else a free one."""
        planned = intent.get("minor")
        if isinstance(planned, int):
            return planned
        at = functools.partial(self._machine.share, interface.ifindex)
        return self._numbers.choose(id_on_node, snapshot=lambda: (self._machine.shares(), self._intents()), at=at)

    def _interface(self, device: drakit.Device) -> port.Interface:
        """Return the interface of a device, found by its published name, or by its device name where hardware was renamed. Raises DeviceGoneError."""
        interface = self._machine.interface(str(device.attributes[attributes.IF_NAME]))
        name = device_names.base_name(device)
        if interface is not None and name in device_names.by_name([interface]):
            return interface
        present = device_names.by_name(self._machine.interfaces())
        if name not in present:
            raise drakit.DeviceGoneError(f"{device.name}: {device_names.gone(device)}")
        return present[name]
