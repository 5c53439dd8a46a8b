"""Settings of NICs are refused when the API could not carry them."""

import pytest

from drakit import settings
from drakit.core import errors, quantity
from drakit_nic import options, port

BITS = quantity.Quantity.of


def read(**choices: object) -> options.NicOptions:
    given = settings.load({f"nic.{key}": value for key, value in choices.items()}, environ={}).group("nic")
    assert isinstance(given, options.NicOptions)
    return given


@pytest.mark.parametrize(
    "figures, message",
    [
        ({"min": "0"}, ".min: 0 is not between 1 and"),
        ({"step": "0"}, ".step: 0 is not between 1 and"),
        ({"min": "-1"}, ".min: -1 is not between 1 and"),
        ({"step": "100m"}, ".step: 100m is not a whole number of bits per second"),
        ({"min": "10E"}, ".min: 10E is not between 1 and"),
        ({"default": "5M"}, ": default: 5M is below min 10M"),
        ({"default": "15M"}, ": default: 15M is not min 10M plus a multiple of step 10M"),
        ({"max": "15M"}, ": max: 15M is not min 10M plus a multiple of step 10M"),
        ({"max": "105M", "default": "20M"}, ": max: 105M is not min 10M plus a multiple of step 10M"),
        ({"max": "50M", "default": "100M"}, ": max: 50M is below default 100M"),
        ({"speed": "fast"}, ".speed: 'fast' is not a quantity"),
        ({"speed": True}, ".speed: True is not a quantity"),
        ({"speed": "0"}, ".speed: 0 is not between 1 and"),
        ({"speed": "1500m"}, ".speed: 1500m is not a whole number of bits per second"),
        ({"reserve": "-1G"}, ".reserve: -1G is not between 0 and"),
        ({"ceil": "-1"}, ".ceil: -1 is not between 0 and"),
        ({"ceil": "1500m"}, ".ceil: 1500m is not a whole number of bits per second"),
        ({"colour": "1"}, ".colour: is not a setting"),
    ],
)
def test_a_rule_that_the_driver_cannot_follow_is_refused_by_key(figures: dict[str, object], message: str) -> None:
    with pytest.raises(errors.SettingsError) as refused:
        read(rules=[{"match": "eth0", **figures}])
    assert str(refused.value).startswith(f"nic.rules.0{message}")


def test_steps_count_from_min() -> None:
    rates = options.BandwidthPolicy(min=BITS(5), step=BITS(10), default=BITS(25))
    assert [rates.floor(amount) for amount in (5, 14, 15, 24, 25)] == [5, 5, 15, 15, 25]
    assert rates.floor(4) < 5


@pytest.mark.parametrize("key", ["reserve", "ceil"])
def test_a_negative_rate_is_refused(key: str) -> None:
    with pytest.raises(errors.SettingsError, match=rf"nic\.{key}: -1 is not between 0 and"):
        read(**{key: "-1"})


@pytest.mark.parametrize("ceil", ["0", 0])
def test_a_ceil_of_0_is_a_number_or_a_text(ceil: object) -> None:
    assert read(ceil=ceil).ceil == BITS("0")


def test_a_rule_overrides_only_what_it_says() -> None:
    chosen = options.NicOptions(reserve=BITS("1G"), rules=(options.NicRule(match="eth?", speed=BITS("10G")),))
    assert chosen.rule_for("eth1") == options.NicRule(match="eth?", speed=BITS("10G"), reserve=BITS("1G"))
    assert chosen.rule_for("ib0").speed is None
    bounded = options.NicOptions(ceil=BITS("5G"), rules=(options.NicRule(match="eth?", ceil=BITS("0")),))
    assert (bounded.rule_for("eth1").ceil, bounded.rule_for("ib0").ceil) == (BITS("0"), BITS("5G"))
    assert chosen.rule_for("ib0").reserve == BITS("1G")


def test_globs_are_compared_with_case() -> None:
    assert options.matches("eth0", ("eth*",))
    assert not options.matches("ETH0", ("eth*",))
    assert not options.matches("eth0", ())


@pytest.mark.parametrize("glob, expected", [("enp*", True), ("eth0", True), ("ENP*", False), ("*np1", False)])
def test_globs_are_compared_with_alternative_names_too(glob: str, expected: bool) -> None:  # noqa: FBT001
    interface = port.Interface(ifindex=2, name="eth0", mtu=1500, altnames=("enp81s0f0np0", "enx020000000020"))
    assert options.matches(interface, (glob,)) is expected


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
def test_a_missing_default_is_the_next_valid_amount(figures: dict[str, object], default: str) -> None:
    (rule,) = read(rules=[{"match": "eth*", "speed": "10G", "reserve": None, **figures}]).rules
    assert (rule.match, rule.speed, rule.reserve) == ("eth*", BITS("10G"), None)
    assert rule.policy.default == BITS(default)
