"""KEP-4815: one device in many partitions, which draw from its shared counters."""

import pytest

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import SLICE
from fakes import kep_4815_samples
from fakes.single_threaded_cluster import DRIVER, SingleThreadedCluster, device_request

PROFILE = f"device.attributes['{DRIVER}'].profile == "
FIT = {"7g.40gb": 1, "4g.20gb": 1, "3g.20gb": 2, "2g.10gb": 3, "1g.10gb": 4, "1g.5gb+me": 1, "1g.5gb": 7}
"""How often each profile fits on one GPU: the layout in the text, and one JPEG engine for +me."""
PER_GPU = f"device.attributes['{DRIVER}'].parentIndex == 0 && "


def gpus() -> SingleThreadedCluster:
    """A node with the two A100 of the text."""
    cluster = SingleThreadedCluster()
    cluster.apply(*kep_4815_samples.mended("two-gpus"))
    of_type = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == "
    cluster.device_class("mig.nvidia.com", f"{of_type}'mig'")
    cluster.device_class("gpu.nvidia.com", f"{of_type}'gpu'")
    return cluster


def quarters() -> SingleThreadedCluster:
    """A node with one GPU of 40Gi and its four partitions of 10Gi."""
    cluster = SingleThreadedCluster()
    cluster.apply(*kep_4815_samples.mended("partitions-of-one-gpu"))
    cluster.device_class("gpu")
    return cluster


def partition(profile: str, name: str = "r") -> Object:
    return device_request("mig.nvidia.com", f"{PROFILE}'{profile}'", name=name)


def of_memory(amount: str) -> Object:
    return device_request("gpu", f"device.capacity['{DRIVER}'].memory == quantity('{amount}')")


def drawing(name: str, *consumed: tuple[str, str]) -> Json:
    """A device that draws amounts of the counter memory of sets."""
    return {
        "name": name,
        "consumesCounters": [{"counterSet": owner, "counters": {"memory": {"value": value}}} for owner, value in consumed],
    }


def pool(*devices: Json, sets: Json, driver: str = DRIVER, name: str = "p", **spec: Json) -> list[Object]:
    """The two slices of a pool."""
    found = [
        kep_4815_samples.slice_of(f"{driver}-{name}-0", {"sharedCounters": sets}, pool=name, count=2),
        kep_4815_samples.slice_of(f"{driver}-{name}-1", {"devices": list(devices)}, pool=name, count=2),
    ]
    for one in found:
        json_types.mapping(one, "spec").update({"driver": driver} | spec)
    return found


def memory(name: str, value: str) -> Json:
    return {"name": name, "counters": {"memory": {"value": value}}}


@pytest.mark.parametrize("profile, times", FIT.items())
def test_a_profile_fits_as_often_as_the_layout_of_the_gpu_shows(profile: str, times: int) -> None:
    cluster = gpus()
    wanted = device_request("mig.nvidia.com", f"{PER_GPU}{PROFILE}'{profile}'")
    got = [device for number in range(times) for device in cluster.take(f"c{number}", wanted)]
    assert len(set(got)) == times
    assert cluster.take("more", wanted) == []


def test_the_claim_for_mig_devices_gets_partitions_that_do_not_overlap_on_one_gpu() -> None:
    cluster = gpus()
    cluster.apply(*kep_4815_samples.mended("mig-claim"))
    assert cluster.schedule("p", "mig-devices") == "node-1"
    assert cluster.devices("mig-devices") == [
        "gpu-0-mig-1g-5gb-0",
        "gpu-0-mig-1g-5gb-1",
        "gpu-0-mig-2g-10gb-2-3",
        "gpu-0-mig-3g-20gb-4-7",
    ]


def test_a_gpu_stays_unpartitioned_until_a_claim_takes_a_partition() -> None:
    cluster = gpus()
    assert cluster.take("small", partition("1g.5gb")) == ["gpu-0-mig-1g-5gb-0"]
    assert cluster.take("large", partition("7g.40gb")) == ["gpu-1-mig-7g-40gb-0-7"]
    for name in ("small", "large"):
        cluster.end(name)
    assert cluster.take("large-first", partition("7g.40gb")) == ["gpu-0-mig-7g-40gb-0-7"]
    assert cluster.take("small-second", partition("1g.5gb")) == ["gpu-1-mig-1g-5gb-0"]


