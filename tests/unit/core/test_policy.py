"""Request policies round as KEP-5075 says, and refuse what the API server would refuse."""

from typing import Any

import pytest

from drakit.core import capacity as capacities
from drakit.core import errors, quantity

Q = quantity.Quantity.of


def a_range(default: str, low: str, high: str | None = None, step: str | None = None) -> capacities.RequestPolicy:
    span = capacities.ValidRange(min=Q(low), max=None if high is None else Q(high), step=None if step is None else Q(step))
    return capacities.RequestPolicy(default=Q(default), valid_range=span)


def a_list(default: str, *values: str) -> capacities.RequestPolicy:
    return capacities.RequestPolicy(default=Q(default), valid_values=tuple(map(Q, values)))


FIELD = "devices[a].capacity[memory]"


def a_range_of(**limits: Any) -> capacities.RequestPolicy:
    return capacities.RequestPolicy(default=1, valid_range=capacities.ValidRange(**limits))


def checked(**fields: Any) -> capacities.Capacity:
    """Return a capacity as a device has it."""
    return capacities.freeze_capacity({"memory": capacities.Capacity(**{"value": Q("100")} | fields)}, "devices[a].capacity")["memory"]


KEP_NIC = capacities.Capacity(value=Q("10Gi"), policy=a_range("1Mi", "1Mi", step="8"))
STEPPED = capacities.Capacity(value=Q("80Gi"), policy=a_range("5Gi", "5Gi", "60Gi", "5Gi"))
LISTED = capacities.Capacity(value=Q("40G"), policy=a_list("10G", "1G", "10G", "25G"))
PLAIN = capacities.Capacity(value=Q("4"))
DEFAULTED = capacities.Capacity(value=Q("10"), policy=capacities.RequestPolicy(default=Q("0")))


@pytest.mark.parametrize(
    "capacity, requested, consumed",
    [
        (KEP_NIC, None, "1Mi"),
        (KEP_NIC, "5Gi", "5Gi"),
        (KEP_NIC, "1", "1Mi"),
        (KEP_NIC, "1048577", "1048584"),
        (KEP_NIC, "11Gi", None),
        (STEPPED, "0", "5Gi"),
        (STEPPED, "6Gi", "10Gi"),
        (STEPPED, "10Gi", "10Gi"),
        (STEPPED, "58Gi", "60Gi"),
        (STEPPED, "61Gi", None),
        (LISTED, None, "10G"),
        (LISTED, "1", "1G"),
        (LISTED, "10000000001", "25G"),
        (LISTED, "26G", None),
        (PLAIN, None, "4"),
        (PLAIN, "3", "3"),
        (PLAIN, "5", None),
        (DEFAULTED, None, "0"),
        (DEFAULTED, "7", "7"),
    ],
)
def test_a_share_takes_its_request_rounded_up_to_a_valid_amount(
    capacity: capacities.Capacity, requested: str | None, consumed: str | None
) -> None:
    got = capacity.consumed_by(None if requested is None else Q(requested))
    assert got == (None if consumed is None else Q(consumed))


def test_a_step_counts_in_thousandths() -> None:
    span = capacities.ValidRange(min=Q("1"), max=Q("9"), step=Q("4"))
    assert span.round_up(Q("1500m")) == Q("5")
    assert span.round_up(Q("5")) == Q("5")
    tenths = capacities.ValidRange(min=Q("100m"), max=Q("1"), step=Q("100m"))
    assert [tenths.round_up(Q(text)) for text in ("50m", "250m", "1", "1050m")] == [Q("100m"), Q("300m"), Q("1"), None]


@pytest.mark.parametrize(
    "policy, older",
    [
        (a_range("2", "1", "9", "1"), None),
        (a_range("100m", "100m", "1", "100m"), None),
        (a_range("250m", "100m", "800m"), None),
        (a_range("150m", "50m", "2", "100m"), a_list("150m", "150m")),
        (a_range("300m", "0", step="300m"), a_list("300m", "300m")),
        (a_list("1500m", "500m", "1500m", "3"), None),
        (a_list("500m", "250m", "500m"), a_list("500m", "500m")),
    ],
)
def test_a_server_that_counts_in_whole_units_gets_a_policy_it_cannot_misread(
    policy: capacities.RequestPolicy, older: capacities.RequestPolicy | None
) -> None:
    assert policy.in_whole_units() == (older or policy)


