"""A node's world that outlives the driver's process: hardware, journal, CDI directory, claims; ``boot`` starts a new engine on it.

``step`` is called before and after every effect of any of them, so that a test can kill the process at each.
"""

import contextlib
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import edits, errors, lifecycle, names, ports, quantity
from drakit.node import engine, held_devices, inventory_cache, recovery, restorer, timing
from fakes import author, cdi, claim_source, journal

POOL = "node-1"


class Crash(BaseException):
    """The process is gone: nothing that catches Exception sees it."""


class Waiting:
    """A caller that waits until told otherwise."""

    def __init__(self) -> None:
        self.waits = True

    def is_waiting(self) -> bool:
        return self.waits

    def seconds_left(self) -> None:
        return None


class ThreadLocks:
    """``ports.Locks`` in memory; given to several engines they are the locks of a node."""

    def __init__(self) -> None:
        self._table: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in sorted(set(lock_names)):
                with self._guard:
                    lock = self._table.setdefault(name, threading.Lock())
                while not lock.acquire(timeout=0.01):
                    if not wanted():
                        raise errors.LockedError(f"{name} is locked", lock=name)
                stack.callback(lock.release)
            yield


class SteppingJournal(journal.MemoryJournal):
    """Tells of every change before and after it is made."""

    def __init__(self, step: Callable[[str], None]) -> None:
        super().__init__()
        self._step = step

    def begin(self, entry: lifecycle.Entry) -> None:
        self._step("before begin")
        super().begin(entry)
        self._step("after begin")

    def complete(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry], boot_id: str) -> None:
        self._step("before complete")
        super().complete(uid, grants, boot_id)
        self._step("after complete")

    def refresh(self, uid: names.ClaimUid, grants: Sequence[lifecycle.GrantEntry]) -> None:
        self._step("before refresh")
        super().refresh(uid, grants)
        self._step("after refresh")

    def released(self, uids: Collection[names.ClaimUid]) -> None:
        self._step("before released")
        super().released(uids)
        self._step("after released")

    def rebuilt(self) -> None:
        self._step("before rebuilt")
        super().rebuilt()
        self._step("after rebuilt")

    def begin_unprepare(self, uid: names.ClaimUid) -> None:
        self._step("before begin_unprepare")
        super().begin_unprepare(uid)
        self._step("after begin_unprepare")

    def forget(self, uid: names.ClaimUid, *, state: lifecycle.State | None = None) -> None:
        self._step("before forget")
        super().forget(uid, state=state)
        self._step("after forget")

    def finish_unprepare(self, uid: names.ClaimUid) -> None:
        self._step("before finish_unprepare")
        super().finish_unprepare(uid)
        self._step("after finish_unprepare")


class SteppingCdi(cdi.MemoryCdi):
    """Tells of every change before and after it is made."""

    def __init__(self, driver: str, step: Callable[[str], None]) -> None:
        super().__init__(driver)
        self._step = step

    def write(self, name: edits.CdiName, content: edits.Edits) -> None:
        self._step("before write")
        super().write(name, content)
        self._step("after write")

    def remove(self, claim_uid: names.ClaimUid) -> None:
        self._step("before remove")
        super().remove(claim_uid)
        self._step("after remove")


class CrashNode:
    """Everything that is left when the driver dies."""

    def __init__(self) -> None:
        self.step: Callable[[str], None] = lambda _: None
        self.boot_id = "boot-1"
        self.hardware = author.Hardware()
        self.hardware.step = self._tell
        self.journal = SteppingJournal(self._tell)
        self.cdi = SteppingCdi(author.FakeDriver.name, self._tell)
        self.claims = claim_source.FakeClaimSource()
        self.caller = Waiting()
        self.clock: ports.Clock = timing.SystemClock()
        self.meter: ports.Meter | None = None
        self.driver_type: type[author.FakeDriver] = author.FakeDriver
        self.device_locks, self.claim_locks, self.restore_locks = ThreadLocks(), ThreadLocks(), ThreadLocks()
        self.driver = author.FakeDriver(self.hardware)

    def _tell(self, what: str) -> None:
        self.step(what)

    def boot(self, *, recover: bool = True) -> engine.Engine:
        """A new process of the driver."""
        self.driver = self.driver_type(self.hardware)
        self.offered = offered = inventory_cache.InventoryCache(
            self.driver, lambda: held_devices.held(self.journal.held_devices(self.boot_id), POOL)
        )
        offered.refresh()
        self.engine = started = engine.Engine(
            self.driver,
            identity=engine.NodeIdentity(pool=POOL, boot_id=self.boot_id),
            offered=offered,
            claim_source=self.claims,
            journal=self.journal,
            cdi=self.cdi,
            device_locks=self.device_locks,
            locks_of_claims=self.claim_locks,
            clock=self.clock,
            meter=self.meter,
        )
        drivers.open_driver(self.driver, started.resolver.planned)
        if recover:
            self.recover()
        return started

    def recover(self) -> recovery.Report:
        """Recovery by the present process."""
        return recovery.recover(self.engine, self.journal, self.cdi)

    def restorer(self) -> restorer.Restorer:
        """The restorer of the present process."""
        return restorer.Restorer(
            restorer.RestorerParts(
                author=self.driver,
                pool=POOL,
                boot_id=self.boot_id,
                offered=self.offered,
                journal=self.journal,
                cdi=self.cdi,
                engine=self.engine,
                device_locks=self.device_locks,
                own_lock=lambda: self.restore_locks,
            )
        )

    def claim(
        self,
        *devices: str,
        driver: str = author.FakeDriver.name,
        pool: str = POOL,
        shared: bool = False,
        configs: tuple[claims.OpaqueConfig, ...] = (),
        name: str = "",
    ) -> claims.ClaimRef:
        """An allocated claim for these devices."""
        results = tuple(
            claims.AllocationResult(
                request=f"r{index}",
                driver=driver,
                pool=pool,
                device=device,
                share_id=names.ShareId(str(uuid.uuid4())) if shared else None,
                consumed_capacity={"bandwidth": quantity.Quantity.parse("1G")} if shared else {},
            )
            for index, device in enumerate(devices)
        )
        uid = names.ClaimUid(str(uuid.uuid4()))
        ref = claims.ClaimRef(uid=uid, namespace="default", name=name or f"claim-{uid[:8]}")
        return self.claims.put(claims.Claim(ref=ref, results=results, configs=configs))

    @property
    def is_clean(self) -> bool:
        """Whether no claim has left anything anywhere."""
        return not (self.hardware.made or self.journal.entries() or self.cdi.files)
