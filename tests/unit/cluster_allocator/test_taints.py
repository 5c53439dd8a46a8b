import pytest

from drakit_cluster.objects import taints
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json, Object
from fakes.allocation_objects import chosen, claim, decide, device, request, resource_slice, without

TAINT: Object = {"key": "broken", "value": "fan", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "toleration, tolerated",
    [
        ({"key": "broken", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "broken", "value": "fan"}, True),
        ({"key": "broken", "operator": "Equal", "value": "fan", "effect": "NoSchedule"}, True),
        ({"key": "broken", "value": "disk"}, False),
        ({"key": "broken", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "broken", "operator": "Matches"}, False),
    ],
)
def test_a_toleration_covers_key_value_and_effect(toleration: Object, *, tolerated: bool) -> None:
    assert taints.tolerates(toleration, TAINT) is tolerated


def test_only_known_effects_keep_a_device_back() -> None:
    for effect, kept in (("NoSchedule", True), ("NoExecute", True), ("None", False), ("Future", False)):
        assert taints.prevents([{"key": "k", "effect": effect}], []) is kept


def test_a_tainted_device_needs_a_toleration_which_the_result_carries() -> None:
    slices = [resource_slice([device("d", taints=[TAINT])])]
    tolerations: list[Json] = [{"key": "broken", "operator": "Exists"}]
    assert decide(slices, claim(request())) is None
    results = decide(slices, claim(request(tolerations=tolerations)))
    assert results is not None
    assert results[0]["devices"] == {
        "results": [{"request": "r", "driver": "drv", "pool": "pool", "device": "d", "tolerations": tolerations}]
    }
    assert chosen(decide(slices, claim(request()), features=without(Gate.DEVICE_TAINTS))) == [["d"]]
