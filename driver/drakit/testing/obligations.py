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
from drakit.testing import container_obligations, crashing, inventory_obligations, simulated_death
from drakit.testing import node as nodes
from drakit.testing import report as reports

WATCH_SECONDS = 1.0
MOST_ASKED = 20


def _prepares_and_unprepares(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            node.prepare(ref)
            node.unprepare(ref)
            benches.require(node.is_clean, f"{name}: unprepare left a journal entry or a CDI file")


def _prepares_twice_alike(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            first, entries = node.prepare(ref), node.entries
            benches.require(
                node.prepare(ref) == first and node.entries == entries, f"{name}: a second prepare gave other edits or another record"
            )
            node.unprepare(ref)


def _gives_nodes_that_exist(bench: benches.Bench) -> None:
    with bench.node() as node:
        given: list[edits.Edits] = []
        for group in bench.groups:
            ref = bench.claim(node, *group)
            node.prepare(ref)
            given += [grant.edits for entry in node.entries for grant in entry.grants if grant.edits and grant.edits.device_nodes]
            node.unprepare(ref)
        if not given:
            raise reports.NotApplicableError("prepare() returns no device node")
        for content in given:
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
            benches.require(node.is_clean, f"{name}: unprepare in a new process left something")


def _unprepares_without_an_intent(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            ref, name = bench.claim(node, *group), ", ".join(group)
            _leave_damaged_files(node, ref)
            node.claims.remove(ref)
            node.lose_journal()
            node.unprepare(ref)
            benches.require(node.is_clean, f"{name}: unprepare of a claim without an intent left something after the journal was lost")


def _leave_damaged_files(node: nodes.Node, ref: claims.ClaimRef) -> None:
    """Write CDI files of a prepared claim as if somebody had edited them, so that their content is not trusted."""
    for result in node.claims.fetch(ref).results:
        name = edits.CdiName(driver=result.driver, claim_uid=ref.uid, device=result.device, share_id=result.share_id)
        file, content = spec.file(name, edits.Edits(env={"DRAKIT": "1"}))
        (node.folder / "cdi" / file).write_bytes(content.replace(b'"env"', b'"edited"'))


def _remembers_after_a_lost_journal(bench: benches.Bench) -> None:
    driver = bench.make()
    if type(driver).plan is not drivers.Driver.plan and not isinstance(driver, advanced.IntentRecovery):
        raise reports.AdviceError(
            "plan() chooses and no recall() finds it again, so nothing knows what claims had once the journal is lost; add recall()"
        )
    with bench.node() as node:
        offered = node.all_devices
        for group in bench.groups:
            name = ", ".join(group)
            is_shared = all(
                offered[one].allow_multiple_allocations and container_obligations.takes_twice(offered[one], bench.consumed) for one in group
            )
            _remembers_claims(bench, node, name, [bench.claim(node, *group) for _ in range(2 if is_shared else 1)])
            gone = bench.claim(node, *group)
            node.prepare(gone)
            node.claims.remove(gone)
            node.lose_journal()
            node.unprepare(gone)
            benches.require(node.is_clean, f"{name}: a claim that was deleted while the journal was lost left something")


def _remembers_claims(bench: benches.Bench, node: nodes.Node, name: str, refs: Sequence[claims.ClaimRef]) -> None:
    """Check that restored claims keep their intents, hardware and container views."""
    first, planned, before = [node.prepare(ref) for ref in refs], _intents(node), bench.hardware()
    node.lose_journal()
    recalled = _intents(node)
    benches.require(recalled.keys() == planned.keys(), f"{name}: the claim was not remembered; the log says why")
    for uid, intents in planned.items():
        benches.require(
            recalled[uid] == intents, f"{name}: recall() gave {records.thaw(recalled[uid])}, plan() had chosen {records.thaw(intents)}"
        )
    benches.require_as_it_was(bench, before, f"{name}: remembering the claim changed its hardware")
    benches.require([node.prepare(ref) for ref in refs] == first, f"{name}: the remembered claim has other edits")
    for ref in refs:
        node.unprepare(ref)


def _intents(node: nodes.Node) -> Mapping[str, Sequence[records.Record]]:
    return {entry.claim.uid: [kept.intent for kept in entry.grants] for entry in node.entries}


def _undoes_what_was_bound(bench: benches.Bench) -> None:
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
            benches.require(node.is_clean, f"{name}: what was bound and never prepared left a journal entry")
            benches.require_as_it_was(bench, before, f"{name}: what was bound and never prepared is left behind")
            again = bench.claim(node, *group)
            node.bind(again)
            node.prepare(again)
            node.unprepare(again)


def _accepts_parameters(bench: benches.Bench) -> None:
    if not bench.parameters:
        raise reports.NotApplicableError("no parameters were given to try")
    with bench.node() as node:
        for one in bench.parameters:
            ref = bench.claim(node, *bench.groups[0], parameters=one)
            node.prepare(ref)
            node.unprepare(ref)


def _refuses_wrong_parameters(bench: benches.Bench) -> None:
    unknown: Mapping[str, object] = {"apiVersion": "nobody.example.com/v1", "kind": "Nothing"}
    misspelt: list[Mapping[str, object]] = [{**one, "noSuchField": True} for one in bench.parameters]
    with bench.node() as node:
        for wrong in (unknown, *misspelt, *bench.refused):
            before = bench.hardware()
            answer = node.try_prepare(bench.claim(node, *bench.groups[0], parameters=wrong))
            benches.require(answer.error, f"{wrong} was accepted; refuse what is not known")
            benches.require(not answer.error.startswith("internal error"), f"{wrong} is not refused but ends in a bug: {answer.error}")
            benches.require(node.is_clean, f"{wrong} was refused and yet left a journal entry or a CDI file")
            benches.require_as_it_was(bench, before, f"{wrong} was refused and yet left something behind")


def _survives_a_crash_at_every_line(bench: benches.Bench) -> None:
    for group in bench.groups:
        _crash_with(bench, group)


def _crash_with(bench: benches.Bench, group: Sequence[str]) -> None:
    name = ", ".join(group)
    with tempfile.TemporaryDirectory(prefix="drakit-test-") as folder:
        place = pathlib.Path(folder)
        with bench.node() as other:
            claim = other.claims.fetch(bench.claim(other, *group))

        def work() -> None:
            with bench.node(place) as node:
                node.claims.put(claim)
                node.prepare(claim.ref)
                node.unprepare(claim.ref)

        before = bench.hardware()
        for point in crashing.crash_points(bench.make(), work, death=bench.death, every=bench.every):
            bench.crash_points += 1
            # The kubelet retries, or it only unprepares because the pod was deleted: alternate between the two.
            _after_the_crash(bench, place, claim, f"{name}, {point}", retries=bench.crash_points % 2 == 0)
            benches.require_as_it_was(bench, before, f"{name}, {point}: the hardware is not as it was before")


def _after_the_crash(bench: benches.Bench, place: pathlib.Path, claim: claims.Claim, where: str, *, retries: bool) -> None:
    with bench.node(place) as node:
        node.claims.put(claim)
        try:
            if retries:
                node.prepare(claim.ref)
            node.unprepare(claim.ref)
        except nodes.RefusedError as error:
            raise AssertionError(f"{where}: the retry failed: {error}") from error
        benches.require(node.is_clean, f"{where}: something was left in the journal or the CDI directory")


def _survives_a_caller_that_leaves(bench: benches.Bench) -> None:
    with bench.node() as node:
        for group in bench.groups:
            before, name = bench.hardware(), ", ".join(group)
            for asked in range(MOST_ASKED):
                ref = bench.claim(node, *group)
                node.caller = leaving = _Leaving(asked)
                node.try_prepare(ref)
                node.caller = nodes.Waiting()
                if asked % 2 == 0:
                    node.prepare(ref)
                node.unprepare(ref)
                benches.require(node.is_clean, f"{name}: a prepare for which nobody waited left a journal entry or a CDI file")
                benches.require_as_it_was(bench, before, f"{name}: a prepare for which nobody waited left something behind")
                if not leaving.has_left:
                    break


class _Leaving(nodes.Waiting):
    """A caller that stops waiting after ``asked`` calls of ``is_waiting``."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self._left = asked
        self.has_left = False

    def is_waiting(self) -> bool:
        """Count the call, and return whether the caller still waits."""
        self.has_left = self.has_left or self._left == 0
        self._left -= 1
        return not self.has_left

    def seconds_left(self) -> float | None:
        """Return 1 while the caller waits, then 0."""
        return float(self.is_waiting())


def _tells_when_a_device_is_gone(bench: benches.Bench) -> None:
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


def _stop_ends_what_start_began(bench: benches.Bench) -> None:
    process = simulated_death.Process()
    with bench.node() as node:
        node.restart()
    if left := process.survivors():
        raise AssertionError(f"{simulated_death.describe(left)} did not end: let stop() end what start() began, and wait for it")


ALL: Mapping[str, Callable[[benches.Bench], None]] = {
    "discover() offers devices, and the same twice": inventory_obligations.offers_something,
    "what is offered keeps the API's limits": inventory_obligations.fits_the_api,
    "no device draws more of a counter than there is": inventory_obligations.draws_what_counters_have,
    "prepare, then unprepare, leaves nothing": _prepares_and_unprepares,
    "prepare of a prepared claim answers the same": _prepares_twice_alike,
    "device nodes that prepare returns are on this host": _gives_nodes_that_exist,
    "unprepare succeeds before prepare, and twice": _unprepares_twice,
    "unprepare works in another process, without the claim": _unprepares_after_a_restart,
    "unprepare succeeds without an intent, after a lost journal": _unprepares_without_an_intent,
    "claims are restored after a lost journal, and can be undone": _remembers_after_a_lost_journal,
    "two shares of one device do not touch each other": container_obligations.shares_one_device,
    "two shares in one container give each variable one value": container_obligations.shares_meet_in_a_container,
    "two devices in one container give each variable one value": container_obligations.devices_meet_in_a_container,
    "a bound claim that is never prepared is undone": _undoes_what_was_bound,
    "parameters are accepted": _accepts_parameters,
    "wrong parameters are refused, and nothing is touched": _refuses_wrong_parameters,
    "a kubelet that stops waiting, at any moment, leaves nothing": _survives_a_caller_that_leaves,
    "a device that is not offered is refused": _tells_when_a_device_is_gone,
    "watch() returns, at the latest when the driver stops": _watch_returns,
    "stop() ends every thread that start() began": _stop_ends_what_start_began,
    "a crash at every line, then a retry or the end, leaves nothing": _survives_a_crash_at_every_line,
}
