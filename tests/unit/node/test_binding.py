"""Claims are seen to as they come: bound and said so, failed and said why, tried again, undone when nobody wants them."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import errors, lifecycle
from drakit.node import binding, engine, timing
from fakes import crash_node, fpga


class Bindings:
    """``ports.Bindings`` from a queue."""

    def __init__(self) -> None:
        self.news: queue.Queue[claims.BindingState | None] = queue.Queue()

    def follow(self, stop: threading.Event) -> Iterator[claims.BindingState | None]:
        yield None
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                yield self.news.get(timeout=0.01)


class Town:
    """A node on which claims are bound; ``told`` is what was stated, as (claim, device, condition type, reason)."""

    def __init__(self) -> None:
        self.node = crash_node.CrashNode()
        self.node.driver_type = fpga.FpgaDriver
        self.told: list[tuple[str, str, str, str]] = []
        self.bindings = Bindings()
        self._stop = threading.Event()
        self._thread = threading.Thread()

    @property
    def driver(self) -> fpga.FpgaDriver:
        assert isinstance(self.node.driver, fpga.FpgaDriver)
        return self.node.driver

    def start(self) -> engine.Engine:
        started = self.node.boot()
        self._stop = threading.Event()
        self.binding = binding.Binding(
            started,
            self.node.journal,
            self.node.claims,
            self.bindings,
            lambda ref, said: self.told.extend((ref.name, key[1], one.type, one.reason) for key, one in said.items()),
            timing.SystemClock(),
            ours=binding.OwnDevices(driver=fpga.FpgaDriver.name, pool=crash_node.POOL),
            first_pause=0.01,
        )
        self._thread = threading.Thread(target=self.binding.run, args=(self._stop,))
        self._thread.start()
        return started

    def stop(self) -> None:
        self._stop.set()
        self.driver.gate.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def claim(self, device: str = "chip-0", name: str = "c") -> claims.ClaimRef:
        ref = self.node.claim(device, name=name)
        claim = self.node.claims.fetch(ref)
        result = claims.AllocationResult(
            request="r0",
            driver=fpga.FpgaDriver.name,
            pool=crash_node.POOL,
            device=device,
            binding_conditions=(fpga.READY,),
            binding_failure_conditions=(fpga.BROKEN,),
        )
        return self.node.claims.put(claims.Claim(ref=claim.ref, results=(result,)))

    def see(self, ref: claims.ClaimRef, *, allocated: bool = True, waits: bool = True) -> None:
        self.bindings.news.put(claims.BindingState(claim=ref, allocated=allocated, waits=waits))

    def until(self, holds: Callable[[], object]) -> None:
        waiting = threading.Event()
        assert any(holds() or waiting.wait(0.02) for _ in range(1500))


@pytest.fixture
def town() -> Iterator[Town]:
    made = Town()
    yield made
    made.stop()


BOUND = ("c", "chip-0", fpga.READY, "Bound")


def test_a_claim_that_waits_is_bound_and_said_so(town: Town) -> None:
    town.start()
    town.see(town.claim())
    town.until(lambda: town.told)
    assert town.told == [BOUND]
    assert town.node.hardware.made == {"chip-0": 1}


def test_a_claim_of_somebody_else_is_left_alone(town: Town) -> None:
    town.start()
    town.see(town.node.claim("x", driver="other.example.com"), allocated=False, waits=False)
    ref = town.claim()
    town.see(ref, waits=False)
    town.see(town.claim("chip-1", "d"))
    town.until(lambda: town.told)
    assert town.node.journal.entry(ref.uid) is None


@pytest.mark.parametrize(
    "error,reason", [(errors.ConfigError("no such bitstream"), "Config"), (errors.DeviceGoneError("unplugged"), "DeviceGone")]
)
def test_a_final_error_is_the_failure_condition(town: Town, error: Exception, reason: str) -> None:
    town.start()
    town.driver.refusals = [error]
    town.see(town.claim())
    town.until(lambda: town.told)
    assert town.told == [("c", "chip-0", fpga.BROKEN, reason)]
    assert town.node.is_clean


def test_a_device_that_is_not_there_any_more_is_a_failure_too(town: Town) -> None:
    town.start()
    town.see(town.claim("chip-9"))
    town.until(lambda: town.told)
    assert town.told == [("c", "chip-9", fpga.BROKEN, "ClaimUnknownDevice")]


@pytest.mark.parametrize(
    "error", [errors.RetryError("half done", after=0.01), errors.HardwareError("flash", "timed out"), ValueError("a bug")]
)
def test_other_errors_are_tried_again(town: Town, error: Exception) -> None:
    town.start()
    town.driver.refusals = [error, error]
    town.see(town.claim())
    town.until(lambda: town.told)
    assert (town.told, town.driver.bound) == ([BOUND], 3)


def test_claims_are_bound_side_by_side(town: Town) -> None:
    town.start()
    town.driver.gate.clear()
    town.see(town.claim())
    town.see(town.claim("chip-1", "d"))
    town.until(lambda: len(town.node.journal.entries()) == 2)
    town.driver.gate.set()
    town.until(lambda: len(town.told) == 2)


def test_what_is_deallocated_while_it_is_bound_is_undone(town: Town) -> None:
    town.start()
    town.driver.gate.clear()
    ref = town.claim()
    town.see(ref)
    town.until(town.node.journal.entries)
    town.node.claims.put_unallocated(ref)
    town.see(ref, allocated=False, waits=False)
    town.driver.gate.set()
    town.until(lambda: town.node.is_clean and town.binding.is_idle)


def test_what_is_deleted_while_it_is_tried_again_is_undone_at_once(town: Town) -> None:
    town.start()
    town.driver.refusals = [errors.RetryError("come back in an hour", after=3600)]
    ref = town.claim()
    town.see(ref)
    town.until(lambda: town.driver.bound)
    town.node.claims.remove(ref)
    town.see(ref, allocated=False, waits=False)
    town.until(lambda: town.node.is_clean and town.binding.is_idle)


def test_a_start_goes_on_with_what_was_begun_and_undoes_what_is_not_wanted(town: Town) -> None:
    started = town.node.boot()
    wanted, deleted = town.claim(), town.claim("chip-1", "d")
    started.bind(wanted, town.node.caller)
    started.bind(deleted, town.node.caller)
    town.node.claims.remove(deleted)
    town.start()
    town.until(lambda: town.told and town.node.journal.entry(deleted.uid) is None)
    assert town.told == [BOUND]
    assert town.node.hardware.made == {"chip-0": 1}


def test_what_is_prepared_meanwhile_stays_prepared(town: Town) -> None:
    started = town.start()
    ref = town.claim()
    town.see(ref)
    town.until(lambda: town.told)
    assert started.prepare([ref], town.node.caller)[ref.uid].error == ""
    town.node.claims.remove(ref)
    town.see(ref, allocated=False, waits=False)
    town.until(lambda: town.bindings.news.empty() and town.binding.is_idle)
    entry = town.node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED


def test_an_api_server_that_is_away_is_asked_again(town: Town) -> None:
    town.start()
    ref = town.claim()
    town.node.claims.failures = [errors.ApiError("away"), errors.ApiError("away")]
    town.see(ref)
    town.until(lambda: town.told)
    assert town.told == [BOUND]
