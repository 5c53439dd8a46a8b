"""One driver on its own node: the real engine, journal, locks and CDI files, in a temporary folder.

There are no sockets and no API server: the test creates allocated claims and calls the engine directly. ``restart`` simulates a new process: a new
driver object recovers from the journal::

    with testing.Node(MyDriver) as node:
        claim = node.claim("fpga-0")
        container = node.prepare(claim)
        assert container.env["FPGA"] == "0"
        node.unprepare(claim)
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import tempfile
import types
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from drakit.core import advanced, arguments, claim_status, errors, inventory, lifecycle, names, quantity, records
from drakit.core import claim as claims
from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.journal import inspection
from drakit.node import driver_context, engine, local_node, restore_loop
from drakit.testing import crashing, earlier_claims, simulated_death

DriverFactory = Callable[[], drivers.Driver[Any]]
POOL = "test-node"


class RefusedError(AssertionError):
    """A call that the engine refused. The text is the one of the pod's event."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContainerView:
    """The view of a container that lists the claim, from the CDI files as a runtime reads them."""

    env: Mapping[str, str]
    device_nodes: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...] = ()
    hooks: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class DriverReports:
    """The driver's reports through its context, in order: health, device statuses and events."""

    health: list[contexts.HealthReport] = dataclasses.field(default_factory=list)
    statuses: list[tuple[claims.ClaimRef, claim_status.DeviceStatus]] = dataclasses.field(default_factory=list)
    events: list[tuple[claims.ClaimRef, contexts.Event]] = dataclasses.field(default_factory=list)


class Waiting:
    """A ``drakit.Caller`` that waits until ``waits`` is set to False. ``seconds_left`` returns ``seconds``; None means no deadline."""

    def __init__(self) -> None:
        self.waits = True
        self.seconds: float | None = None

    def is_waiting(self) -> bool:
        """Return ``waits``."""
        return self.waits

    def seconds_left(self) -> float | None:
        """Return ``seconds``."""
        return self.seconds


class Claims:
    """A ``ports.ClaimSource`` in memory."""

    def __init__(self) -> None:
        self._known: dict[names.ClaimUid, claims.Claim] = {}

    def put(self, claim: claims.Claim) -> claims.ClaimRef:
        """Add a claim, as if the API server had it."""
        self._known[claim.ref.uid] = claim
        return claim.ref

    def reserve(self, uids: Iterable[names.ClaimUid]) -> None:
        """Reserve these claims for pods, and no other."""
        reserved = frozenset(uids)
        self._known = {uid: dataclasses.replace(claim, is_reserved=uid in reserved) for uid, claim in self._known.items()}

    def remove(self, ref: claims.ClaimRef) -> None:
        """Remove a claim, as if it was deleted."""
        self._known.pop(ref.uid, None)

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Return the claim. Raises ClaimError if it was not added or was removed."""
        if ref.uid not in self._known:
            raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim no longer exists")
        return self._known[ref.uid]

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Return the claims with a device of this driver for which ``serves(pool, device)`` is true (``ports.ClaimList``)."""
        known = self._known.values()
        return claims.Listed(
            claims=tuple(claim for claim in known if any(serves(one.pool, one.device) for one in claim.results_of(driver)))
        )


