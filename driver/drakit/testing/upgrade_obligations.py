"""What a release of a driver owes to the claims that earlier releases prepared: it reads their intents and records (``drakit.RecordUpgrade``).

An upgrade that returns nonsense raises nothing: a driver that finds no part in an intent often does nothing. So the checks compare what the container
had with what it gets, and the hardware with that of a new claim.
"""

import pathlib
from collections.abc import Sequence

from drakit.core import edits, errors, lifecycle, record_versions
from drakit.testing import bench as benches
from drakit.testing import earlier_claims, parts
from drakit.testing import node as nodes
from drakit.testing import report as reports

_NEAR_MOST = 4
_HOW = "keep a claim of that release, which its journal show UID -o json prints, and give the file with earlier=[...]"


def takes_over_earlier_claims(bench: benches.Bench) -> None:
    """Require that claims of earlier releases keep their hardware, stand beside new claims, and can be undone."""
    current = record_versions.of(bench.make())
    recorded = {file: _entry(file) for file in bench.earlier}
    advice: list[str] = []
    for file, entry in recorded.items():
        with bench.node() as node:
            before = bench.hardware()
            changes = _new_claim_changes_hardware(bench, node, entry)
            advice += [_take_over(bench, node, file, entry, changes_hardware=changes)]
            benches.require_as_it_was(bench, before, f"{file.name}: unprepare left changed hardware")
    covered = {_version(entry) for entry in recorded.values()}
    if missing := [version for version in range(record_versions.FIRST, current) if version not in covered]:
        raise reports.AdviceError(f"records_version is {current}, and no claim of version {missing[0]} is tried; {_HOW}")
    if changed := list(filter(None, advice)):
        raise reports.AdviceError(changed[0])
    if not recorded:
        raise reports.NotApplicableError("intents and records have their first form, and earlier= has no claim of an earlier release")


def _entry(file: pathlib.Path) -> lifecycle.Entry:
    try:
        return earlier_claims.read(file, pool=nodes.POOL)
    except errors.ConfigError as error:
        raise AssertionError(str(error)) from error


def _version(entry: lifecycle.Entry) -> object:
    """Return the version of an entry's intents and records. An empty one has none."""
    kept = [record for grant in entry.grants for record in (grant.intent, grant.record) if record]
    return next((record.get(record_versions.KEY, record_versions.FIRST) for record in kept), record_versions.FIRST)


def _new_claim_changes_hardware(bench: benches.Bench, node: nodes.Node, entry: lifecycle.Entry) -> bool:
    names = [grant.device.name for grant in entry.grants]
    if gone := [name for name in names if name not in node.all_devices]:
        raise AssertionError(
            f"the recorded device {gone[0]} is not on this hardware; let the tests' hardware have it, or record another claim"
        )
    before, ref = bench.hardware(), bench.claim(node, *names)
    node.prepare(ref)
    changes = bench.hardware() != before
    node.unprepare(ref)
    return changes


def _take_over(bench: benches.Bench, node: nodes.Node, file: pathlib.Path, entry: lifecycle.Entry, *, changes_hardware: bool) -> str:
    before, ref = bench.hardware(), node.adopt(file)
    node.restart()
    view = node.prepare(ref)
    advice = _require_the_same_parts(bench, file, [grant.edits for grant in entry.grants if grant.edits], view)
    with_it = bench.hardware()
    benches.require(
        with_it != before or not changes_hardware,
        f"{file.name}: prepare of the claim changed no hardware, as prepare of a new claim does; what does the upgrade return?",
    )
    benches.require(
        node.prepare(ref) == view, f"{file.name}: a second prepare returned different edits; an upgrade is called at every read"
    )
    benches.require_as_it_was(bench, with_it, f"{file.name}: a second prepare changed the hardware; an upgrade is called at every read")
    _stand_beside_new_claims(bench, node, file, view)
    node.restart()
    node.claims.remove(ref)
    node.unprepare(ref)
    benches.require(node.is_clean, f"{file.name}: unprepare left a journal entry or a CDI file")
    return advice


def _require_the_same_parts(bench: benches.Bench, file: pathlib.Path, had: Sequence[edits.Edits], view: nodes.ContainerView) -> str:
    """Raise AssertionError for a lost part, and return what else changed for the container, which may be meant."""
    device_nodes = [node.path for content in had for node in content.device_nodes]
    variables = {name: value for content in had for name, value in content.env.items()}
    first = {part.name for part in parts.of_container(bench.exclusive, variables, device_nodes)} | set(device_nodes)
    second = {part.name for part in parts.of_container(bench.exclusive, view.env, view.device_nodes)} | set(view.device_nodes)
    if lost := sorted(first - second):
        raise AssertionError(f"{file.name}: the claim's container had {lost[0]}, and prepare returns {', '.join(sorted(second)) or 'none'}")
    changed = (name for name in sorted(variables) if name in view.env and view.env[name] != variables[name])
    return next(
        (
            f"{file.name}: the claim's container has {name}={variables[name]}, and prepare returns {name}={view.env[name]}"
            for name in changed
        ),
        "",
    )


def _stand_beside_new_claims(bench: benches.Bench, node: nodes.Node, file: pathlib.Path, view: nodes.ContainerView) -> None:
    """Prepare and unprepare new claims for devices with the same locks, and compare hardware and parts."""
    held = {lock for entry in node.entries for grant in entry.grants for lock in grant.device.lock_names}
    shared = {grant.device.name for entry in node.entries for grant in entry.grants if grant.device.allow_multiple_allocations}
    mine = list(parts.of_container(bench.exclusive, view.env, view.device_nodes))
    busy = {grant.device.name for entry in node.entries for grant in entry.grants} - shared
    near = [device for device in node.all_devices.values() if held & set(device.lock_names) and device.name not in busy]
    for device in near[:_NEAR_MOST]:
        before, ref = bench.hardware(), bench.claim(node, device.name)
        answer = node.try_prepare(ref)
        if not answer.error:
            new = node.container(tuple(cdi_id for prepared in answer.devices for cdi_id in prepared.cdi_ids))
            if twice := parts.given_twice(mine, list(parts.of_container(bench.exclusive, new.env, new.device_nodes))):
                node.unprepare(ref)
                raise AssertionError(f"{file.name}: {twice[1]} of a new claim for {device.name} is the part of the claim, {twice[0]}")
        elif answer.error.startswith("internal error"):
            raise AssertionError(f"{file.name}: a new claim for {device.name} caused an internal error beside the claim: {answer.error}")
        node.unprepare(ref)
        benches.require_as_it_was(
            bench, before, f"{file.name}: prepare and unprepare of a new claim for {device.name} changed the claim's hardware"
        )
