import pytest

from drakit_cluster.objects import capacity, quantity
from drakit_cluster.objects.json_types import Object

STEPPED: Object = {"default": "1G", "validRange": {"min": "1G", "max": "8G", "step": "500M"}}
LISTED: Object = {"default": "1", "validValues": ["1", "2", "4"]}


@pytest.mark.parametrize(
    "requested, policy, consumed",
    [
        (None, None, "10G"),
        (None, STEPPED, "1G"),
        (None, {"validRange": {"min": "1G"}}, "10G"),
        ("3G", None, "3G"),
        ("200M", STEPPED, "1G"),
        ("1100M", STEPPED, "1500M"),
        ("1500M", STEPPED, "1500M"),
        ("1100M", {"default": "1G", "validRange": {"min": "1G"}}, "1100M"),
        ("3", LISTED, "4"),
        ("5", LISTED, "5"),
        ("100m", {"default": "0", "validRange": {"min": "0", "step": "1"}}, "1"),
        (None, {"default": "0", "validValues": ["0"]}, "0"),
    ],
)
def test_a_request_consumes_its_amount_rounded_by_the_policy(requested: str | None, policy: Object | None, consumed: str) -> None:
    published = capacity.decode_capacity({"value": "10G", "requestPolicy": policy})
    amount = None if requested is None else quantity.parse(requested)
    assert capacity.consumed(amount, published) == quantity.parse(consumed)


TENTHS: Object = {"default": "100m", "validRange": {"min": "100m", "max": "1", "step": "100m"}}


@pytest.mark.parametrize(
    "requested, policy, in_units, in_thousandths",
    [
        ("250m", TENTHS, "1", "300m"),
        ("50m", TENTHS, "100m", "100m"),
        ("300m", TENTHS, "1", "300m"),
        ("1500m", {"default": "1", "validRange": {"min": "1", "step": "1"}}, "2", "2"),
        ("1100m", {"default": "1", "validRange": {"min": "1", "step": "500u"}}, "2", "2"),
        ("1100m", {"default": "1", "validRange": {"min": "10P", "step": "100m"}}, "10P", "10P"),
    ],
)
def test_a_range_counts_in_thousandths_only_with_the_gate(requested: str, policy: Object, in_units: str, in_thousandths: str) -> None:
    for fractional, consumed in ((False, in_units), (True, in_thousandths)):
        published = capacity.decode_capacity({"value": "1", "requestPolicy": policy}, fractional=fractional)
        amount = capacity.consumed(quantity.parse(requested), published)
        assert str(amount) == consumed
        assert not capacity.violates(amount, capacity.decode_policy(policy | {"validRange": {"min": "0"}}, fractional=fractional))


def test_an_amount_off_a_fractional_step_is_forbidden_only_with_the_gate() -> None:
    assert capacity.violates(quantity.parse("250m"), capacity.decode_policy(TENTHS, fractional=True))
    assert capacity.violates(quantity.parse("250500u"), capacity.decode_policy(TENTHS, fractional=True))
    assert not capacity.violates(quantity.parse("250m"), capacity.decode_policy(TENTHS))


def test_a_request_finer_than_a_thousandth_cannot_be_rounded() -> None:
    published = capacity.decode_capacity({"value": "1", "requestPolicy": TENTHS}, fractional=True)
    with pytest.raises(capacity.NotRepresentableError, match="250500u is not a whole number of thousandths"):
        capacity.consumed(quantity.parse("250500u"), published)


@pytest.mark.parametrize(
    "amount, policy, violates",
    [
        ("9G", STEPPED, True),
        ("8G", STEPPED, False),
        ("1100M", STEPPED, True),
        ("5", LISTED, True),
        ("2000m", LISTED, False),
        ("5", {"default": "5", "validValues": ["1"]}, False),
        ("5", None, False),
    ],
)
def test_a_policy_forbids_what_is_beyond_it(amount: str, policy: Object | None, *, violates: bool) -> None:
    assert capacity.violates(quantity.parse(amount), capacity.decode_policy(policy)) is violates


def test_shares_fit_until_their_sum_is_the_value() -> None:
    published = capacity.decode_capacities({"bandwidth": {"value": "10G"}, "slots": {"value": "2", "requestPolicy": {"default": "1"}}})
    half = capacity.decode_amounts({"bandwidth": "5G"})
    once = capacity.decode_amounts({"bandwidth": "5G", "slots": "1"})
    assert capacity.fits(half, published)
    assert capacity.fits(half, published, once)
    assert not capacity.fits(half, published, once, once)
    assert not capacity.fits(capacity.decode_amounts({"bandwith": "1"}), published), "a capacity the device lacks"


@pytest.mark.parametrize(
    "requested, policy",
    [
        ("-5G", None),
        ("-5G", {"default": "1G"}),
        ("1M", {"default": "-1G", "validValues": ["-1G", "1G"]}),
        (None, {"default": "-1G"}),
        ("-9G", {"default": "1G", "validRange": {"min": "-5G"}}),
    ],
)
def test_no_device_serves_less_than_nothing(requested: str | None, policy: Object | None) -> None:
    published = capacity.decode_capacities({"bandwidth": {"value": "10G", "requestPolicy": policy}})
    asked = {} if requested is None else capacity.decode_amounts({"bandwidth": requested})
    expected = capacity.consumed(asked.get("bandwidth"), published["bandwidth"]).nanos < 0
    assert capacity.fits(asked, published) is not expected
    assert (capacity.demand(asked, published) is None) is expected


@pytest.mark.parametrize("requested, step", [("6", "-2"), ("9223372036854775807", "5")])
def test_what_a_step_cannot_round_in_64_bits_allocates_nothing(requested: str, step: str) -> None:
    policy: Object = {"default": "1", "validRange": {"min": "1", "step": step}}
    published = capacity.decode_capacity({"value": "9223372036854775807", "requestPolicy": policy})
    with pytest.raises(capacity.NotRepresentableError, match="does not fit in 64 bits"):
        capacity.consumed(quantity.parse(requested), published)


def test_capacities_of_zero_are_recorded_as_consumed() -> None:
    published = capacity.decode_capacities(
        {"bandwidth": {"value": "10G"}, "queues": {"value": "4", "requestPolicy": {"default": "0", "validValues": ["0"]}}}
    )
    amounts = capacity.consume_all(capacity.decode_amounts({"bandwidth": "2G"}), published)
    assert {name: str(amount) for name, amount in amounts.items()} == {"bandwidth": "2G", "queues": "0"}
