import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.pools import Condition, Pool, SliceIndex
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.allocation_objects import ALL_FEATURES, NODE, chosen, claim, decide, device, partitioned, request, resource_slice, without


def pools(slices: list[Object], features: FeatureGates = ALL_FEATURES) -> list[Pool]:
    return SliceIndex(slices, features).pools(NODE)


def names(pool: Pool) -> list[str]:
    return [json_types.text(one, "name") for entry in pool.slices for one in json_types.objects(entry.spec, "devices")]


def test_pools_and_slices_are_sorted_with_binding_conditions_last() -> None:
    binding = device("d", bindingConditions=["ready"], bindingFailureConditions=["broken"])
    slices = [
        resource_slice([device("z")], name="s-1", driver="b", pool="p", count=2),
        resource_slice([binding], name="s", driver="a", pool="a"),
        resource_slice([device("a")], name="s-0", driver="b", pool="p", count=2),
        resource_slice([device("d")], name="s", driver="a", pool="z"),
    ]
    found = pools(slices)
    assert [str(pool.id) for pool in found] == ["a/z", "b/p", "a/a"]
    assert names(found[1]) == ["a", "z"]


def test_only_the_newest_generation_counts() -> None:
    slices = [resource_slice([device("old")], name="s-0"), resource_slice([device("new")], name="s-1", generation=2)]
    assert [names(pool) for pool in pools(slices)] == [["new"]]


def test_slices_of_other_nodes_complete_a_pool() -> None:
    slices = [
        resource_slice([device("mine")], name="s-0", count=2, place={"nodeName": "node-1"}),
        resource_slice([device("theirs")], name="s-1", count=2, place={"nodeName": "node-2"}),
    ]
    (pool,) = pools(slices)
    assert pool.condition is Condition.USABLE
    assert names(pool) == ["mine"]


def test_a_pool_with_missing_slices_is_incomplete_and_says_how_many() -> None:
    (pool,) = pools([resource_slice([device("d")], count=3)])
    assert pool.condition is Condition.INCOMPLETE
    assert pool.reason == "1 of 3 slices of generation 1"


def test_a_pool_being_replaced_elsewhere_offers_nothing() -> None:
    slices = [
        resource_slice([device("old")], name="s-0", count=2),
        resource_slice([device("new")], name="s-1", count=2, generation=2, place={"nodeName": "node-2"}),
    ]
    assert pools(slices) == []


def test_counters_count_whatever_node_their_slice_is_for() -> None:
    slices = [
        resource_slice(name="s-0", count=2, counters={"set.x": "1"}, place={"nodeSelector": {"nodeSelectorTerms": []}}),
        resource_slice([device("d", draws={"set.x": "1"})], name="s-1", count=2),
    ]
    (pool,) = pools(slices)
    assert pool.condition is Condition.USABLE
    assert list(pool.counter_sets) == ["set"]


def test_the_counters_of_another_nodes_slice_belong_to_the_pool() -> None:
    slices = [
        resource_slice(name="s-0", count=3, counters={"set.x": "1"}, place={"nodeName": "node-2"}),
        resource_slice([device("theirs", draws={"set.x": "1"})], name="s-1", count=3, place={"nodeName": "node-2"}),
        resource_slice([device("mine", draws={"set.x": "1"})], name="s-2", count=3),
    ]
    assert chosen(decide(slices, claim(request()))) == [["mine"]]
    used = AllocatedState()
    used.hold(DeviceId("drv", "pool", "theirs"))
    assert decide(slices, claim(request()), used=used) is None


def test_a_pool_of_another_nodes_counters_alone_offers_nothing_and_breaks_nothing() -> None:
    slices = [
        resource_slice(name="s-0", pool="a", count=3, counters={"set.x": "1"}, place={"nodeName": "node-2"}),
        resource_slice([device("mine")], name="s-1", pool="b"),
    ]
    assert chosen(decide(slices, claim(request(mode="All")))) == [["mine"]]


