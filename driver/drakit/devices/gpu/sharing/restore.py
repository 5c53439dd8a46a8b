"""Giving prepared claims again what their GPU has lost: compute mode and time slice, which a reset or a change of MIG mode takes along, and their
MPS daemons where they do not run.

At a start all prepared claims are gone through. While the driver serves, the watch says which GPUs may have lost something, and a thread of its own
goes through their claims: it waits for a GPU's lock and for nvidia-smi, and the watch over the other GPUs must not. Under the lock a claim is looked
up once more, so a GPU is touched only while a prepared claim uses it. What is so already is left, and what fails is tried again.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable

from drakit.core import backoff, errors, records
from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.devices.gpu import identity, port
from drakit.devices.gpu.sharing import gpu_settings
from drakit.devices.gpu.sharing.mps import port as mps_port

_log = logging.getLogger(__name__)
_JOIN_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PATROL_SECONDS, _SWEEP_EVERY = 60.0, 10

Grant = drivers.Grant[object]
Intents = Callable[[], Iterable[records.Record]]
# What was set of which GPU in one going through: those who share a GPU want the same of it, and it is set once.
Settled = set[tuple[port.GpuUuid, tuple[port.TimeSlice | None, port.ComputeMode | None]]]


class Restorer:
    """Goes through prepared claims, in the thread of whoever calls."""

    def __init__(
        self, hardware: port.GpuPort, context: contexts.DriverContext, daemons: mps_port.Daemons, intents: Intents = tuple
    ) -> None:
        self._hardware = hardware
        self._context = context
        self._daemons = daemons
        self._intents = intents

    def restore(self, gpus: Collection[port.GpuUuid] | None) -> frozenset[port.GpuUuid]:
        """Give the prepared claims of these GPUs (None: of all) their own; the GPUs where that failed.

        A daemon that runs is left, whatever it is busy with: it is not even asked.
        """
        settled: Settled = set()
        failed: set[port.GpuUuid] = set()
        for grant in self._context.grants():
            gpu = grant.intent.get("gpu")
            if (gpus is None or gpu in gpus) and not self._restore(grant, settled):
                failed.add(port.GpuUuid(str(gpu)))
        return frozenset(failed)

    def gpus_missing_daemon(self) -> frozenset[port.GpuUuid]:
        """Return the GPUs on which a prepared claim's MPS daemon does not run."""
        found: set[port.GpuUuid] = set()
        boot = self._hardware.boot_id()
        for grant in self._context.grants():
            wanted = _readable(grant)
            is_shared = wanted is not None and wanted.boot == boot and "mps" in wanted.settings
            if wanted is not None and is_shared and not self._daemons.is_alive(wanted.holder):
                found.add(wanted.gpu)
        return frozenset(found)

    def sweep(self) -> None:
        """Remove what is left of MPS daemons whose claims are gone."""
        self._daemons.sweep(lambda: identity.holders(self._intents()))

    def _restore(self, grant: Grant, settled: Settled) -> bool:
        """Whether the claim has its own now, or needs nothing."""
        try:
            wanted = identity.Identity.from_record(grant.intent)
            settings = gpu_settings.Settings.from_record(wanted.settings)
            if settings != gpu_settings.Settings() and wanted.boot == self._hardware.boot_id():
                with self._context.hold(grant.device.lock_names):
                    if self._is_prepared(grant):
                        self._set(grant, wanted, settings, settled)
                        uuid = grant.record.get("uuid")
                        if settings.mps is not None and isinstance(uuid, str):
                            self._daemons.ensure(wanted.holder, uuid, settings.mps, claim=str(grant.claim))
        except errors.DrakitError as error:
            _log.warning("restoring claim settings failed", extra={**_keys(grant), "error": str(error)})
            return False
        except Exception:  # noqa: BLE001 - one claim's trouble must not keep the others from getting their own
            _log.exception("restoring claim settings failed", extra=_keys(grant))
            return False
        return True

    def _set(self, grant: Grant, wanted: identity.Identity, settings: gpu_settings.Settings, settled: Settled) -> None:
        if settings.gpu_wide == (None, None) or (same := (wanted.gpu, settings.gpu_wide)) in settled:
            return
        mode = self._hardware.mig_mode(wanted.gpu)
        if mode is not None and mode.current:
            _log.warning("claim settings wait: MIG mode is on", extra={**_keys(grant), "gpu": wanted.gpu, "settings": settings.description})
            return
        gpu_settings.apply(self._hardware, wanted.gpu, settings)
        settled.add(same)
        _log.info("claim settings restored", extra={**_keys(grant), "gpu": wanted.gpu, "settings": settings.description})

    def _is_prepared(self, grant: Grant) -> bool:
        """Whether the claim is as it was when it was listed; it may have gone, and come again, before the lock was had."""
        now = self._context.grant(grant.claim.uid, grant.device.name, grant.share_id)
        return now is not None and now.intent == grant.intent


class RestoreWorker:
    """The thread, from ``start`` to ``stop``; it sleeps until a GPU is due. What failed is due again after ``pause`` seconds, then after longer.

    Every ``patrol`` seconds without work it starts the MPS daemons that do not run, and at every tenth time removes what is left of others.
    """

    def __init__(self, restorer: Restorer, *, pause: float = _FIRST_PAUSE, patrol: float = _PATROL_SECONDS) -> None:
        self._restorer = restorer
        self._pause = pause
        self._patrol = patrol
        self._patrols = 0
        self._condition = threading.Condition()
        self._queue: frozenset[port.GpuUuid] = frozenset()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="gpu-restore", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; returns within seconds, also when a call to the hardware hangs."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()
        self._thread.join(_JOIN_SECONDS)

    def enqueue(self, gpus: Iterable[port.GpuUuid]) -> None:
        """These GPUs may have lost their settings; returns at once."""
        with self._condition:
            self._queue |= frozenset(gpus)
            self._condition.notify_all()

    def _run(self) -> None:
        pauses = backoff.Backoff(self._pause, _LONGEST_PAUSE)
        while (gpus := self._next()) is not None:
            failed = self._attempt(gpus)
            if not failed:
                pauses.reset()
                continue
            self._wait(pauses.next())
            self.enqueue(failed)

    def _attempt(self, gpus: frozenset[port.GpuUuid]) -> frozenset[port.GpuUuid]:
        try:
            if not gpus:
                self._patrols += 1
                if self._patrols % _SWEEP_EVERY == 0:
                    self._restorer.sweep()
                gpus = self._restorer.gpus_missing_daemon()
            return self._restorer.restore(gpus)
        except errors.DrakitError as error:
            _log.warning("listing prepared claims failed", extra={"error": str(error)})
            return gpus
        except Exception:  # noqa: BLE001 - whatever it was, settings must go on coming back
            _log.exception("listing prepared claims failed")
            return gpus

    def _next(self) -> frozenset[port.GpuUuid] | None:
        """The GPUs that are due, once there are any, or none when it is time for a patrol; None when it is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._is_over, self._patrol)
            found, self._queue = self._queue, frozenset()
            return None if self._is_over else found

    def _wait(self, seconds: float) -> None:
        """Until that time is over, another GPU is due, or all is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._is_over, seconds)


def _readable(grant: Grant) -> identity.Identity | None:
    try:
        return identity.Identity.from_record(grant.intent)
    except errors.JournalError:
        return None


def _keys(grant: Grant) -> dict[str, object]:
    return {"claim": str(grant.claim), "claim_uid": grant.claim.uid, "device": grant.device.name}
