"""KEP-4815: one device in many partitions, which draw from its shared counters."""

import pytest

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import SLICE
from fakes import feature4815_samples as samples
from fakes.feature4815_cell import DRIVER, Cell, wish

PROFILE = f"device.attributes['{DRIVER}'].profile == "
FIT = {"7g.40gb": 1, "4g.20gb": 1, "3g.20gb": 2, "2g.10gb": 3, "1g.10gb": 4, "1g.5gb+me": 1, "1g.5gb": 7}
"""How often each profile fits on one GPU: the layout in the text, and one JPEG engine for +me."""
PER_GPU = f"device.attributes['{DRIVER}'].parentIndex == 0 && "


def gpus() -> Cell:
    """A node with the two A100 of the text."""
    cell = Cell()
    cell.apply(*samples.mended("two-gpus"))
    of_type = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == "
    cell.device_class("mig.nvidia.com", f"{of_type}'mig'")
    cell.device_class("gpu.nvidia.com", f"{of_type}'gpu'")
    return cell


def quarters() -> Cell:
    """A node with one GPU of 40Gi and its four partitions of 10Gi."""
    cell = Cell()
    cell.apply(*samples.mended("partitions-of-one-gpu"))
    cell.device_class("gpu")
    return cell


def partition(profile: str, name: str = "r") -> Object:
    return wish("mig.nvidia.com", f"{PROFILE}'{profile}'", name=name)


def of_memory(amount: str) -> Object:
    return wish("gpu", f"device.capacity['{DRIVER}'].memory == quantity('{amount}')")


def drawing(name: str, *consumed: tuple[str, str]) -> Json:
    """A device that draws amounts of the counter memory of sets."""
    return {
        "name": name,
        "consumesCounters": [{"counterSet": owner, "counters": {"memory": {"value": value}}} for owner, value in consumed],
    }


def pool(*devices: Json, sets: Json, driver: str = DRIVER, name: str = "p", **spec: Json) -> list[Object]:
    """The two slices of a pool."""
    found = [
        samples.slice_of(f"{driver}-{name}-0", {"sharedCounters": sets}, pool=name, count=2),
        samples.slice_of(f"{driver}-{name}-1", {"devices": list(devices)}, pool=name, count=2),
    ]
    for one in found:
        json_types.mapping(one, "spec").update({"driver": driver} | spec)
    return found


def memory(name: str, value: str) -> Json:
    return {"name": name, "counters": {"memory": {"value": value}}}


@pytest.mark.parametrize("profile, times", FIT.items())
def test_a_profile_fits_as_often_as_the_layout_of_the_gpu_shows(profile: str, times: int) -> None:
    cell = gpus()
    wanted = wish("mig.nvidia.com", f"{PER_GPU}{PROFILE}'{profile}'")
    got = [device for number in range(times) for device in cell.take(f"c{number}", wanted)]
    assert len(set(got)) == times
    assert cell.take("more", wanted) == []


def test_the_claim_for_mig_devices_gets_partitions_that_do_not_overlap_on_one_gpu() -> None:
    cell = gpus()
    cell.apply(*samples.mended("mig-claim"))
    assert cell.schedule("p", "mig-devices") == "node-1"
    assert cell.devices("mig-devices") == [
        "gpu-0-mig-1g-5gb-0",
        "gpu-0-mig-1g-5gb-1",
        "gpu-0-mig-2g-10gb-2-3",
        "gpu-0-mig-3g-20gb-4-7",
    ]


def test_a_gpu_stays_whole_until_a_claim_decides_how_it_is_parted() -> None:
    cell = gpus()
    assert cell.take("small", partition("1g.5gb")) == ["gpu-0-mig-1g-5gb-0"]
    assert cell.take("large", partition("7g.40gb")) == ["gpu-1-mig-7g-40gb-0-7"]
    for name in ("small", "large"):
        cell.end(name)
    assert cell.take("large-first", partition("7g.40gb")) == ["gpu-0-mig-7g-40gb-0-7"]
    assert cell.take("small-second", partition("1g.5gb")) == ["gpu-1-mig-1g-5gb-0"]


def test_a_partition_nullifies_some_others_but_not_all() -> None:
    cell = gpus()
    on_first = f"{PER_GPU}{PROFILE}"
    assert cell.take("c0", wish("mig.nvidia.com", f"{on_first}'4g.20gb'")) == ["gpu-0-mig-4g-20gb-0-3"]
    assert cell.take("c1", wish("mig.nvidia.com", f"{on_first}'7g.40gb'")) == []
    assert cell.take("c2", wish("mig.nvidia.com", f"{on_first}'3g.20gb'")) == ["gpu-0-mig-3g-20gb-4-7"]
    assert cell.take("c3", wish("mig.nvidia.com", f"{on_first}'1g.5gb'")) == []


def test_one_dimension_that_is_used_up_refuses_what_needs_it_and_nothing_else() -> None:
    cell = gpus()
    media, plain = (wish("mig.nvidia.com", f"{PER_GPU}{PROFILE}'{profile}'") for profile in ("1g.5gb+me", "1g.5gb"))
    assert cell.take("c0", media) == ["gpu-0-mig-1g-5gb-me-0"]
    assert cell.take("c1", media) == []
    assert "needed, none of" in cell.refusal("c1")
    assert cell.take("c2", plain) == ["gpu-0-mig-1g-5gb-1"]


def test_the_three_mig_devices_of_the_text_compete_as_it_says() -> None:
    cell = Cell()
    cell.apply(*samples.mended("three-mig-devices"))
    cell.device_class("gpu")
    small, large = of_memory("4864Mi"), of_memory("9856Mi")
    assert cell.take("a", small) == ["gpu-0-mig-1g-5gb-0"]
    assert cell.take("b", small) == ["gpu-0-mig-1g-5gb-1"]
    assert cell.take("c", large) == []
    cell.end("a")
    assert cell.decide("c") == ""
    cell.end("b")
    assert cell.decide("c") == "node-1"
    assert cell.devices("c") == ["gpu-0-mig-2g-10gb-0-1"]