def test_a_partition_nullifies_some_others_but_not_all() -> None:
    cluster = gpus()
    on_first = f"{PER_GPU}{PROFILE}"
    assert cluster.take("c0", device_request("mig.nvidia.com", f"{on_first}'4g.20gb'")) == ["gpu-0-mig-4g-20gb-0-3"]
    assert cluster.take("c1", device_request("mig.nvidia.com", f"{on_first}'7g.40gb'")) == []
    assert cluster.take("c2", device_request("mig.nvidia.com", f"{on_first}'3g.20gb'")) == ["gpu-0-mig-3g-20gb-4-7"]
    assert cluster.take("c3", device_request("mig.nvidia.com", f"{on_first}'1g.5gb'")) == []


def test_one_dimension_that_is_used_up_refuses_what_needs_it_and_nothing_else() -> None:
    cluster = gpus()
    media, plain = (device_request("mig.nvidia.com", f"{PER_GPU}{PROFILE}'{profile}'") for profile in ("1g.5gb+me", "1g.5gb"))
    assert cluster.take("c0", media) == ["gpu-0-mig-1g-5gb-me-0"]
    assert cluster.take("c1", media) == []
    assert "needed, none of" in cluster.refusal("c1")
    assert cluster.take("c2", plain) == ["gpu-0-mig-1g-5gb-1"]


def test_the_three_mig_devices_of_the_text_compete_as_it_says() -> None:
    cluster = SingleThreadedCluster()
    cluster.apply(*kep_4815_samples.mended("three-mig-devices"))
    cluster.device_class("gpu")
    small, large = of_memory("4864Mi"), of_memory("9856Mi")
    assert cluster.take("a", small) == ["gpu-0-mig-1g-5gb-0"]
    assert cluster.take("b", small) == ["gpu-0-mig-1g-5gb-1"]
    assert cluster.take("c", large) == []
    cluster.end("a")
    assert cluster.decide("c") == ""
    cluster.end("b")
    assert cluster.decide("c") == "node-1"
    assert cluster.devices("c") == ["gpu-0-mig-2g-10gb-0-1"]


def test_partitions_and_the_full_device_are_never_allocated_together() -> None:
    cluster = quarters()
    whole, quarter = of_memory("40Gi"), of_memory("10Gi")
    assert cluster.take("whole", whole) == ["gpu-0"]
    assert cluster.take("first", quarter) == []
    cluster.end("whole")
    assert [cluster.decide("first"), cluster.devices("first")] == ["node-1", ["gpu-0-partition-0"]]
    assert [cluster.take(f"c{number}", quarter) for number in range(1, 5)] == [
        *([f"gpu-0-partition-{number}"] for number in range(1, 4)),
        [],
    ]
    assert cluster.take("again", whole) == []


def test_counters_are_free_again_when_the_last_user_of_a_claim_ends() -> None:
    cluster = quarters()
    cluster.claim("shared", of_memory("10Gi"))
    assert [cluster.schedule(name, "shared") for name in ("p", "q")] == ["node-1", "node-1"]
    cluster.claim("whole", of_memory("40Gi"))
    assert cluster.schedule("w", "whole") == ""
    cluster.end("p")
    assert cluster.decide("w") == ""
    cluster.end("q")
    assert cluster.decide("w") == "node-1"


def test_a_restarted_scheduler_reads_consumption_from_the_claims() -> None:
    cluster = quarters()
    assert cluster.take("first", of_memory("10Gi")) == ["gpu-0-partition-0"]
    again = cluster.restarted()
    assert again.take("whole", of_memory("40Gi")) == []
    assert again.take("second", of_memory("10Gi")) == ["gpu-0-partition-1"]


def test_the_first_fit_is_taken_so_that_slices_list_the_smallest_first() -> None:
    large, small = drawing("large", ("s", "40Gi")), drawing("small", ("s", "10Gi"))
    for order, first in (((large, small), "large"), ((small, large), "small")):
        cluster = SingleThreadedCluster()
        cluster.apply(*pool(*order, sets=[memory("s", "40Gi")]))
        cluster.device_class("gpu")
        assert cluster.take("any", device_request("gpu")) == [first]


def test_the_capacity_of_a_device_is_independent_of_its_counters() -> None:
    cluster = SingleThreadedCluster()
    device = drawing("d", ("s", "10Gi"))
    assert isinstance(device, dict)
    cluster.apply(*pool(device | {"capacity": {"memory": {"value": "9Gi"}}}, drawing("e", ("s", "10Gi")), sets=[memory("s", "19Gi")]))
    cluster.device_class("gpu")
    assert cluster.take("c", device_request("gpu", f"'memory' in device.capacity['{DRIVER}']")) == ["d"]
    assert cluster.take("none", device_request("gpu")) == []