def test_a_pool_whose_slices_disagree_on_their_number_is_invalid_in_any_order() -> None:
    here, everywhere = (
        resource_slice([device("a")], name="s-0", count=2),
        resource_slice([device("b")], name="s-1", place={"allNodes": True}),
    )
    for slices in ([here, everywhere], [everywhere, here]):
        (pool,) = pools(slices)
        assert pool.condition is Condition.INVALID
        assert pool.reason == "its slices declare different resourceSliceCounts: 1, 2"


def test_older_slices_do_not_make_a_pool_disagree() -> None:
    slices = [resource_slice([device("old")], name="s-0", count=3), resource_slice([device("new")], name="s-1", generation=2)]
    assert [(names(pool), pool.condition) for pool in pools(slices)] == [(["new"], Condition.USABLE)]


@pytest.mark.parametrize(
    "slices, reason",
    [
        ([resource_slice([device("d"), device("d")])], "device d is named twice"),
        (partitioned([device("d", draws={"other.x": "1"})], {"set.x": "1"}), "counter set other, which the pool lacks"),
        (partitioned([device("d", draws={"set.y": "1"})], {"set.x": "1"}), "consumes counter y, which counter set set lacks"),
        (
            [
                resource_slice(name="s-0", count=2, counters={"set.x": "1"}),
                resource_slice(name="s-1", count=2, counters={"set.x": "1"}),
            ],
            "counter set set is named twice",
        ),
        ([resource_slice([device("d", includes=[{"name": "nope"}])])], "no mixin 'nope'"),
    ],
)
def test_a_pool_that_contradicts_itself_is_invalid(slices: list[Object], reason: str) -> None:
    (pool,) = pools(slices)
    assert pool.condition is Condition.INVALID
    assert reason in pool.reason
    with pytest.raises(AllocationError, match="invalid"):
        decide(slices, claim(request()))


def test_an_invalid_pool_is_no_error_where_another_serves() -> None:
    slices = [resource_slice([device("d"), device("d")], pool="a"), resource_slice([device("good")], name="t-0", pool="b")]
    assert chosen(decide(slices, claim(request()))) == [["good"]]


def test_per_device_selection_offers_the_devices_for_the_node() -> None:
    listed = [
        device("theirs", nodeName="node-2"),
        device("mine", nodeName="node-1"),
        device(
            "selected", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
        ),
    ]
    slices = [resource_slice(listed, place={"perDeviceNodeSelection": True})]
    assert chosen(decide(slices, claim(request(count=2)))) == [["mine", "selected"]]
    assert decide(slices, claim(request(count=3))) is None
    assert decide(slices, claim(request()), features=without(Gate.PARTITIONABLE_DEVICES)) is None


def test_a_slice_whose_selector_cannot_be_read_is_named() -> None:
    place: Object = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}}
    with pytest.raises(AllocationError, match=r"slice s-0: .*unknown operator 'Near'"):
        decide([resource_slice([device("d")], place=place)], claim(request()))


def test_devices_beside_counters_count_under_the_older_rule_only() -> None:
    both = [resource_slice([device("d", draws={"set.x": "1"})], counters={"set.x": "1"})]
    older = FeatureGates(enabled=ALL_FEATURES.enabled, version="1.34")
    assert decide(both, claim(request())) is None
    assert chosen(decide(both, claim(request()), features=older)) == [["d"]]
    assert decide(both, claim(request(count=2)), features=older) is None


def test_mixins_are_flattened_before_allocating_unless_their_gate_is_off() -> None:
    compact: Object = {"device": [{"name": "big", "attributes": {"size": {"string": "big"}}}]}
    slices = [resource_slice([device("d", includes=[{"name": "big"}])], mixins=compact)]
    wanted = claim(request(selectors=[{"cel": {"expression": 'device.attributes["drv"].size == "big"'}}]))
    assert chosen(decide(slices, wanted)) == [["d"]]
    with pytest.raises(AllocationError, match="no such key: size"):
        decide(slices, wanted, features=without(Gate.MIXINS))