@pytest.mark.parametrize(
    "kwargs, field",
    [
        ({"min": Q("2"), "max": Q("1")}, "validRange.max"),
        ({"min": Q("1"), "step": Q("0")}, "validRange.step"),
        ({"min": Q("1"), "max": Q("10"), "step": Q("4")}, "validRange.max"),
    ],
)
def test_an_impossible_range_is_refused(kwargs: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        checked(policy=capacities.RequestPolicy(default=Q("1"), valid_range=capacities.ValidRange(**kwargs)))
    assert caught.value.field == f"{FIELD}.requestPolicy.{field}"


@pytest.mark.parametrize(
    "kwargs, field",
    [
        ({"default": Q(1), "valid_values": (Q(1),), "valid_range": capacities.ValidRange(min=Q(1))}, "requestPolicy"),
        ({"valid_values": (Q(1),)}, "requestPolicy.default"),
        ({"valid_range": capacities.ValidRange(min=Q(1))}, "requestPolicy.default"),
        ({"default": Q(1), "valid_values": tuple(map(Q, range(11)))}, "requestPolicy.validValues"),
        ({"default": Q(2), "valid_values": (Q(2), Q(1))}, "requestPolicy.validValues"),
        ({"default": Q(1), "valid_values": (Q("1"), Q(1))}, "requestPolicy.validValues"),
        ({"default": Q("100500u"), "valid_range": capacities.ValidRange(min=Q(0))}, "requestPolicy.default"),
        ({"default": Q(1), "valid_range": capacities.ValidRange(min=Q(0), step=Q("500u"))}, "requestPolicy.validRange.step"),
        ({"default": Q("250m"), "valid_range": capacities.ValidRange(min=Q(0), step=Q("100m"))}, "requestPolicy.default"),
        ({"default": Q(3), "valid_values": (Q(1), Q(5))}, "requestPolicy.default"),
        ({"default": Q(1), "valid_range": capacities.ValidRange(min=Q(2))}, "requestPolicy.default"),
        ({"default": Q(4), "valid_range": capacities.ValidRange(min=Q(1), step=Q(2))}, "requestPolicy.default"),
        ({"default": Q(9), "valid_range": capacities.ValidRange(min=Q(1), max=Q(8))}, "requestPolicy.default"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(kwargs: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InventoryError) as caught:
        checked(policy=capacities.RequestPolicy(**kwargs))
    assert caught.value.field == f"{FIELD}.{field}"


@pytest.mark.parametrize(
    "too_large, field",
    [
        (a_list("1", "1", "11"), "validValues"),
        (a_range("1", "1", "11"), "validRange.max"),
        (a_range("11", "11"), "default"),
        (a_range("1", "1", step="10"), "validRange.step"),
        (capacities.RequestPolicy(default=Q("11")), "default"),
    ],
)
def test_a_policy_beyond_the_capacity_is_refused_with_the_field(too_large: capacities.RequestPolicy, field: str) -> None:
    with pytest.raises(errors.InventoryError, match="above the capacity 10") as caught:
        checked(value=Q("10"), policy=too_large)
    assert caught.value.field == f"{FIELD}.requestPolicy.{field}"


HALF: Any = 0.5
LIST: Any = []


@pytest.mark.parametrize(
    "given, field",
    [
        ({"value": HALF}, "value"),
        ({"policy": capacities.RequestPolicy(default=LIST)}, "requestPolicy.default"),
        ({"policy": capacities.RequestPolicy(default=1, valid_values=[1, HALF])}, "requestPolicy.validValues"),
        ({"policy": a_range_of(min=HALF)}, "requestPolicy.validRange.min"),
        ({"policy": a_range_of(min=1, max=LIST)}, "requestPolicy.validRange.max"),
        ({"policy": a_range_of(min=1, step=HALF)}, "requestPolicy.validRange.step"),
    ],
)
def test_a_value_that_is_not_an_amount_is_refused_with_its_device(given: dict[str, Any], field: str) -> None:
    with pytest.raises(
        errors.InventoryError, match=r"is not an amount; write a whole number, text such as '40Gi', or a Quantity"
    ) as caught:
        checked(**given)
    assert caught.value.field == f"{FIELD}.{field}"


@pytest.mark.parametrize("text", ["5Q", "", "1 G"])
def test_text_that_is_not_a_quantity_is_refused_with_its_device(text: str) -> None:
    for given, field in (({"value": text}, "value"), ({"policy": capacities.RequestPolicy(default=text)}, "requestPolicy.default")):
        with pytest.raises(errors.InventoryError, match=r"is not a quantity|has an unknown suffix") as caught:
            checked(**given)
        assert caught.value.field == f"{FIELD}.{field}"


def test_whole_numbers_and_text_become_quantities() -> None:
    written = capacities.Capacity(
        value="10G", policy=capacities.RequestPolicy(default=5, valid_range=capacities.ValidRange(min=1, max="1k", step=1))
    )
    span = capacities.ValidRange(min=Q(1), max=Q("1k"), step=Q(1))
    assert written == capacities.Capacity(value=Q("10G"), policy=capacities.RequestPolicy(default=Q(5), valid_range=span))
    assert capacities.RequestPolicy(default="1", valid_values=[1, "2", Q(3)]).valid_values == (Q(1), Q(2), Q(3))


def test_plain_amounts_become_capacities() -> None:
    assert capacities.Capacity.of("40Gi") == capacities.Capacity(value=Q("40Gi"))
    assert capacities.Capacity.of(KEP_NIC) is KEP_NIC
