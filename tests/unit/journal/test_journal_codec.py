"""Nothing is changed by being remembered, and what cannot be read says where."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from drakit.core import lifecycle, quantity, records
from drakit.journal import codec
from fakes import journal_samples as samples
from unit.journal import strategies


def rows_of(entry: lifecycle.Entry) -> tuple[codec.ClaimRow, list[codec.GrantRow]]:
    return codec.claim_row(entry), [codec.grant_row(position, grant) for position, grant in enumerate(entry.grants)]


@settings(deadline=None)
@given(strategies.entries)
def test_every_entry_comes_back_as_it_was(entry: lifecycle.Entry) -> None:
    assert codec.entry(*rows_of(entry)) == entry


@settings(deadline=None)
@given(strategies.amounts)
def test_an_amount_is_exact_however_fine(amount: quantity.Quantity) -> None:
    text = codec.dump(codec.AMOUNTS.encode({"x": amount}))
    assert codec.read(codec.AMOUNTS, text, "amounts")["x"].nanos == amount.nanos


def test_json_columns_use_the_names_of_the_api() -> None:
    row = codec.grant_row(0, samples.rich_grant())
    snapshot, edits = json.loads(row.snapshot), json.loads(row.edits or "")
    assert snapshot["attributes"]["driverVersion"] == {"version": "580.95.5"}
    assert snapshot["capacity"]["memory"] == {"value": "4864Mi"}
    assert snapshot["consumesCounters"] == [{"counterSet": "gpu-0", "counters": {"memory": "4864Mi"}}]
    assert edits["deviceNodes"][1]["minor"] == 0
    assert edits["mounts"][1]["type"] == "tmpfs"


def test_keys_of_a_newer_version_are_ignored() -> None:
    row = codec.grant_row(0, samples.rich_grant())

    def newer(text: str | None) -> str:
        return json.dumps(json.loads(text or "{}") | {"fromTheFuture": {"x": [1]}})

    snapshot = json.loads(row.snapshot)
    snapshot["attributes"]["type"]["unit"] = "none"
    snapshot["taints"][0]["rule"] = "r"
    changed = row._replace(snapshot=newer(json.dumps(snapshot)), edits=newer(row.edits))
    claim = codec.claim_row(samples.entry(1))._replace(state="prepared")
    assert codec.entry(claim, [changed]).grants == (samples.frozen(samples.rich_grant()),)


def changed_snapshot(change: Callable[[dict[str, object]], object]) -> str:
    snapshot = json.loads(codec.grant_row(0, samples.rich_grant()).snapshot)
    change(snapshot)
    return json.dumps(snapshot)


@pytest.mark.parametrize(
    "column, text, message",
    [
        ("snapshot", "{", r"grants\[0\]\.snapshot: not JSON"),
        ("snapshot", "[]", r"grants\[0\]\.snapshot: must be an object, not a list"),
        ("snapshot", "{}", r"grants\[0\]\.snapshot\.name: is required"),
        ("snapshot", '{"name": 7}', r"snapshot\.name: must be text, not 7"),
        ("snapshot", '{"name": "other"}', r"grants\[0\]\.device: 'gpu-0-mig-1g' is not the snapshot's 'other'"),
        (
            "snapshot",
            changed_snapshot(lambda s: s.update(attributes={"a": {"colour": "red"}})),
            r"attributes\.a: must be an object with one of string, int,",
        ),
        (
            "snapshot",
            changed_snapshot(lambda s: s.update(attributes={"a": {"int": True}})),
            r"attributes\.a\.int: must be a whole number, not true",
        ),
        (
            "snapshot",
            changed_snapshot(lambda s: s.update(attributes={"a": {"ints": [1, True]}})),
            r"a\.ints\[1\]: must be a whole number, not true",
        ),
        ("snapshot", changed_snapshot(lambda s: s.update(attributes={"a": {"version": "1"}})), "not a semantic version"),
        (
            "snapshot",
            changed_snapshot(lambda s: s.update(capacity={"a": {"value": "many"}})),
            r"capacity\.a\.value: 'many' is not a quantity",
        ),
        ("snapshot", changed_snapshot(lambda s: s.update(capacity={"a": {}})), r"capacity\.a\.value: is required"),
        ("snapshot", changed_snapshot(lambda s: s.update(taints=[{"key": "a", "effect": "Never"}])), "Never"),
        ("snapshot", changed_snapshot(lambda s: s.update(taints=[{"key": "a", "effect": "None", "timeAdded": "noon"}])), "noon"),
        ("consumed", '{"a": [1]}', r"consumed\.a: must be an amount, not a list"),
        ("parameters", "[1]", r"parameters: must be an object, not a list"),
        ("intent", '{"a": NaN}', r"intent: not JSON \(NaN"),
        ("record", "", r"record: not JSON"),
        ("edits", '{"hooks": [{"hookName": "later"}]}', r'edits\.hooks\[0\]\.hookName: must be one of "prestart", .*, not "later"$'),
        ("edits", '{"env": {"A": 1}}', r"edits\.env\.A: must be text, not 1"),
        ("config_source", "FromNowhere", r"config_source: 'FromNowhere'"),
    ],
)
def test_a_column_edited_by_hand_names_claim_and_field(column: str, text: str, message: str) -> None:
    row = codec.GrantRow(**{**codec.grant_row(0, samples.rich_grant())._asdict(), column: text})
    claim = codec.claim_row(samples.entry(1))._replace(state="prepared")
    with pytest.raises(codec.UnreadableError, match=message) as caught:
        codec.entry(claim, [row])
    assert samples.uid(1) in str(caught.value)


def test_an_unknown_state_is_unreadable() -> None:
    with pytest.raises(codec.UnreadableError, match="state: 'paused'"):
        codec.entry(codec.claim_row(samples.entry(1))._replace(state="paused"), [])


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_record_that_json_cannot_express_is_refused_before_anything_is_written(number: float) -> None:
    grant = lifecycle.GrantEntry(request="r", pool="p", device=samples.rich_device(), record=records.freeze_record({"x": number}))
    with pytest.raises(ValueError, match="JSON"):
        codec.grant_row(0, grant)
