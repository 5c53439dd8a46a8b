"""Restore the settings of prepared claims after their GPU lost them: compute mode and time slice, and MPS daemons that do not run.

A reset or a change of MIG mode clears settings. At the start the driver checks all prepared claims. While it serves, the health monitor reports
GPUs that may have lost settings, and a worker thread checks their claims. The worker waits for a GPU's lock and for nvidia-smi, and the monitor
must not. Under the lock a claim is read again, so a GPU is changed only while a prepared claim uses it. Settings that match are not written.
Failures are retried. A GPU whose lock another process holds is such a failure: nobody waits for a hung holder, neither the start nor another GPU.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable

import drakit
from drakit_gpu import identity, port
from drakit_gpu.sharing import gpu_settings
from drakit_gpu.sharing.mps import pod_daemons

_log = drakit.get_logger(__name__)
_JOIN_SECONDS = 5.0
_LOCK_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PATROL_SECONDS, _SWEEP_EVERY = 60.0, 10

Grant = drakit.Grant[object]
# The settings applied in one pass: claims that share a GPU have the same ones, which are applied once.
Applied = set[tuple[port.GpuUuid, tuple[port.TimeSlice | None, port.ComputeMode | None]]]


class Restorer:
    """Restores prepared claims in the caller's thread."""

    def __init__(
        self,
        hardware: port.GpuPort,
        context: drakit.DriverContext,
        daemons: pod_daemons.PodDaemons,
        intents: Callable[[], Iterable[drakit.Record]] = tuple,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hardware = hardware
        self._context = context
        self._daemons = daemons
        self._intents = intents
        self._monotonic = monotonic

    def restore(self, gpus: Collection[port.GpuUuid] | None) -> frozenset[port.GpuUuid]:
        """Restore the prepared claims of these GPUs (None: of all); return the GPUs where that failed.

        A running MPS daemon is left alone and gets no request.
        """
        applied: Applied = set()
        locked: set[str] = set()
        failed: set[port.GpuUuid] = set()
        for grant in self._context.grants():
            gpu = grant.intent.get("gpu")
            if (gpus is None or gpu in gpus) and not self._restore(grant, applied, locked):
                failed.add(port.GpuUuid(str(gpu)))
        return frozenset(failed)

    def gpus_missing_daemon(self) -> frozenset[port.GpuUuid]:
        """Return the GPUs on which a prepared claim's MPS daemon does not run."""
        intents = (grant.intent for grant in self._context.grants())
        grants = identity.from_intents(intents, self._hardware.boot_id())
        return frozenset(grant.gpu for grant in grants if grant.has_daemon and not self._daemons.is_alive(grant.holder))

    def sweep(self) -> None:
        """Remove the remains of MPS daemons whose claims are gone."""
        self._daemons.sweep(lambda: identity.holders(self._intents()))

    def _restore(self, grant: Grant, applied: Applied, locked: set[str]) -> bool:
        """Restore one claim; return False where that failed. ``locked`` are the locks that other claims waited for in vain in this pass."""
        if not locked.isdisjoint(grant.device.lock_names):
            return False
        end = self._monotonic() + _LOCK_SECONDS
        try:
            wanted = identity.Identity.from_record(grant.intent)
            settings = wanted.settings
            if settings and wanted.boot == self._hardware.boot_id():
                with self._context.hold(grant.device.lock_names, lambda: self._monotonic() < end):
                    if self._is_prepared(grant):
                        self._set(grant, wanted, applied)
                        uuid = grant.record.get("uuid")
                        if settings.mps is not None and isinstance(uuid, str):
                            self._daemons.ensure(wanted.holder, uuid, settings.mps, claim=str(grant.claim))
        except drakit.DrakitError as error:
            if isinstance(error, drakit.LockedError):
                locked.add(error.lock)
            _log.warning("restoring claim settings failed", **_keys(grant), error=str(error))
            return False
        except Exception:  # noqa: BLE001 - one claim's failure must not block the others
            _log.exception("restoring claim settings failed", **_keys(grant))
            return False
        return True

    def _set(self, grant: Grant, wanted: identity.Identity, applied: Applied) -> None:
        settings = wanted.settings
        if settings.gpu_wide == (None, None) or (same := (wanted.gpu, settings.gpu_wide)) in applied:
            return
        mode = self._hardware.mig_mode(wanted.gpu)
        if mode is not None and mode.current:
            _log.warning("claim settings wait: MIG mode is on", **_keys(grant), gpu=wanted.gpu, settings=settings.description)
            return
        gpu_settings.apply(self._hardware, wanted.gpu, settings)
        applied.add(same)
        _log.info("claim settings restored", **_keys(grant), gpu=wanted.gpu, settings=settings.description)

    def _is_prepared(self, grant: Grant) -> bool:
        """Return whether the claim is still as it was listed; it may have been unprepared, and prepared again, before the lock was acquired."""
        now = self._context.grant(grant.claim.uid, grant.device.name, grant.share_id)
        return now is not None and now.intent == grant.intent


class RestoreWorker:
    """The worker thread, from ``start`` to ``stop``; it sleeps until a GPU is queued. A failure is retried after ``pause`` seconds, then later.

    After every minute without work it starts MPS daemons that do not run; every tenth time it also removes the remains of others.
    """

    def __init__(self, restorer: Restorer, *, pause: float = _FIRST_PAUSE) -> None:
        self._restorer = restorer
        self._pause = pause
        self._patrols = 0
        self._condition = threading.Condition()
        self._queue: frozenset[port.GpuUuid] = frozenset()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="gpu-restore", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; returns within seconds even if a hardware call hangs."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()
        self._thread.join(_JOIN_SECONDS)

    def enqueue(self, gpus: Iterable[port.GpuUuid]) -> None:
        """Queue GPUs that may have lost their settings; returns at once."""
        with self._condition:
            self._queue |= frozenset(gpus)
            self._condition.notify_all()

    def _run(self) -> None:
        pauses = drakit.Backoff(self._pause, _LONGEST_PAUSE)
        failed: frozenset[port.GpuUuid] = frozenset()
        seconds = _PATROL_SECONDS
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._is_over, seconds)
                if self._is_over:
                    return
                gpus, self._queue = self._queue | failed, frozenset()
            failed = self._attempt(gpus)
            if not failed:
                pauses.reset()
            seconds = pauses.next() if failed else _PATROL_SECONDS

    def _attempt(self, gpus: frozenset[port.GpuUuid]) -> frozenset[port.GpuUuid]:
        """Restore the claims of these GPUs, or patrol where there are none; return the GPUs where that failed."""
        try:
            if not gpus:
                self._patrols += 1
                if self._patrols % _SWEEP_EVERY == 0:
                    self._restorer.sweep()
                gpus = self._restorer.gpus_missing_daemon()
            return self._restorer.restore(gpus)
        except drakit.DrakitError as error:
            _log.warning("listing prepared claims failed", error=str(error))
            return gpus
        except Exception:  # noqa: BLE001 - no error may end the worker
            _log.exception("listing prepared claims failed")
            return gpus


def _keys(grant: Grant) -> dict[str, object]:
    return {"claim": str(grant.claim), "claim_uid": grant.claim.uid, "device": grant.device.name}
