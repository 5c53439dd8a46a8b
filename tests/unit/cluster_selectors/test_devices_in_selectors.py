"""What a selector sees of a device."""

import threading

import pytest

from drakit_cluster.cel import CompileError, EnvType, RunError, Selectors
from drakit_cluster.objects import devices
from drakit_cluster.objects.devices import DeviceView, view_of
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json
from unit.cluster_selectors.asking import ALL_OFF, ALL_ON, FISH, compiled, failure, verdict


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "dra.example.com"',
        'A.s == "fish" && A.i > 3 && A.b',
        'device.attributes["other.example.com"].x == "o"',
        'device.attributes["nope"].size() == 0',
        '!("nope" in device.attributes)',
        'device.attributes[?"nope"].hasValue()',
        '!device.attributes[?"nope"].?x.hasValue()',
        "has(device.attributes) && has(A.s) && !has(A.nope)",
        'has(device.attributes.nope) && !has(device.attributes["nope"].x)',
        "device == device && device.attributes == device.attributes",
        "type(device) == map",
        'cel.bind(d, device, d.attributes[d.driver].s == "fish")',
        'device.attributes.exists(d, v, "s" in v)',
        "A.exists(k, v, v == 5)",
        'C.mem == quantity("40960Mi") && C.cpu.add(quantity("500m")) == quantity("2")',
        'A.v.isGreaterThan(semver("1.2.3-rc.0")) && A.v == semver("1.2.3-rc.1")',
        "A.nope || true",
        "A.nope == 1 || A.i == 5",
        "!(A.nope && false)",
        'A.?s.orValue("x") == "fish" && A.?nope.orValue("x") == "x"',
    ],
)
def test_selectors_read_devices_as_kubernetes_does(expression: str) -> None:
    assert verdict(expression)
    assert verdict(expression, ALL_ON)


@pytest.mark.parametrize(
    "expression, message",
    [
        ('device.attributes["nope"].x', "no such key: x"),
        ("A.nope", "no such key: nope"),
        ("A.i", "could not be converted to bool"),
        ("A.s > 5", "no such overload"),
        ("A.s || false", "no such overload"),
        ('A.v == "1.2.3"', "no such overload"),
        ("C.cpu.asInteger() == 1", "cannot convert value to integer"),
        ("C.big.asInteger() == 1", "cannot convert value to integer"),
        ("[1, 2][5] == 1", "index out of bounds: 5"),
        ("A.i * 9223372036854775807 > 0", "integer overflow"),
        ("A.i / 0 > 0", "division by zero"),
    ],
)
def test_an_evaluation_error_has_its_reason(expression: str, message: str) -> None:
    assert message in failure(expression)


def test_an_unreadable_attribute_makes_every_selector_of_its_device_fail() -> None:
    device = view_of("d", {"attributes": {"names": {"strings": ["fish"]}}})
    assert failure("true", ALL_OFF, device) == "attribute names: unsupported attribute value"
    assert verdict('device.attributes["d"].names.includes("fish")', ALL_ON, device)
    broken = view_of("d", {"attributes": {"v": {"version": "1.2"}}})
    assert failure("true", ALL_OFF, broken).startswith("attribute v: parse semantic version")


def test_list_attributes_need_their_gate() -> None:
    with pytest.raises(CompileError, match="cannot be range of a comprehension"):
        compiled('A.s.exists(x, x == "f")')
    assert failure('A.s.exists(x, x == "f")', ALL_ON) == "got 'types.String', expected iterable type"
    assert failure("A.v.exists(x, true)", ALL_ON) == "got 'cel.Semver', expected iterable type"


def test_includes_takes_lists_no_longer_than_an_attribute_may_be() -> None:
    words: list[Json] = [f"value-{number}" for number in range(49)]
    device = view_of("d", {"attributes": {"names": {"strings": words}}})
    assert verdict('device.attributes["d"].names.includes("value-47")', ALL_ON, device)
    assert "longer than 48 values" in failure('device.attributes["d"].names.includes("value-48")', ALL_ON, device)


def test_new_expressions_see_only_what_the_gates_allow_and_stored_ones_everything() -> None:
    for expression, missing in (
        ("device.allowMultipleAllocations", "undefined field 'allowMultipleAllocations'"),
        ('A.s.includes("fish")', "undeclared reference to 'includes'"),
    ):
        with pytest.raises(CompileError, match=missing):
            compiled(expression, ALL_OFF, EnvType.NEW)
        assert compiled(expression, ALL_OFF, EnvType.STORED).output == "bool"
        assert compiled(expression, ALL_ON, EnvType.NEW).output == "bool"


def test_the_scheduler_asks_through_its_port() -> None:
    port: devices.SelectorPort = Selectors(FeatureGates(enabled=frozenset({Gate.CONSUMABLE_CAPACITY})))
    assert port.matches("!device.allowMultipleAllocations", FISH)
    for expression in ("nope", "1 / 0 > 0"):
        with pytest.raises(devices.SelectorError):
            port.matches(expression, FISH)


def test_compile_errors_are_cached() -> None:
    selectors = Selectors()
    texts = []
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            selectors.compile("nope")
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert selectors.compile("true") is selectors.compile("true")


def test_caches_stay_bounded() -> None:
    selectors = Selectors()
    for number in range(5000):
        view = DeviceView(driver=f"d{number}", attributes={}, capacity={}, allow_multiple_allocations=False)
        assert selectors.matches(f'device.driver != "{number % 50}"', view)
    assert len(selectors._devices) == 4096
    assert len(selectors._compiled) == 50


def test_many_threads_get_the_results_of_one() -> None:
    selectors = Selectors(ALL_ON)
    devices = [view_of("d", {"attributes": {"n": {"int": number}}}) for number in range(20)]
    expression = '[0, 1, 2].exists(x, cel.bind(y, x + device.attributes["d"].n, y % 7 == 0))'
    wanted = [any((x + number) % 7 == 0 for x in range(3)) for number in range(20)]
    wrong: list[int] = []

    def ask() -> None:
        for _ in range(20):
            found = [selectors.matches(expression, device) for device in devices]
            if found != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_are_those_of_the_selector_port() -> None:
    assert issubclass(CompileError, devices.SelectorError)
    assert issubclass(RunError, devices.SelectorError)
