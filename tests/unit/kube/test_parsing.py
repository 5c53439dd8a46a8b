"""What the API server's JSON costs to parse, however hostile it is."""

import time

import pytest

from drakit.core import records

HOSTILE_NUMBER = b"1" * 5000  # what sends a document the slow way


def seconds_of(document: bytes) -> float:
    """Return the least processor time of three tries; others on the machine cost none of it."""
    return min(_try(document) for _ in range(3))


def _try(document: bytes) -> float:
    start = time.thread_time()
    with pytest.raises(ValueError, match=r"Unterminated string|Invalid .escape"):
        records.parse_limited(document)
    return time.thread_time() - start


@pytest.mark.parametrize("end", [b"", b"\\", b"\\\n"], ids=["open", "backslash", "newline"])
def test_a_string_without_an_end_costs_time_in_proportion_to_its_length(end: bytes) -> None:
    before = seconds_of(b"[" + HOSTILE_NUMBER + b',"' + b'\\"' * (2 << 10) + end)
    for length in (32 << 10, 512 << 10):
        took = seconds_of(b"[" + HOSTILE_NUMBER + b',"' + b'\\"' * length + end)
        # 16 times the length: 16 times the time where steps are in proportion, 256 times where they grow with the square.
        assert took < 64 * before
        before = took


def test_brackets_and_escaped_quotes_within_strings_are_no_depth() -> None:
    inner = '\\"[[[' * 200 + "\\n"
    document = f'[{HOSTILE_NUMBER.decode()}, "{inner}", ["{inner}"]]'
    text = '"[[[' * 200 + "\n"
    assert records.parse_limited(document.encode()) == [HOSTILE_NUMBER.decode(), text, [text]]
