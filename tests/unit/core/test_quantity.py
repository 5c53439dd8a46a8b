"""Quantities read, compare and print as Kubernetes' own do; the values are those of its documentation and known answers of its parser."""

import pytest

from drakit.core import errors, quantity

Q = quantity.Quantity.parse
KI, MI, GI = 1024, 1024**2, 1024**3


@pytest.mark.parametrize(
    "text, nanos",
    [
        ("0", 0),
        ("0Ki", 0),
        ("1", 10**9),
        ("+7", 7 * 10**9),
        ("-1.5", -15 * 10**8),
        ("5n", 5),
        ("4u", 4000),
        ("3m", 3 * 10**6),
        ("500m", 5 * 10**8),
        ("8k", 8000 * 10**9),
        ("7M", 7 * 10**15),
        ("1E", 10**27),
        ("12E", 12 * 10**27),
        ("1Ki", KI * 10**9),
        ("40Gi", 40 * GI * 10**9),
        ("3Ei", 3 * 1024**6 * 10**9),
        ("1E-3", 10**6),
        ("1e3", 1000 * 10**9),
        ("1.3E+6", 1_300_000 * 10**9),
        ("0.5e-2", 5 * 10**6),
        (".001", 10**6),
        ("1.", 10**9),
        ("1.G", 10**18),
        ("100.035k", 100_035 * 10**9),
        ("100.035Ki", 10_243_584 * 10**7),
        ("0.025Ti", 274_877_906_944 * 10**8),
        ("3.001n", 4),
        ("0.0000000001", 1),
        ("-0.9n", -1),
        ("0.00000012345", 124),
        ("0.000000000001Ki", 2),
        ("9Ei", (2**63 - 1) * 10**9),
        ("9223372036854775807Ki", (2**63 - 1) * 10**9),
    ],
)
def test_text_means_what_kubernetes_says(text: str, nanos: int) -> None:
    assert Q(text).nanos == nanos


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        ".",
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        "0.1am",
        "aoeu",
        ".5i",
        "1i",
        "-3.01i",
        "-3.01e-",
        " 1",
        "1 ",
        "1e61",
        "e3",
        "1K",
        "٣",
        "1\n",
    ],
)
def test_what_is_not_a_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(errors.QuantityError, match=r"40Gi|suffix|exponent"):
        Q(text)


def test_a_number_of_absurd_length_is_refused() -> None:
    with pytest.raises(errors.QuantityError):
        Q("9" * 129)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Mi", "512Ki"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("-2048Mi", "-2Gi"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("100000m", "100"),
        ("12000M", "12G"),
        ("1000E", "1000E"),
        ("1e4", "10e3"),
        ("1E-3", "1e-3"),
        ("1e0", "1"),
        ("0.000000000001Ki", "2n"),
    ],
)
def test_the_canonical_form_is_the_largest_suffix_that_keeps_it_whole(text: str, canonical: str) -> None:
    assert str(Q(text)) == canonical


def test_equality_order_and_hash_go_by_value() -> None:
    assert Q("1Gi") == Q("1024Mi") == Q("1073741824")
    assert len({Q("1Gi"), Q("1024Mi"), Q("1073741824")}) == 1
    assert Q("100m") > Q("50m")
    assert Q("10000T") > Q("100Gi")
    assert Q("1") != 1


@pytest.mark.parametrize("text, value", [("1500m", 2), ("1m", 1), ("-1500m", -2), ("0", 0), ("2", 2)])
def test_the_whole_value_is_rounded_away_from_zero(text: str, value: int) -> None:
    assert Q(text).value == value


def test_a_sum_keeps_the_format_of_the_first_that_is_not_zero() -> None:
    assert str(Q("1Gi") + Q("1Gi")) == "2Gi"
    assert str(quantity.ZERO + Q("1Gi")) == "1Gi"
    assert str(Q("2Gi") - Q("1Gi")) == "1Gi"


def test_quantities_are_made_of_numbers_text_and_quantities() -> None:
    assert quantity.Quantity.of(3) == Q("3")
    assert quantity.Quantity.of("3k") == Q("3k")
    assert quantity.Quantity.of(quantity.ONE) is quantity.ONE
    assert str(quantity.Quantity.binary(GI)) == "1Gi"
    assert not quantity.ZERO
    assert repr(Q("1024Ki")) == "Quantity('1Mi')"
