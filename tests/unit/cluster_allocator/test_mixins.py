import copy

import pytest

from drakit_cluster.objects import mixins
from drakit_cluster.objects.json_types import Object

SPEC: Object = {
    "driver": "drv",
    "mixins": {
        "counterSet": [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}, "engines": {"value": "7"}}}],
        "device": [
            {"name": "system", "attributes": {"driverVersion": {"version": "560.35.3"}, "type": {"string": "any"}}},
            {
                "name": "gpu",
                "attributes": {"type": {"string": "gpu"}, "index": {"int": 9}},
                "capacity": {"memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi"}}},
            },
        ],
        "deviceCounterConsumption": [
            {"name": "whole", "counters": {"memory": {"value": "40Gi"}}},
            {"name": "engines", "counters": {"engines": {"value": "7"}, "memory": {"value": "1Gi"}}},
        ],
    },
    "sharedCounters": [
        {"name": "gpu-0", "includes": [{"name": "gpu"}]},
        {"name": "gpu-1", "includes": [{"name": "gpu"}], "counters": {"engines": {"value": "5"}}},
    ],
    "devices": [
        {
            "name": "gpu-0",
            "includes": [{"name": "system"}, {"name": "gpu"}],
            "attributes": {"index": {"int": 0}},
            "capacity": {"memory": {"value": "39Gi"}},
            "consumesCounters": [{"counterSet": "gpu-0", "includes": [{"name": "whole"}, {"name": "engines"}]}],
        },
        {"name": "plain", "attributes": {"index": {"int": 1}}},
    ],
}


def test_includes_apply_in_order_and_own_fields_win() -> None:
    flat = mixins.flatten(SPEC)
    assert flat == {
        "driver": "drv",
        "sharedCounters": [
            {"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}, "engines": {"value": "7"}}},
            {"name": "gpu-1", "counters": {"memory": {"value": "40Gi"}, "engines": {"value": "5"}}},
        ],
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"driverVersion": {"version": "560.35.3"}, "type": {"string": "gpu"}, "index": {"int": 0}},
                "capacity": {"memory": {"value": "39Gi"}},
                "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "1Gi"}, "engines": {"value": "7"}}}],
            },
            {"name": "plain", "attributes": {"index": {"int": 1}}},
        ],
    }


def test_flattening_leaves_its_input_alone_and_is_idempotent() -> None:
    before = copy.deepcopy(SPEC)
    flat = mixins.flatten(SPEC)
    assert before == SPEC
    assert mixins.flatten(flat) is flat


@pytest.mark.parametrize(
    "part, path",
    [
        ({"devices": [{"name": "d", "includes": [{"name": "nope"}]}]}, r"devices\[0\].includes"),
        (
            {"devices": [{"name": "d", "consumesCounters": [{"counterSet": "s", "includes": [{"name": "nope"}]}]}]},
            r"devices\[0\].consumesCounters\[0\].includes",
        ),
        ({"sharedCounters": [{"name": "s", "includes": [{"name": "nope"}]}]}, r"sharedCounters\[0\].includes"),
    ],
)
def test_a_missing_mixin_is_named_with_its_field(part: Object, path: str) -> None:
    with pytest.raises(mixins.MixinError, match=f"{path}: no mixin 'nope'"):
        mixins.flatten(part)


def test_mixins_of_one_kind_are_not_found_for_another() -> None:
    spec: Object = {"mixins": SPEC["mixins"], "devices": [{"name": "d", "includes": [{"name": "whole"}]}]}
    with pytest.raises(mixins.MixinError, match="known are gpu, system"):
        mixins.flatten(spec)
