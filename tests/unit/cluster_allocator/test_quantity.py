import pytest

from drakit_cluster.objects import quantity
from drakit_cluster.objects.quantity import Format, Quantity

NANOS = 10**9


@pytest.mark.parametrize(
    "text, nanos, canonical",
    [
        ("0", 0, "0"),
        ("0Gi", 0, "0"),
        ("-0", 0, "0"),
        ("1", NANOS, "1"),
        ("+1", NANOS, "1"),
        ("-1500m", -1_500_000_000, "-1500m"),
        ("1.5", 1_500_000_000, "1500m"),
        (".5", 500_000_000, "500m"),
        ("5.", 5 * NANOS, "5"),
        ("00012", 12 * NANOS, "12"),
        ("1000", 1000 * NANOS, "1k"),
        ("1500k", 1_500_000 * NANOS, "1500k"),
        ("1e3", 1000 * NANOS, "1e3"),
        ("12E2", 1200 * NANOS, "1200"),
        ("1E", 10**18 * NANOS, "1E"),
        ("1000E", 10**21 * NANOS, "1000E"),
        ("1e21", 10**21 * NANOS, "1e21"),
        ("100e-3", 100_000_000, "100e-3"),
        ("1024", 1024 * NANOS, "1024"),
        ("1Ki", 1024 * NANOS, "1Ki"),
        ("1024Ki", 1024 * 1024 * NANOS, "1Mi"),
        ("1536Mi", 1536 * 2**20 * NANOS, "1536Mi"),
        ("0.5Ki", 512 * NANOS, "512"),
        ("1.5Gi", 1536 * 2**20 * NANOS, "1536Mi"),
        ("0.1Ki", 102_400_000_000, "102400m"),
        ("4Ei", 2**62 * NANOS, "4Ei"),
        ("250u", 250_000, "250u"),
        ("3n", 3, "3n"),
    ],
)
def test_a_quantity_has_one_value_and_one_canonical_form(text: str, nanos: int, canonical: str) -> None:
    parsed = quantity.parse(text)
    assert parsed.nanos == nanos
    assert str(parsed) == canonical
    assert quantity.parse(canonical) == parsed


@pytest.mark.parametrize("text, nanos", [("0.1n", 1), ("1.0000000001", NANOS + 1), ("-0.1n", -1), ("1e-12", 1), ("2.5n", 3)])
def test_a_value_finer_than_a_nano_is_rounded_away_from_zero(text: str, nanos: int) -> None:
    assert quantity.parse(text).nanos == nanos


def test_a_binary_quantity_is_capped_and_below_one_becomes_decimal() -> None:
    assert quantity.parse("16Ei").nanos == (2**63 - 1) * NANOS
    assert quantity.parse("0.0001Ki").format is Format.DECIMAL
    assert str(quantity.parse("0.0001Ki")) == "102400u"


@pytest.mark.parametrize("text, units", [("100m", 1), ("1100m", 2), ("1", 1), ("-100m", -1), ("1n", 1), ("0", 0)])
def test_whole_units_round_away_from_zero(text: str, units: int) -> None:
    assert quantity.parse(text).units == units


def test_quantities_compare_by_value_however_they_are_written() -> None:
    assert quantity.parse("1024Mi") == quantity.parse("1Gi") == Quantity.of(2**30)
    assert len({quantity.parse("1000m"), quantity.parse("1"), quantity.parse("1e0")}) == 1
    assert quantity.parse("1G") < quantity.parse("1Gi")
    assert str(quantity.parse("1Gi") + quantity.parse("512Mi")) == "1536Mi"


def test_json_numbers_are_quantities_as_kubernetes_takes_them() -> None:
    assert quantity.parse(3) == quantity.parse("3")
    assert quantity.parse(0.5) == quantity.parse("500m")


@pytest.mark.parametrize(
    "bad", ["", " ", "Gi", ".", "-", "1 Gi", "1gi", "1K", "1e", "1e1.5", "1Kib", "0x10", "1e99999", "1_000", "\u0661", None, True, [], {}]
)
def test_text_that_is_not_a_quantity_is_refused_and_quoted(bad: object) -> None:
    with pytest.raises(quantity.QuantityError, match="not a quantity"):
        quantity.parse(bad)  # type: ignore[arg-type]  # Wrong types are the point.
