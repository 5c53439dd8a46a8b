"""What the hook's client and the driver say to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drakit_nic.attach import server

UID = "00000000-0000-4000-8000-000000000001"
SHARE = "00000000-0000-4000-8000-000000000002"
GOOD = ["attach 1", UID, "nic0", SHARE, "container-1", "sandbox-1", UID]


def message(**changes: str) -> bytes:
    lines = list(GOOD)
    for place, text in changes.items():
        lines[int(place[1:])] = text
    return "\n".join(lines).encode()


def test_a_request_is_read_as_it_was_written() -> None:
    request = server.decode(message())
    assert (request.claim, request.device, request.share_id) == (UID, "nic0", SHARE)
    assert (request.container, request.sandbox, request.pod) == ("container-1", "sandbox-1", UID)


def test_a_device_given_whole_has_no_share_and_some_runtimes_tell_of_no_sandbox() -> None:
    request = server.decode(message(_3="-", _5="", _6=""))
    assert (request.share_id, request.sandbox, request.pod) == (None, "", "")


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"ok",
        b"\xff\xfe",
        message() + b"\n",
        b"\n".join(message().split(b"\n")[:6]),
        message(_0="attach 2"),
        message(_1="../../etc"),
        message(_1=UID.upper().replace("0", "A")),
        message(_2="nic0/../x"),
        message(_2=""),
        message(_3=""),
        message(_3="--"),
        message(_4=""),
        message(_4="a b"),
        message(_4="a\0b"),
        message(_5="x" * 254),
        message(_6="\u00e9"),
    ],
    ids=repr,
)
def test_what_is_no_request_is_refused(wrong: bytes) -> None:
    with pytest.raises(server.MalformedError):
        server.decode(wrong)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: f"attach 1\n{text}".encode(errors="replace")))
def test_any_bytes_are_a_request_or_refused(content: bytes) -> None:
    try:
        request = server.decode(content)
    except server.MalformedError:
        return
    assert request.container


@given(st.text())
def test_a_refusal_is_one_line_within_its_bound(sentence: str) -> None:
    answer = server.refusal(sentence)
    assert answer.startswith(b"no ")
    assert len(answer) <= server.ANSWER_MAX
    assert b"\n" not in answer
    assert answer.decode(errors="ignore").isprintable()


def test_a_refusal_shows_control_characters_as_escapes() -> None:
    assert server.refusal("no \x1b[31mred\u202e") == rb"no no \u001b[31mred\u202e"
