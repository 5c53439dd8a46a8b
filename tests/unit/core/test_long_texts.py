"""Values from outside of any length: errors, answers, events and conditions stay short, and mark what they lack."""

import datetime

import pytest

from drakit import texts
from drakit._proto import dra_v1_pb2 as wire
from drakit.core import context, errors
from drakit.kube import claim_codec, events
from drakit.kubelet import codec
from drakit.node import device_status
from fakes import claim_samples, fake_transport
from unit.node import test_status_reporter

LONG = "x" * 3_900_000


@pytest.mark.parametrize("length", [100, 101, 200, 3_900_000])
def test_a_cut_text_has_its_start_its_end_and_the_number_of_those_cut(length: int) -> None:
    text = "a" * (length // 2) + "b" * (length - length // 2)
    found = texts.cut(text, 100)
    assert len(found) <= 100
    if length > 100:
        start, mark, end = found.split("...")
        assert (start.strip("a"), end.strip("b")) == ("", "")
        assert mark == f"[{length - len(start) - len(end)} characters cut]"


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError(LONG, field=LONG),
        errors.InventoryError(LONG, field=LONG).with_prefix(LONG),
        errors.ClaimError(errors.ClaimFault.MALFORMED, LONG, field=LONG),
        errors.RetryError(LONG, after=1),
        errors.HardwareError(LONG, LONG),
        errors.ApiError(LONG),
        errors.SettingsError(LONG, key=LONG),
        errors.DrakitError(LONG),
    ],
)
def test_the_message_of_every_error_is_short(error: errors.DrakitError) -> None:
    assert len(str(error)) <= texts.TEXT_MAX
    assert "characters cut]" in str(error)
    assert len(getattr(error, "reason", "")) <= texts.TEXT_MAX


def test_a_long_value_of_a_claim_leaves_the_field_and_the_expectation() -> None:
    claim = claim_samples.allocated()
    claim["status"]["allocation"]["devices"]["results"][1]["shareID"] = LONG
    with pytest.raises(errors.ClaimError) as raised:
        claim_codec.decode(claim, claim_samples.REF)
    message = str(raised.value)
    assert message.startswith("status.allocation.devices.results[1].shareID: 'xxx")
    assert message.endswith("is not a lower-case UUID")
    assert len(message) <= texts.TEXT_MAX


@pytest.mark.parametrize(
    "sent",
    [
        wire.Claim(uid=LONG, namespace="n", name="c"),
        wire.Claim(uid=str(claim_samples.UID), namespace=LONG, name="c"),
        wire.Claim(uid=str(claim_samples.UID), namespace="n", name=LONG),
    ],
)
def test_the_kubelets_answer_for_a_long_value_ends_with_the_expectation(sent: wire.Claim) -> None:
    request = codec.decode_claims([sent])
    (answer,) = codec.encode_prepared(request, {}).claims.values()
    assert len(answer.error) <= codec.ERROR_MAX
    assert answer.error.rpartition("...")[2].rpartition("' is not a ")[2] in ("lower-case UUID", "DNS label", "DNS subdomain")


def test_a_condition_and_an_event_with_a_long_message_mark_the_cut() -> None:
    setup = test_status_reporter.ReporterSetup()
    setup.reports.failed(test_status_reporter.REF, errors.DeviceGoneError(f"{LONG} is gone"))
    setup.send()
    (device,) = setup.statuses.standing[test_status_reporter.REF.uid].values()
    (condition,) = device.conditions
    assert condition.message.endswith("is gone")
    assert len(condition.message) <= device_status.MESSAGE_MAX
    server = fake_transport.FakeTransport(lambda request: claim_samples.allocated() if request.method == "GET" else {})
    event = context.Event(reason="Throttled", message=f"{'é' * 100_000} is hot")
    recorder = events.ApiEvents(server, component="gpu.drakit.dev", host="node-1")
    recorder.record(claim_samples.REF, event, 1, datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC))
    body = server.requests[-1].body
    assert body is not None
    message = str(body["message"])
    assert message.endswith("is hot")
    assert "characters cut]" in message
    assert len(message.encode()) <= events.MESSAGE_MAX
