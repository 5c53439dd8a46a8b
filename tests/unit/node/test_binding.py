"""Claims are seen to as they come: bound and said so, failed and said why, tried again, undone when nobody wants them."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import errors, lifecycle
from drakit.node import binding, engine, timing
from fakes import crash_node, fpga, waits


class Bindings:
    """``ports.Bindings`` from a queue."""

    def __init__(self) -> None:
        self.news: queue.Queue[claims.BindingState | None] = queue.Queue()

    def follow(self, stop: threading.Event) -> Iterator[claims.BindingState | None]:
        yield None
        while not stop.is_set():
            with contextlib.suppress(queue.Empty):
                yield self.news.get(timeout=0.01)


class BindingNode:
    """A node on which claims are bound; ``stated`` has each condition, as (claim, device, condition type, reason)."""

    def __init__(self) -> None:
        self.node = crash_node.CrashNode()
        self.node.driver_type = fpga.FpgaDriver
        self.stated: list[tuple[str, str, str, str]] = []
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
            lambda ref, said: self.stated.extend((ref.name, key[1], one.type, one.reason) for key, one in said.items()),
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
            self._thread.join(waits.SECONDS)

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
        assert waits.eventually(holds)


@pytest.fixture
def binding_node() -> Iterator[BindingNode]:
    made = BindingNode()
    yield made
    made.stop()


BOUND = ("c", "chip-0", fpga.READY, "Bound")


def test_a_waiting_claim_is_bound_with_its_condition(binding_node: BindingNode) -> None:
    binding_node.start()
    binding_node.see(binding_node.claim())
    binding_node.until(lambda: binding_node.stated)
    assert binding_node.stated == [BOUND]
    assert binding_node.node.hardware.made == {"chip-0": 1}


def test_a_claim_of_another_driver_is_not_bound(binding_node: BindingNode) -> None:
    binding_node.start()
    binding_node.see(binding_node.node.claim("x", driver="other.example.com"), allocated=False, waits=False)
    ref = binding_node.claim()
    binding_node.see(ref, waits=False)
    binding_node.see(binding_node.claim("chip-1", "d"))
    binding_node.until(lambda: binding_node.stated)
    assert binding_node.node.journal.entry(ref.uid) is None


@pytest.mark.parametrize(
    "error,reason", [(errors.ConfigError("no such bitstream"), "Config"), (errors.DeviceGoneError("unplugged"), "DeviceGone")]
)
def test_a_final_error_is_the_failure_condition(binding_node: BindingNode, error: Exception, reason: str) -> None:
    binding_node.start()
    binding_node.driver.refusals = [error]
    binding_node.see(binding_node.claim())
    binding_node.until(lambda: binding_node.stated)
    assert binding_node.stated == [("c", "chip-0", fpga.BROKEN, reason)]
    assert binding_node.node.is_clean


def test_a_device_that_is_gone_is_a_binding_failure(binding_node: BindingNode) -> None:
    binding_node.start()
    binding_node.see(binding_node.claim("chip-9"))
    binding_node.until(lambda: binding_node.stated)
    assert binding_node.stated == [("c", "chip-9", fpga.BROKEN, "ClaimUnknownDevice")]


@pytest.mark.parametrize(
    "error", [errors.RetryError("half done", after=0.01), errors.HardwareError("flash", "timed out"), ValueError("a bug")]
)
def test_other_errors_are_retried(binding_node: BindingNode, error: Exception) -> None:
    binding_node.start()
    binding_node.driver.refusals = [error, error]
    binding_node.see(binding_node.claim())
    binding_node.until(lambda: binding_node.stated)
    assert (binding_node.stated, binding_node.driver.bound) == ([BOUND], 3)


def test_claims_are_bound_side_by_side(binding_node: BindingNode) -> None:
    binding_node.start()
    binding_node.driver.gate.clear()
    binding_node.see(binding_node.claim())
    binding_node.see(binding_node.claim("chip-1", "d"))
    binding_node.until(lambda: len(binding_node.node.journal.entries()) == 2)
    binding_node.driver.gate.set()
    binding_node.until(lambda: len(binding_node.stated) == 2)


def test_a_claim_deallocated_during_its_binding_is_undone(binding_node: BindingNode) -> None:
    binding_node.start()
    binding_node.driver.gate.clear()
    ref = binding_node.claim()
    binding_node.see(ref)
    binding_node.until(binding_node.node.journal.entries)
    binding_node.node.claims.put_unallocated(ref)
    binding_node.see(ref, allocated=False, waits=False)
    binding_node.driver.gate.set()
    binding_node.until(lambda: binding_node.node.is_clean and binding_node.binding.is_idle)


def test_a_claim_deleted_between_retries_is_undone_at_once(binding_node: BindingNode) -> None:
    binding_node.start()
    binding_node.driver.refusals = [errors.RetryError("come back in an hour", after=3600)]
    ref = binding_node.claim()
    binding_node.see(ref)
    binding_node.until(lambda: binding_node.driver.bound)
    binding_node.node.claims.remove(ref)
    binding_node.see(ref, allocated=False, waits=False)
    binding_node.until(lambda: binding_node.node.is_clean and binding_node.binding.is_idle)


def test_a_start_continues_wanted_bindings_and_undoes_the_others(binding_node: BindingNode) -> None:
    started = binding_node.node.boot()
    wanted, deleted = binding_node.claim(), binding_node.claim("chip-1", "d")
    started.bind(wanted, binding_node.node.caller)
    started.bind(deleted, binding_node.node.caller)
    binding_node.node.claims.remove(deleted)
    binding_node.start()
    binding_node.until(lambda: binding_node.stated and binding_node.node.journal.entry(deleted.uid) is None)
    assert binding_node.stated == [BOUND]
    assert binding_node.node.hardware.made == {"chip-0": 1}


def test_a_claim_prepared_during_its_binding_stays_prepared(binding_node: BindingNode) -> None:
    started = binding_node.start()
    ref = binding_node.claim()
    binding_node.see(ref)
    binding_node.until(lambda: binding_node.stated)
    assert started.prepare([ref], binding_node.node.caller)[ref.uid].error == ""
    binding_node.node.claims.remove(ref)
    binding_node.see(ref, allocated=False, waits=False)
    binding_node.until(lambda: binding_node.bindings.news.empty() and binding_node.binding.is_idle)
    entry = binding_node.node.journal.entry(ref.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.PREPARED


def test_an_unreachable_api_server_is_retried(binding_node: BindingNode) -> None:
    binding_node.start()
    ref = binding_node.claim()
    binding_node.node.claims.failures = [errors.ApiError("away"), errors.ApiError("away")]
    binding_node.see(ref)
    binding_node.until(lambda: binding_node.stated)
    assert binding_node.stated == [BOUND]
