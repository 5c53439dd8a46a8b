"""All intents can be read without reading the rest of the claims."""

import pathlib

import pytest

from drakit.core import device, errors, lifecycle
from drakit.journal import journal
from fakes import journal_samples


def grant(name: str) -> lifecycle.GrantEntry:
    return lifecycle.GrantEntry(request="gpu", pool="node-1", device=device.Device(name=name), intent={"slot": name})


def test_intents_are_sorted_by_claim_age_and_order_of_grants(tmp_path: pathlib.Path) -> None:
    with journal.Journal.open(tmp_path, driver="gpu.example.com", boot_id=journal_samples.BOOT) as memory:
        assert memory.intents() == ()
        for number, names in ((2, "ab"), (1, "c")):
            grants = tuple(grant(name) for name in names)
            memory.begin(lifecycle.Entry(claim=journal_samples.ref(number), state=lifecycle.State.ABSENT, grants=grants))
        assert [intent["slot"] for intent in memory.intents()] == ["a", "b", "c"]
        assert list(memory.intents()) == [one.intent for entry in memory.entries() for one in entry.grants]


def test_a_closed_journal_has_no_intents(tmp_path: pathlib.Path) -> None:
    memory = journal.Journal.open(tmp_path, driver="gpu.example.com", boot_id=journal_samples.BOOT)
    memory.close()
    with pytest.raises(errors.JournalError, match="closed"):
        memory.intents()