def test_a_device_may_draw_from_two_sets_and_needs_both() -> None:
    cluster = SingleThreadedCluster()
    sets: Json = [memory("s", "10Gi"), memory("t", "15Gi")]
    devices = (drawing("one", ("t", "10Gi")), drawing("both", ("s", "5Gi"), ("t", "5Gi")), drawing("other", ("s", "6Gi")))
    cluster.apply(*pool(*devices, sets=sets))
    cluster.device_class("gpu")
    assert [cluster.take(name, device_request("gpu")) for name in ("a", "b", "c")] == [["one"], ["both"], []]
    cluster.end("b")
    assert cluster.decide("c") == "node-1"


def test_counter_sets_of_one_name_in_two_pools_are_two() -> None:
    cluster = SingleThreadedCluster()
    for name in ("p", "q"):
        cluster.apply(*pool(drawing(name, ("s", "10Gi")), sets=[memory("s", "10Gi")], name=name))
    cluster.device_class("gpu")
    assert [cluster.take(name, device_request("gpu")) for name in ("a", "b", "c")] == [["p"], ["q"], []]


def test_a_missing_counter_set_makes_the_whole_pool_unusable() -> None:
    cluster = SingleThreadedCluster()
    cluster.apply(*pool(drawing("d", ("elsewhere", "1Gi")), {"name": "plain"}, sets=[memory("s", "10Gi")]))
    cluster.device_class("gpu")
    assert cluster.take("c", device_request("gpu")) == []
    assert "counter set elsewhere, which the pool lacks" in cluster.refusal("c")


def test_only_listed_sizes_are_allocated() -> None:
    assert quarters().take("odd", of_memory("15Gi")) == []


def test_one_claim_fits_static_and_dynamic_partitions() -> None:
    claim = of_memory("10Gi")
    ahead = SingleThreadedCluster()
    devices: Json = [{"name": f"gpu-0-partition-{number}", "capacity": {"memory": {"value": "10Gi"}}} for number in range(4)]
    ahead.apply(kep_4815_samples.slice_of("ahead", {"devices": devices}))
    ahead.device_class("gpu")
    assert ahead.take("c", claim) == quarters().take("c", claim) == ["gpu-0-partition-0"]


@pytest.mark.parametrize(
    "sets, devices, field",
    [
        ([memory(f"s{n}", "1") for n in range(9)], [], "spec.sharedCounters"),
        ([memory("s", "1"), memory("s", "1")], [], r"spec\.sharedCounters\[1\]"),
        ([memory("s.1", "1")], [], r"spec\.sharedCounters\[0\]\.name"),
        ([{"name": "s", "counters": {f"c{n}": {"value": "1"} for n in range(33)}}], [], r"spec\.sharedCounters\[0\]\.counters"),
        ([memory("s", "1")], [drawing("d", ("a", "1"), ("b", "1"), ("c", "1"))], r"spec\.devices\[0\]\.consumesCounters"),
        ([memory("s", "1")], [drawing("d", ("s", "1"), ("s", "1"))], r"spec\.devices\[0\]\.consumesCounters\[1\]"),
        ([memory("s", "1")], [drawing(f"d{n}", ("s", "1")) for n in range(65)], r"spec\.devices"),
    ],
    ids=["sets", "names", "labels", "counters", "drawn-sets", "drawn-twice", "devices"],
)
def test_the_server_enforces_the_limits_of_counters(sets: Json, devices: list[Json], field: str) -> None:
    with pytest.raises(errors.InvalidError, match=field):
        SingleThreadedCluster().apply(*pool(*devices, sets=sets))


def test_counters_and_devices_in_one_slice_need_the_older_rule() -> None:
    together = kep_4815_samples.slice_of("s", {"sharedCounters": [memory("s", "10Gi")], "devices": [drawing("d", ("s", "10Gi"))]})
    with pytest.raises(errors.InvalidError, match="only one of devices and sharedCounters"):
        SingleThreadedCluster().apply(together)
    older = SingleThreadedCluster(gates=FeatureGates.of({"DRAPartitionableDevices": True}, "1.34"))
    older.apply(together)
    older.device_class("gpu")
    assert older.take("c", device_request("gpu")) == ["d"]
    assert len(older.api.list(SLICE).items) == 1
