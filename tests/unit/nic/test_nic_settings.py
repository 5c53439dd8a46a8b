"""Settings of NICs are refused when the API could not carry them."""

import pytest

from drakit.core import errors, quantity
from drakit_nic import port, settings

BITS = quantity.Quantity.of


@pytest.mark.parametrize(
    "rates, message",
    [
        ({"min": "0"}, "policy.min: 0 is not between 1 and"),
        ({"step": "0"}, "policy.step: 0 is not between 1 and"),
        ({"min": "-1"}, "policy.min: -1 is not between 1 and"),
        ({"step": "100m"}, "policy.step: 100m is not a whole number of bits per second"),
        ({"min": "10E"}, "policy.min: 10E is not between 1 and"),
        ({"default": "5M"}, "policy.default: 5M is below min 10M"),
        ({"default": "15M"}, "policy.default: 15M is not min 10M plus a multiple of step 10M"),
        ({"max": "105M"}, "policy.max: 105M is not min 10M plus a multiple of step 10M"),
        ({"max": "50M"}, "policy.max: 50M is below default 100M"),
    ],
)
def test_a_policy_that_breaks_the_api_s_rules_is_refused_by_key(rates: dict[str, str], message: str) -> None:
    with pytest.raises(errors.SettingsError) as refused:
        settings.BandwidthPolicy(**{key: BITS(value) for key, value in rates.items()})
    assert str(refused.value).startswith(message)


def test_steps_count_from_min() -> None:
    rates = settings.BandwidthPolicy(min=BITS(5), step=BITS(10), default=BITS(25))
    assert [rates.floor(amount) for amount in (5, 14, 15, 24, 25)] == [5, 5, 15, 15, 25]
    assert rates.floor(4) < 5


@pytest.mark.parametrize("key, value", [("speed", "0"), ("speed", "1500m"), ("reserve", "-1G"), ("ceil", "-1"), ("ceil", "1500m")])
def test_a_rule_s_rates_are_whole_and_in_range(key: str, value: str) -> None:
    with pytest.raises(errors.SettingsError, match=rf"interfaces\[eth\*\]\.{key}"):
        settings.InterfaceRule(match="eth*", **{key: BITS(value)})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["reserve", "ceil"])
def test_a_negative_rate_is_refused(key: str) -> None:
    with pytest.raises(errors.SettingsError, match=key):
        settings.NicSettings(**{key: BITS("-1")})  # type: ignore[arg-type]


def test_a_rule_overrides_only_what_it_says() -> None:
    chosen = settings.NicSettings(reserve=BITS("1G"), interfaces=(settings.InterfaceRule(match="eth?", speed=BITS("10G")),))
    assert chosen.rule_for("eth1") == settings.InterfaceRule(match="eth?", speed=BITS("10G"), reserve=BITS("1G"), policy=chosen.policy)
    assert chosen.rule_for("ib0").speed is None
    bounded = settings.NicSettings(ceil=BITS("5G"), interfaces=(settings.InterfaceRule.parse("eth?", {"ceil": "0"}),))
    assert (bounded.rule_for("eth1").ceil, bounded.rule_for("ib0").ceil) == (BITS("0"), BITS("5G"))
    assert chosen.rule_for("ib0").reserve == BITS("1G")


def test_globs_are_compared_with_case() -> None:
    assert settings.matches("eth0", ("eth*",))
    assert not settings.matches("ETH0", ("eth*",))
    assert not settings.matches("eth0", ())


@pytest.mark.parametrize("glob, expected", [("enp*", True), ("eth0", True), ("ENP*", False), ("*np1", False)])
def test_globs_are_compared_with_alternative_names_too(glob: str, expected: bool) -> None:  # noqa: FBT001
    interface = port.Interface(ifindex=2, name="eth0", mtu=1500, altnames=("enp81s0f0np0", "enx020000000020"))
    assert settings.matches(interface, (glob,)) is expected


@pytest.mark.parametrize(
    "figures, default",
    [
        ({"min": "1G", "step": "500M"}, "1G"),
        ({"min": "30M", "step": "40M"}, "110M"),
        ({"min": "1M", "step": "1M", "max": "50M"}, "50M"),
        ({"step": "45M"}, "100M"),
        ({"default": "20M"}, "20M"),
    ],
)
def test_a_rule_is_read_from_texts_and_a_missing_default_is_the_next_valid_amount(figures: dict[str, str | None], default: str) -> None:
    rule = settings.InterfaceRule.parse("eth*", {"speed": "10G", "reserve": None, **figures})
    assert (rule.match, rule.speed, rule.reserve) == ("eth*", BITS("10G"), None)
    assert rule.policy is not None
    assert rule.policy.default == BITS(default)


def test_a_rule_without_policy_figures_keeps_the_family_s_policy() -> None:
    assert settings.InterfaceRule.parse("eth0", {"speed": "10G", "min": None}).policy is None


@pytest.mark.parametrize(
    "figures, message",
    [
        ({"speed": "fast"}, "interfaces[eth0].speed: 'fast' is not a quantity"),
        ({"colour": "1"}, "interfaces[eth0].colour: is not a figure of an interface"),
        ({"speed": "0"}, "interfaces[eth0].speed: 0 is not between 1 and"),
        ({"max": "15M"}, "interfaces[eth0]: policy.max: 15M is not min 10M plus a multiple of step 10M"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_by_key(figures: dict[str, str | None], message: str) -> None:
    with pytest.raises(errors.SettingsError) as refused:
        settings.InterfaceRule.parse("eth0", figures)
    assert str(refused.value).startswith(message)