def test_partitions_and_the_full_device_are_never_allocated_together() -> None:
    cell = quarters()
    whole, quarter = of_memory("40Gi"), of_memory("10Gi")
    assert cell.take("whole", whole) == ["gpu-0"]
    assert cell.take("first", quarter) == []
    cell.end("whole")
    assert [cell.decide("first"), cell.devices("first")] == ["node-1", ["gpu-0-partition-0"]]
    assert [cell.take(f"c{number}", quarter) for number in range(1, 5)] == [*([f"gpu-0-partition-{number}"] for number in range(1, 4)), []]
    assert cell.take("again", whole) == []


def test_counters_are_free_again_when_the_last_user_of_a_claim_ends() -> None:
    cell = quarters()
    cell.claim("shared", of_memory("10Gi"))
    assert [cell.schedule(name, "shared") for name in ("p", "q")] == ["node-1", "node-1"]
    cell.claim("whole", of_memory("40Gi"))
    assert cell.schedule("w", "whole") == ""
    cell.end("p")
    assert cell.decide("w") == ""
    cell.end("q")
    assert cell.decide("w") == "node-1"


def test_a_scheduler_that_starts_anew_reads_what_is_consumed_from_the_claims() -> None:
    cell = quarters()
    assert cell.take("first", of_memory("10Gi")) == ["gpu-0-partition-0"]
    again = cell.restarted()
    assert again.take("whole", of_memory("40Gi")) == []
    assert again.take("second", of_memory("10Gi")) == ["gpu-0-partition-1"]


def test_the_first_fit_is_taken_so_that_slices_list_the_smallest_first() -> None:
    large, small = drawing("large", ("s", "40Gi")), drawing("small", ("s", "10Gi"))
    for order, first in (((large, small), "large"), ((small, large), "small")):
        cell = Cell()
        cell.apply(*pool(*order, sets=[memory("s", "40Gi")]))
        cell.device_class("gpu")
        assert cell.take("any", wish("gpu")) == [first]


def test_what_a_device_offers_and_what_it_draws_are_two_things() -> None:
    cell = Cell()
    device = drawing("d", ("s", "10Gi"))
    assert isinstance(device, dict)
    cell.apply(*pool(device | {"capacity": {"memory": {"value": "9Gi"}}}, drawing("e", ("s", "10Gi")), sets=[memory("s", "19Gi")]))
    cell.device_class("gpu")
    assert cell.take("c", wish("gpu", f"'memory' in device.capacity['{DRIVER}']")) == ["d"]
    assert cell.take("none", wish("gpu")) == []


def test_a_device_may_draw_from_two_sets_and_needs_both() -> None:
    cell = Cell()
    sets: Json = [memory("s", "10Gi"), memory("t", "15Gi")]
    devices = (drawing("one", ("t", "10Gi")), drawing("both", ("s", "5Gi"), ("t", "5Gi")), drawing("other", ("s", "6Gi")))
    cell.apply(*pool(*devices, sets=sets))
    cell.device_class("gpu")
    assert [cell.take(name, wish("gpu")) for name in ("a", "b", "c")] == [["one"], ["both"], []]
    cell.end("b")
    assert cell.decide("c") == "node-1"


def test_counter_sets_of_one_name_in_two_pools_are_two() -> None:
    cell = Cell()
    for name in ("p", "q"):
        cell.apply(*pool(drawing(name, ("s", "10Gi")), sets=[memory("s", "10Gi")], name=name))
    cell.device_class("gpu")
    assert [cell.take(name, wish("gpu")) for name in ("a", "b", "c")] == [["p"], ["q"], []]


def test_a_counter_set_that_the_pool_lacks_keeps_everybody_off_the_pool() -> None:
    cell = Cell()
    cell.apply(*pool(drawing("d", ("elsewhere", "1Gi")), {"name": "plain"}, sets=[memory("s", "10Gi")]))
    cell.device_class("gpu")
    assert cell.take("c", wish("gpu")) == []
    assert "counter set elsewhere, which the pool lacks" in cell.refusal("c")


def test_only_listed_sizes_are_allocated() -> None:
    assert quarters().take("odd", of_memory("15Gi")) == []


def test_one_claim_fits_partitions_made_ahead_and_partitions_made_on_demand() -> None:
    claim = of_memory("10Gi")
    ahead = Cell()
    devices: Json = [{"name": f"gpu-0-partition-{number}", "capacity": {"memory": {"value": "10Gi"}}} for number in range(4)]
    ahead.apply(samples.slice_of("ahead", {"devices": devices}))
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
def test_limits_of_counters_are_held_by_the_server(sets: Json, devices: list[Json], field: str) -> None:
    with pytest.raises(errors.InvalidError, match=field):
        Cell().apply(*pool(*devices, sets=sets))


def test_counters_beside_devices_are_refused_unless_the_older_rule_is_asked_for() -> None:
    together = samples.slice_of("s", {"sharedCounters": [memory("s", "10Gi")], "devices": [drawing("d", ("s", "10Gi"))]})
    with pytest.raises(errors.InvalidError, match="only one of devices and sharedCounters"):
        Cell().apply(together)
    older = Cell(gates=FeatureGates.of({"DRACountersBesideDevices": True}))
    older.apply(together)
    older.device_class("gpu")
    assert older.take("c", wish("gpu")) == ["d"]
    assert len(older.api.list(SLICE).items) == 1
