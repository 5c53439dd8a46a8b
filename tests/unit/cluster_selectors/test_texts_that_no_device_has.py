"""The texts that a selector requires of an attribute and no device has: what explains a selector that selects nothing."""

import pytest

from drakit_cluster.cel import compared_texts
from drakit_cluster.objects import devices

GPU = "gpu.example.com"


def view(driver: str = GPU, **attributes: object) -> devices.DeviceView:
    spec = {"attributes": {name.replace("__", "/"): value for name, value in attributes.items()}}
    return devices.view_of(driver, spec)  # type: ignore[arg-type] # JSON


VIEWS = [
    view(profile={"string": "1g.10gb"}, index={"int": 3}, other__name={"string": "x"}),
    view(profile={"string": "1g.5gb"}, peers={"strings": ["a", "b"]}),
    view("nic.example.com", kind={"string": "nic"}),
]
PROFILE = f'device.attributes["{GPU}"].profile'
FOUND = {
    "a comparison": (f'{PROFILE} == "1g.5g"', "profile", "1g.5g"),
    "the text first": (f"'1g.5g' == {PROFILE}", "profile", "1g.5g"),
    "one of a list": (f'{PROFILE} in ["2g.10gb"]', "profile", "2g.10gb"),
    "beside other terms": (f'device.driver == "{GPU}" && (true && {PROFILE} == "1g.5g")', "profile", "1g.5g"),
    "beside a negation": (f'!({PROFILE} == "9g.zz") && {PROFILE} == "1g.5g"', "profile", "1g.5g"),
    "the optional form": (f'device.attributes["{GPU}"].?profile.orValue("") == "1g.5g"', "profile", "1g.5g"),
    "an index": (f'device.attributes["{GPU}"]["profile"] == "1g.5g"', "profile", "1g.5g"),
    "another domain": ('device.attributes["other"].name == "y"', "name", "y"),
    "a driver": ('device.driver == "gpx.example.com"', "driver", "gpx.example.com"),
    "a list attribute": (f'device.attributes["{GPU}"].peers == "c"', "peers", "c"),
}


@pytest.mark.parametrize("expression, attribute, text", FOUND.values(), ids=FOUND)
def test_a_text_that_no_device_has_is_found(expression: str, attribute: str, text: str) -> None:
    (found,) = compared_texts.unknown(expression, VIEWS)
    assert (found.attribute, found.text) == (attribute, text)


@pytest.mark.parametrize(
    "expression",
    [
        f'{PROFILE} == "1g.5gb"',
        f'{PROFILE} != "1g.5g"',
        f'device.attributes["{GPU}"].uuid == "x"',
        f'device.attributes["{GPU}"].index == "x"',
        f'device.attributes["{GPU}"].index == 4',
        f'has({PROFILE}) == "x"',
        "device.driver ==",
        f'"x".startsWith({PROFILE})',
        f'!({PROFILE} == "x")',
        f'({PROFILE} == "x" || true) && device.attributes["{GPU}"].index > 9',
        f'{PROFILE} == "x" ? false : true',
        f'["x"].exists(text, {PROFILE} == "x")',
        f'{PROFILE} in ["1g.5gb", "2g.10gb"] && false',
    ],
)
def test_other_comparisons_explain_nothing(expression: str) -> None:
    assert compared_texts.unknown(expression, VIEWS) == []


def test_the_values_are_in_natural_order_and_many_are_cut() -> None:
    (found,) = compared_texts.unknown(f'{PROFILE} == "x"', VIEWS)
    assert found.values == "the values of profile are 1g.5gb, 1g.10gb"
    many = [view(uuid={"string": f"GPU-{number}"}) for number in range(12)]
    (found,) = compared_texts.unknown(f'device.attributes["{GPU}"].uuid == "GPU-x"', many)
    assert found.values == "the values of uuid are GPU-0, GPU-1, GPU-2, GPU-3, GPU-4, GPU-5, GPU-6, GPU-7 and 4 more"
    (found,) = compared_texts.unknown(f'device.attributes["{GPU}"].uuid == "GPU-x"', many[:1])
    assert found.values == "the only value of uuid is GPU-0"
