"""Checks of the author's obligations (``drakit.core.driver``), one function for each.

A check receives a ``bench.Bench``. It raises AssertionError with the failure, or reports.NotApplicableError if it does not apply to the driver (no
shared device, no parameters given).
"""

import pathlib
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from drakit.cdi import host_nodes, spec
from drakit.core import advanced, edits, records
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.testing import bench as benches
from drakit.testing import (
    container_obligations,
    crashing,
    inventory_obligations,
    isolation_obligations,
    simulated_death,
    upgrade_obligations,
)
from drakit.testing import node as nodes
from drakit.testing import report as reports

WATCH_SECONDS = 1.0
ANSWERS_MAX = 20


def _prepares_and_unprepares(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            node.prepare(ref)
            node.unprepare(ref)
            benches.require(node.is_clean, f"{name}: unprepare left a journal entry or a CDI file")


def _prepares_twice_equally(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            first, entries = node.prepare(ref), node.entries
            benches.require(
                node.prepare(ref) == first and node.entries == entries,
                f"{name}: a second prepare returned different edits or another record",
            )
            node.unprepare(ref)


def _returns_existing_nodes(bench: benches.Bench) -> None:
    with bench.node() as node:
        with_nodes: list[edits.Edits] = []
        for group in bench.groups:
            ref = bench.claim(node, *group)
            node.prepare(ref)
            with_nodes += [grant.edits for entry in node.entries for grant in entry.grants if grant.edits and grant.edits.device_nodes]
            node.unprepare(ref)
        if not with_nodes:
            raise reports.NotApplicableError("prepare() returns no device node")
        for content in with_nodes:
            if problem := host_nodes.problem(content):
                raise reports.AdviceError(problem)


def _unprepares_twice(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref = bench.claim(node, *group)
            node.unprepare(ref)
            node.prepare(ref)
            node.unprepare(ref)
            node.unprepare(ref)


def _unprepares_after_a_restart(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            node.prepare(ref)
            node.restart()
            node.claims.remove(ref)
            node.unprepare(ref)
            benches.require(node.is_clean, f"{name}: unprepare in a new process left a journal entry or a CDI file")


def _unprepares_without_an_intent(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            _leave_damaged_files(node, ref)
            node.claims.remove(ref)
            node.lose_journal()
            node.unprepare(ref)
            benches.require(
                node.is_clean,
                f"{name}: unprepare of a claim without an intent left a journal entry or a CDI file after the journal was lost",
            )


def _leave_damaged_files(node: nodes.Node, ref: claims.ClaimRef) -> None:
    """Write CDI files of a prepared claim as if somebody had edited them, so that their content is not trusted."""
    for result in node.claims.fetch(ref).results:
        name = edits.CdiName(driver=result.driver, claim_uid=ref.uid, device=result.device, share_id=result.share_id)
        file, content = spec.file(name, edits.Edits(env={"DRAKIT": "1"}))
        (node.folder / "cdi" / file).write_bytes(content.replace(b'"env"', b'"edited"'))


def _restores_after_a_lost_journal(bench: benches.Bench) -> None:
    driver = bench.make()
    if type(driver).plan is not drivers.Driver.plan and not isinstance(driver, advanced.IntentRecovery):
        raise reports.AdviceError(
            "plan() chooses intents and there is no recall(), so the intents cannot be restored when the journal is lost; add recall()"
        )
    with bench.node() as node:
        offered, without_files = node.all_devices, list[str]()
        for group in bench.groups:
            name = ", ".join(group)
            is_shared = all(
                offered[device].allow_multiple_allocations and isolation_obligations.takes(offered[device], bench.consumed, times=2)
                for device in group
            )
            has_files = _restores_claims(bench, node, name, [bench.claim(node, *group) for _ in range(2 if is_shared else 1)])
            if not has_files:
                without_files.append(name)
                continue
            gone = bench.claim(node, *group)
            node.prepare(gone)
            node.claims.remove(gone)
            node.lose_journal()
            node.unprepare(gone)
            benches.require(
                node.is_clean, f"{name}: a claim that was deleted while the journal was lost left a journal entry or a CDI file"
            )
        if without_files and not isinstance(node.driver, advanced.Reclaimer):
            raise reports.AdviceError(
                f"{without_files[0]}: prepare() returns no edits, so no CDI file shows after a lost journal that the claim was prepared, and a claim "
                "that ended meanwhile is not undone; return an edit, such as a variable, or add drakit.Reclaimer"
            )


def _restores_claims(bench: benches.Bench, node: nodes.Node, name: str, refs: Sequence[claims.ClaimRef]) -> bool:
    """Check that restored claims keep their intents, hardware and container views. Return whether all of them have CDI files."""
    first, planned, before = [node.prepare(ref) for ref in refs], _intents(node), bench.hardware()
    has_files = all(view.cdi_ids for view in first)
    node.lose_journal()
    recalled = _intents(node)
    benches.require(recalled.keys() == planned.keys(), f"{name}: the claim was not restored; see the log")
    for uid, intents in planned.items():
        benches.require(
            recalled[uid] == intents,
            f"{name}: recall() returned {records.thaw(recalled[uid])}, plan() had returned {records.thaw(intents)}",
        )
    benches.require_as_it_was(bench, before, f"{name}: restoring the claim changed its hardware")
    benches.require([node.prepare(ref) for ref in refs] == first, f"{name}: the restored claim has different edits")
    for ref in refs:
        node.unprepare(ref)
    return has_files


def _intents(node: nodes.Node) -> Mapping[str, Sequence[records.Record]]:
    return {entry.claim.uid: [grant.intent for grant in entry.grants] for entry in node.entries}


def _undoes_a_bound_claim(bench: benches.Bench) -> None:
    with bench.node() as node:
        offered = node.all_devices
        conditional = [group for group in bench.groups if any(offered[name].binding_conditions for name in group)]
        if not (conditional and advanced.binds(node.driver)):
            raise reports.NotApplicableError("no device has binding conditions that bind() makes true")
        for group in conditional:
            ref, name = bench.claim(node, *group), ", ".join(group)
            before = bench.hardware()
            node.bind(ref)
            node.restart()
            node.bind(ref)
            node.deallocate(ref)
            benches.require(node.is_clean, f"{name}: a claim that was bound and never prepared left a journal entry or a CDI file")
            benches.require_as_it_was(bench, before, f"{name}: a claim that was bound and never prepared left changed hardware")
            again = bench.claim(node, *group)
            node.bind(again)
            node.prepare(again)
            node.unprepare(again)


def _accepts_parameters(bench: benches.Bench) -> None:
    if not bench.parameters:
        raise reports.NotApplicableError("no parameters were given")
    with bench.node() as node:
        for parameters in bench.parameters:
            ref = bench.claim(node, *bench.groups[0], parameters=parameters)
            node.prepare(ref)
            node.unprepare(ref)


def _rejects_invalid_parameters(bench: benches.Bench) -> None:
    unknown: Mapping[str, object] = {"apiVersion": "nobody.example.com/v1", "kind": "Nothing"}
    misspelt: list[Mapping[str, object]] = [{**parameters, "noSuchField": True} for parameters in bench.parameters]
    with bench.node() as node:
        for invalid in (unknown, *misspelt, *bench.refused):
            before = bench.hardware()
            answer = node.try_prepare(bench.claim(node, *bench.groups[0], parameters=invalid))
            benches.require(answer.error, f"{invalid} was accepted; reject unknown fields and kinds")
            benches.require(
                not answer.error.startswith("internal error"), f"{invalid} was not rejected but caused an internal error: {answer.error}"
            )
            benches.require(node.is_clean, f"{invalid} was rejected but left a journal entry or a CDI file")
            benches.require_as_it_was(bench, before, f"{invalid} was rejected but changed the hardware")


def _survives_a_crash_at_every_line(bench: benches.Bench) -> None:
    for group in bench.groups:
        _crash_with(bench, group)


def _crash_with(bench: benches.Bench, group: Sequence[str]) -> None:
    name = ", ".join(group)
    with tempfile.TemporaryDirectory(prefix="drakit-test-") as folder:
        node_folder = pathlib.Path(folder)
        with bench.node() as other:
            claim = other.claims.fetch(bench.claim(other, *group))

        def work() -> None:
            with bench.node(node_folder) as node:
                node.claims.put(claim)
                node.prepare(claim.ref)
                node.unprepare(claim.ref)

        before = bench.hardware()
        for point in crashing.crash_points(bench.make(), work, death=bench.death, every=bench.every):
            bench.crash_points += 1
            # The kubelet retries, or it only unprepares because the pod was deleted: alternate between the two.
            _after_the_crash(bench, node_folder, claim, f"{name}, {point}", retries=bench.crash_points % 2 == 0)
            benches.require_as_it_was(bench, before, f"{name}, {point}: the hardware differs from its state before")


def _after_the_crash(bench: benches.Bench, node_folder: pathlib.Path, claim: claims.Claim, where: str, *, retries: bool) -> None:
    with bench.node(node_folder) as node:
        node.claims.put(claim)
        try:
            if retries:
                node.prepare(claim.ref)
            node.unprepare(claim.ref)
        except nodes.RefusedError as error:
            raise AssertionError(f"{where}: the retry failed: {error}") from error
        benches.require(node.is_clean, f"{where}: a journal entry or a CDI file was left")


def _survives_a_caller_that_stops_waiting(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            before, name = bench.hardware(), ", ".join(group)
            for answers in range(ANSWERS_MAX):
                ref = bench.claim(node, *group)
                node.caller = leaving = _Leaving(answers)
                node.try_prepare(ref)
                node.caller = nodes.Waiting()
                if answers % 2 == 0:
                    node.prepare(ref)
                node.unprepare(ref)
                benches.require(node.is_clean, f"{name}: a prepare whose caller stopped waiting left a journal entry or a CDI file")
                benches.require_as_it_was(bench, before, f"{name}: a prepare whose caller stopped waiting changed the hardware")
                if not leaving.has_left:
                    break


class _Leaving(nodes.Waiting):
    """A caller that stops waiting after ``answers`` calls of ``is_waiting``."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self._left = answers
        self.has_left = False

    def is_waiting(self) -> bool:
        """Count the call, and return whether the caller still waits."""
        self.has_left = self.has_left or self._left == 0
        self._left -= 1
        return not self.has_left

    def seconds_left(self) -> float | None:
        """Return 1 while the caller waits, then 0."""
        return float(self.is_waiting())


def _rejects_an_unknown_device(bench: benches.Bench) -> None:
    with bench.node() as node:
        ref = node.claim("no-such-device")
        benches.require(node.try_prepare(ref).error, "a claim for a device that does not exist was prepared")
        node.unprepare(ref)


def _watch_returns(bench: benches.Bench) -> None:
    with bench.node() as node:
        if not drivers.watches(node.driver):
            raise reports.NotApplicableError("the driver has no watch()")
        failures: list[Exception] = []

        def watch() -> None:
            try:
                node.driver.watch(node.context)
            except Exception as error:  # noqa: BLE001 - raised below, in the thread of the check
                failures.append(error)

        watching = threading.Thread(target=watch, name="watch", daemon=True)
        watching.start()
        watching.join(WATCH_SECONDS)  # A watch that waits for events returns when the driver stops.
        node.signal_stop()
        watching.join(WATCH_SECONDS)
        benches.require(not watching.is_alive(), f"watch() did not return within {WATCH_SECONDS:g} s after context.stopping was set")
        if failures:
            raise failures[0]


def _stop_ends_what_start_started(bench: benches.Bench) -> None:
    process = simulated_death.Process()
    with bench.node() as node:
        node.restart()
    if left := process.survivors():
        raise AssertionError(f"{simulated_death.describe(left)} did not end: let stop() end what start() started, and wait for it")


ALL: Mapping[str, Callable[[benches.Bench], None]] = {
    "discover() returns devices, and the same ones twice": inventory_obligations.offers_something,
    "the inventory is within the API's limits": inventory_obligations.fits_the_api,
    "no device consumes more of a counter than its set has": inventory_obligations.consumes_what_counters_have,
    "prepare and then unprepare leave nothing behind": _prepares_and_unprepares,
    "a claim leaves the hardware of other claims as it was": isolation_obligations.keeps_the_hardware_of_others,
    "requests of one claim do not overwrite each other's hardware": isolation_obligations.keeps_requests_apart,
    "plan() gives no two claims the same intent": isolation_obligations.plans_different_intents,
    "no two claims get the same exclusive part": isolation_obligations.gives_each_part_once,
    "prepare of a prepared claim returns the same result": _prepares_twice_equally,
    "device nodes that prepare returns exist on this host": _returns_existing_nodes,
    "unprepare succeeds before prepare, and twice": _unprepares_twice,
    "unprepare succeeds in another process, without the claim": _unprepares_after_a_restart,
    "unprepare succeeds without an intent, after a lost journal": _unprepares_without_an_intent,
    "claims are restored after a lost journal, and can be undone": _restores_after_a_lost_journal,
    "claims of earlier releases keep their hardware and can be undone": upgrade_obligations.takes_over_earlier_claims,
    "two shares of one device do not affect each other": container_obligations.shares_one_device,
    "two shares in one container agree on every variable": container_obligations.shares_meet_in_a_container,
    "two devices in one container agree on every variable": container_obligations.devices_meet_in_a_container,
    "unprepare undoes a claim that was bound and never prepared": _undoes_a_bound_claim,
    "valid parameters are accepted": _accepts_parameters,
    "invalid parameters are rejected without side effects": _rejects_invalid_parameters,
    "a kubelet that stops waiting at any moment leaves nothing behind": _survives_a_caller_that_stops_waiting,
    "a claim for an unknown device is rejected": _rejects_an_unknown_device,
    "watch() returns before or when the driver stops": _watch_returns,
    "stop() ends every thread that start() started": _stop_ends_what_start_started,
    "a crash at any line, then a retry or unprepare, leaves nothing behind": _survives_a_crash_at_every_line,
}
