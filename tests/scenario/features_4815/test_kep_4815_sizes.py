"""KEP-4815: slices stay below what etcd takes, at their theoretical most and for a large node. Sizes are of compact JSON, in bytes,
which is more than etcd gets."""

import json
import pathlib
import sys

import pytest

import drakit_command
from drakit.cli import app
from drakit_cluster import manifests
from drakit_cluster.objects import errors, json_types, mixins
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import SLICE
from fakes import kep_4815_samples
from fakes.single_threaded_cluster import SingleThreadedCluster

ETCD_LIMIT = 3 << 19
LARGEST_AMOUNT = "9223372036854775807"
DOMAIN = f"{'d' * 31}.{'e' * 31}"
POOL = ".".join(["p" * 63] * 3)


def size(obj: Object) -> int:
    return len(json.dumps(obj, separators=(",", ":")).encode())


def long(prefix: str, number: int, length: int) -> str:
    return f"{prefix}{number:03}".ljust(length, "x")


def counters(number: int = 32) -> Json:
    return {long("c", n, 63): {"value": LARGEST_AMOUNT} for n in range(number)}


def attributes(number: int = 32) -> Json:
    return {f"{DOMAIN}/{long('a', n, 32)}": {"string": "v" * 64} for n in range(number)}


def fullest_device(number: int, **fields: Json) -> Json:
    """A device with as much as the fields of KEP-4815 may hold, node selectors aside: these have no limit."""
    consumed: list[Json] = [{"counterSet": long("s", n, 63), "counters": counters()} for n in range(2)]
    place = ".".join(["n" * 63] * 3)
    return {"name": long("d", number, 63), "attributes": attributes(), "consumesCounters": consumed, "nodeName": place, **fields}


def holding(**part: Json) -> Object:
    made = kep_4815_samples.slice_of("m" * 253, part, pool=POOL, count=2)
    spec = json_types.mapping(made, "spec")
    del spec["nodeName"]
    spec.update({"driver": "d" * 63, "perDeviceNodeSelection": True})
    return made


def stored(obj: Object) -> int:
    """The size of a slice as the server keeps it."""
    cluster = SingleThreadedCluster()
    cluster.apply(obj)
    return size(cluster.api.list(SLICE).items[0])


@pytest.mark.parametrize("number, taken", [(64, True), (65, False)])
def test_the_largest_slice_of_devices_stays_below_the_limit_of_etcd(number: int, *, taken: bool) -> None:
    largest = holding(devices=[fullest_device(n) for n in range(number)])
    if taken:
        assert ETCD_LIMIT // 2 < stored(largest) < ETCD_LIMIT
    else:
        with pytest.raises(errors.InvalidError, match=r"spec\.devices"):
            stored(largest)


def test_the_largest_slice_is_stored_and_one_above_etcds_limit_is_refused() -> None:
    """Node selectors have no limit of their own: with long ones a slice of few devices is too large, and nothing of it is kept."""
    cluster = SingleThreadedCluster()
    largest = cluster.api.create(SLICE, holding(devices=[fullest_device(n) for n in range(64)]))
    assert ETCD_LIMIT // 2 < size(largest) < ETCD_LIMIT
    values: list[Json] = [long("v", n % 1000, 63) for n in range(30_000)]
    selector: Json = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}]}
    excessive = holding(devices=[{"name": "d", "nodeSelector": selector}])
    json_types.mapping(excessive, "metadata")["name"] = "excessive"
    assert size(excessive) < 3 << 20  # So that the server reads the body.
    with pytest.raises(errors.StorageError, match="etcdserver: request is too large"):
        cluster.api.create(SLICE, excessive)
    assert [json_types.text(one, "metadata", "name") for one in cluster.api.list(SLICE).items] == ["m" * 253]


def test_the_largest_slice_of_counters_stays_far_below_the_limit_of_etcd() -> None:
    sets: list[Json] = [{"name": long("s", n, 63), "counters": counters()} for n in range(8)]
    assert stored(holding(sharedCounters=sets)) < ETCD_LIMIT // 10


def test_the_largest_slice_with_mixins_stays_below_the_limit_of_etcd() -> None:
    names = [long("m", n, 63) for n in range(63)]
    kinds: Json = {"device": [{"name": name, "attributes": attributes()} for name in names]}
    included: Json = [{"name": name} for name in names[:8]]
    devices = [fullest_device(n, includes=included) for n in range(64)]
    assert ETCD_LIMIT // 2 < stored(holding(devices=list(devices), mixins=kinds)) < ETCD_LIMIT


def test_mixins_halve_the_bytes_of_a_large_node_and_no_slice_comes_near_the_limit(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, list[int]] = {}
    for form in ("flat", "mixins"):
        arguments = ["slices", "--mock", "dgx-a100-40gb", "--node", "node-1", "--folder", str(tmp_path), "--family", "gpu"]
        monkeypatch.setattr(sys, "argv", ["drakit", *arguments, "--form", form, "-o", "yaml"])
        with pytest.raises(SystemExit) as ended:
            app.main(drakit_command.Interrupts("drakit"))
        assert not ended.value.code
        found = [one.body for one in manifests.read("slices", capsys.readouterr().out)]
        cluster = SingleThreadedCluster()
        cluster.apply(*found)
        sizes[form] = [size(one) for one in cluster.api.list(SLICE).items]
        assert sum(len(json_types.items(one, "spec", "devices")) for one in found) > 128
        assert max(sizes[form]) < ETCD_LIMIT // 10
    assert sum(sizes["mixins"]) < sum(sizes["flat"]) / 2


@pytest.mark.parametrize("name, percent", [("mixins-of-four-gpus", 97), ("two-gpus", 60)])
def test_mixins_make_the_slices_of_the_text_smaller(name: str, percent: int) -> None:
    compact = kep_4815_samples.mended(name)
    flat = [one | {"spec": mixins.flatten(json_types.mapping(one, "spec"))} for one in compact]
    assert 100 * sum(map(size, compact)) <= percent * sum(map(size, flat))