@arguments.checked_methods
class Node:
    """A node with one driver. Use it as a context manager.

    Each start calls ``make`` and the driver's ``start``; its ``stop`` is called at the end. ``folder`` keeps the node's state (journal, CDI files)
    instead of a temporary folder, so that another ``Node`` can continue with it.
    """

    def __init__(self, make: DriverFactory, *, folder: pathlib.Path | None = None) -> None:
        self._make = make
        self._closing = contextlib.ExitStack()
        self.folder = folder or pathlib.Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="drakit-test-")))
        self.claims = Claims()
        self.caller = Waiting()
        self.reports = DriverReports()
        self.boot_id = "boot-1"
        try:
            self._station = self._open()
        except BaseException:
            self._closing.close()
            raise

    @property
    def driver(self) -> drivers.Driver[Any]:
        """The author's driver in the present process."""
        return self._station.author

    @property
    def offered(self) -> inventory.Inventory:
        """The present inventory, flat, with the driver's taints."""
        self._station.offered.refresh()
        return inventory.with_taints(self._station.offered.current.flat, self.context.taints())

    @property
    def all_devices(self) -> Mapping[str, devices.Device]:
        """Every device that a claim can get, by name: those of the node and of the driver's cluster pools."""
        return {name: device for name, (device, _) in self._with_pools().items()}

    @property
    def context(self) -> contexts.DriverContext:
        """The context that ``start`` received."""
        return self._context

    @property
    def entries(self) -> Sequence[lifecycle.Entry]:
        """The entries of the journal."""
        return self._station.journal.entries()

    @property
    def is_clean(self) -> bool:
        """Whether the journal and the CDI directory are empty."""
        return not self.entries and not self._station.cdi.claims()

    def restart(self, *, boot_id: str | None = None) -> None:
        """Simulate the end of the process and a new start, after a reboot if ``boot_id`` differs."""
        self.boot_id = boot_id or self.boot_id
        self._shut()
        self._station = self._open()

    def lose_journal(self) -> None:
        """Make the journal unreadable and restart: the new process restores its claims from ``claims``, CDI files and ``recall``.

        Pods use the claims that are prepared now.
        """
        self.claims.reserve(entry.claim.uid for entry in self.entries if entry.state is lifecycle.State.PREPARED)
        self._shut()
        (self.folder / "home" / inspection.DATABASE).write_bytes(b"not a journal any more")
        self._station = self._open()
        self._station.restore(self.claims)

    def claim(
        self,
        *device_names: str,
        name: str = "",
        parameters: Mapping[str, object] | None = None,
        source: claims.ConfigSource = claims.ConfigSource.CLAIM,
        consumed: Mapping[str, quantity.Amount] | None = None,
        admin_access: bool = False,
    ) -> claims.ClaimRef:
        """Add a claim to which these devices are allocated, and return its reference. A device that allows multiple allocations gets a share id.

        ``parameters`` is an opaque configuration of the claim or its class (``source``). ``consumed`` is the capacity that the claim takes, by name;
        by default a shared device is accounted as without a request. With ``admin_access`` other claims may have the devices too. Raises ValueError
        for a capacity that no device has.
        """
        offered = self._with_pools()
        _check_offered(consumed or {}, (device for device, _ in offered.values()))
        results = tuple(
            dataclasses.replace(self._result(index, device, offered.get(device), consumed or {}), admin_access=admin_access)
            for index, device in enumerate(device_names)
        )
        uid = names.ClaimUid(str(uuid.uuid4()))
        configs: tuple[claims.OpaqueConfig, ...] = ()
        if parameters is not None:
            configs = (claims.OpaqueConfig(source=source, driver=self.driver.name, parameters=records.freeze_record(parameters)),)
        ref = claims.ClaimRef(uid=uid, namespace="default", name=name or f"claim-{uid[:8]}")
        return self.claims.put(claims.Claim(ref=ref, results=results, configs=configs))

    def adopt(self, recorded: pathlib.Path) -> claims.ClaimRef:
        """Add a prepared claim of an earlier release to the journal, as if that release ran here before, and return its reference.

        ``recorded`` is a file that ``journal show UID -o json`` of that release wrote. It has intent and record in the form of that release. The
        hardware is as it is. Raises ConfigError for a file that has no such claim.
        """
        entry = earlier_claims.read(recorded, pool=POOL)
        self._station.journal.begin(
            dataclasses.replace(
                entry,
                state=lifecycle.State.PREPARING,
                boot_id=self.boot_id,
                grants=tuple(dataclasses.replace(grant, record=records.EMPTY, edits=None) for grant in entry.grants),
            )
        )
        self._station.journal.complete(entry.claim.uid, entry.grants, self.boot_id)
        return self.claims.put(earlier_claims.allocated(entry, self.driver.name))

    def try_prepare(self, ref: claims.ClaimRef) -> claims.Outcome:
        """Prepare the claim and return the kubelet's result or error. A driver with a lost journal restores it first, or returns the reason."""
        if self._station.is_lost and (failed := self._station.restore(self.claims)):
            return claims.Outcome(error="journal lost: " + restore_loop.describe(failed, self._station.identity.program))
        return self._station.engine.prepare([ref], self.caller)[ref.uid]

    def prepare(self, ref: claims.ClaimRef) -> ContainerView:
        """Prepare the claim and return its container's view. Raises RefusedError."""
        answer = self.try_prepare(ref)
        if answer.error:
            raise RefusedError(answer.error)
        return self.container(tuple(item for prepared in answer.devices for item in prepared.cdi_ids))

    def bind(self, ref: claims.ClaimRef) -> None:
        """Call ``bind`` for the claim's devices, as before its pod is bound. Raises what the driver's ``bind`` raises."""
        self._station.engine.bind(ref, self.caller)

    def deallocate(self, ref: claims.ClaimRef) -> None:
        """Deallocate a claim that is not prepared, so that the engine undoes ``bind``. Raises what ``unprepare`` raises."""
        self.claims.remove(ref)
        self._station.engine.abandon(ref, None, self.caller)

    def unprepare(self, ref: claims.ClaimRef) -> None:
        """Unprepare the claim, with a lost journal as the command ``unprepare`` does. Raises RefusedError."""
        error = self._station.unprepare([ref], self.caller)[ref.uid]
        if error:
            raise RefusedError(error)

    def signal_stop(self) -> None:
        """Set ``context.stopping``, as the framework does before ``stop``, so that a waiting ``watch`` returns."""
        self._station.context.stopping.set()

    def container(self, cdi_ids: Sequence[str]) -> ContainerView:
        """Return the view of a container with these CDI devices."""
        edits = [found for file in sorted((self.folder / "cdi").glob("*.json")) for found in _edits(file, cdi_ids)]
        return ContainerView(
            env=dict(text.split("=", 1) for found in edits for text in found.get("env", ())),
            device_nodes=tuple(item["path"] for found in edits for item in found.get("deviceNodes", ())),
            mounts=tuple((item["hostPath"], item["containerPath"]) for found in edits for item in found.get("mounts", ())),
            hooks=tuple(item["hookName"] for found in edits for item in found.get("hooks", ())),
            cdi_ids=tuple(cdi_ids),
        )

    def close(self) -> None:
        """Stop the driver, and remove a temporary folder."""
        try:
            self._shut()
        finally:
            self._closing.close()

    def _shut(self) -> None:
        try:
            _stop(self._station)
        except BaseException:
            self._process.end(functools.partial(_stop, self._station))
            raise
        finally:
            self._process.close()
            self._station.close()

    def _die(self) -> None:
        """End like a process that died: the driver can no longer change the journal."""
        self._process.close()
        try:
            self._process.end(functools.partial(_stop, self._station))
        finally:
            self._station.close()
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        if kind is not None and issubclass(kind, crashing.Crash):
            self._die()
        else:
            self.close()

    def _open(self) -> local_node.LocalNode:
        process = self._process = simulated_death.Process()
        stop: Callable[[], object] = bool  # Until there is a driver, nothing has to be stopped.
        with contextlib.ExitStack() as closing:
            try:
                made = drivers.made_by(self._make)
                stop = made.stop
                opened = closing.enter_context(self._local(made))
                stop = functools.partial(_stop, opened)
                self._context = process.context(opened.context)
                opened.author.start(self._context)
                opened.offered.refresh()
            except BaseException:
                process.end(stop)
                raise
            closing.pop_all()
        process.lives(self._die)
        return opened

    def _local(self, made: drivers.Driver[Any]) -> local_node.LocalNode:
        spec = local_node.DriverSpec(
            driver_name=made.name, build=lambda _: made, identity=engine.NodeIdentity(pool=POOL, boot_id=self.boot_id)
        )
        opened = local_node.LocalNode.open(spec, local_node.Folders(home=self.folder / "home", cdi=self.folder / "cdi"), self.claims)
        opened.context.sinks = driver_context.ReportSinks(
            health=self.reports.health.append,
            status=lambda ref, status: self.reports.statuses.append((ref, status)),
            event=lambda ref, event: self.reports.events.append((ref, event)),
        )
        return opened

    def _with_pools(self) -> dict[str, tuple[devices.Device, str]]:
        """Return every device that a claim can get, and its pool, by name. The first cluster pool with the name counts."""
        shared = {
            device.name: (device, pool.name)
            for pool in reversed(advanced.cluster_pools(self.driver))
            for device in pool.inventory.flat().devices
        }
        return shared | {name: (device, device.pool_on(POOL)) for name, device in self.offered.by_name().items()}

    def _result(
        self, index: int, name: str, offered: tuple[devices.Device, str] | None, consumed: Mapping[str, quantity.Amount]
    ) -> claims.AllocationResult:
        device, pool = offered or (None, POOL)
        shared = device is not None and device.allow_multiple_allocations
        return claims.AllocationResult(
            request=f"request-{index}",
            driver=self.driver.name,
            pool=pool,
            device=name,
            share_id=names.ShareId(str(uuid.uuid4())) if shared else None,
            binding_conditions=device.binding_conditions if device else (),
            binding_failure_conditions=device.binding_failure_conditions if device else (),
            consumed_capacity=_defaults(device) | {key: quantity.Quantity.of(amount) for key, amount in consumed.items()},
        )


def _stop(opened: local_node.LocalNode) -> None:
    opened.context.stopping.set()
    opened.author.stop()


def _defaults(device: devices.Device | None) -> dict[str, quantity.Quantity]:
    """Return what the scheduler accounts for a share without a request."""
    capacity = device.capacity if device and device.allow_multiple_allocations else {}
    taken = {name: one.consumed_by(None) for name, one in capacity.items()}
    return {name: amount for name, amount in taken.items() if amount is not None}


def _check_offered(consumed: Mapping[str, quantity.Amount], offered: Iterable[devices.Device]) -> None:
    known = {name for device in offered for name in device.capacity}
    if unknown := sorted(consumed.keys() - known):
        raise ValueError(f"consumed: no device has a capacity {unknown[0]!r}; known are {', '.join(sorted(known)) or 'none'}")


def _edits(file: pathlib.Path, cdi_ids: Sequence[str]) -> list[dict[str, Any]]:
    document = json.loads(file.read_text("utf-8"))
    return [item["containerEdits"] for item in document["devices"] if f"{document['kind']}={item['name']}" in cdi_ids]
