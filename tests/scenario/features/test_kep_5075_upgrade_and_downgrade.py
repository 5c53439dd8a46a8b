"""KEP-5075's upgrade, downgrade, upgrade as one story: ``drakit cluster`` ends and starts again with its objects and with other gates."""

import contextlib
import functools
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from drakit_cluster.client.client import ApiClient
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, POD, SLICE
from fakes import demo, forked_cli, waits

Start: TypeAlias = Callable[..., contextlib.AbstractContextManager[ApiClient]]

DRIVER = "nic.example.com"
GATE = "DRAConsumableCapacity=false"
POLICY: Object = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
SHARED: Object = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10Gi", "requestPolicy": POLICY}}}
ONLY_SHARED = f"device.driver == '{DRIVER}' && device.allowMultipleAllocations == true"


@contextlib.contextmanager
def cluster(folder: pathlib.Path, commands: forked_cli.Commands, *gates: str) -> Iterator[ApiClient]:
    """The cluster of the folder with some gates, until it has ended by SIGTERM."""
    asked = [word for gate in gates for word in ("--gate", gate)]
    with demo.running(folder, "cluster", "--folder", str(folder / "c"), "--keep-state", *asked, commands=commands) as process:
        process.read_until("Ctrl-C to stop it")
        with ApiClient.from_kubeconfig(folder / "c" / "kubeconfig") as api:
            yield api
        assert process.end(signal.SIGTERM) == 0


def slice_(pool: str, device: Object) -> Object:
    spec: Object = {
        "driver": DRIVER,
        "allNodes": True,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [device],
    }
    return {"metadata": {"name": pool}, "spec": spec}


def device_class(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": ONLY_SHARED}}]}}


def ask(api: ApiClient, name: str, amount: str) -> Object:
    """Create a claim for an amount of bandwidth, and a pod that uses it; return the claim as stored."""
    exactly: Object = {"deviceClassName": "shared", "capacity": {"requests": {"bandwidth": amount}}}
    metadata: Object = {"name": name, "namespace": "default"}
    claim = api.create(CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
    spec: Object = {"containers": [{"name": "main", "image": "none"}], "resourceClaims": [{"name": "c", "resourceClaimName": name}]}
    api.create(POD, {"metadata": metadata, "spec": spec})
    return claim


def until(probe: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + waits.SECONDS
    while not probe():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def result(api: ApiClient, claim: str) -> Object:
    """What a claim has; {} for nothing."""
    return json_types.mapping(api.get(CLAIM, claim, "default"), "status", "allocation", "devices", "results", 0)


def consumed(api: ApiClient, claim: str) -> str:
    until(lambda: bool(result(api, claim)), f"claim {claim} is allocated")
    return json_types.text(result(api, claim), "consumedCapacity", "bandwidth")


def await_pending(api: ApiClient, pod: str) -> None:
    def says_so() -> bool:
        conditions = json_types.objects(api.get(POD, pod, "default"), "status", "conditions")
        return any((one.get("type"), one.get("reason")) == ("PodScheduled", "Unschedulable") for one in conditions)

    until(says_so, f"pod {pod} is refused")
    assert result(api, pod) == {}


def enabled(start: Start) -> Object:
    """Two claims share a device; return what one of them has."""
    with start() as api:
        api.create(CLASS, device_class("shared"))
        api.create(SLICE, slice_("first", SHARED))
        assert json_types.at(ask(api, "a", "4Gi"), "spec", "devices", "requests", 0, "exactly", "capacity") is not None
        ask(api, "b", "3Gi")
        assert (consumed(api, "a"), consumed(api, "b")) == ("4Gi", "3Gi")
        assert result(api, "a")["shareID"] != result(api, "b")["shareID"]
        return result(api, "a")


def disabled(start: Start, held: Object) -> None:
    """What is stored keeps its fields, also when it is changed; what is new loses them; the shared device goes to nobody else."""
    with start(GATE) as api:
        assert result(api, "a") == held
        stored = api.get(SLICE, "first")
        json_types.child(stored, "metadata")["labels"] = {"touched": "true"}
        assert json_types.mapping(api.update(SLICE, stored), "spec", "devices", 0) == SHARED
        fresh = api.create(SLICE, slice_("second", SHARED))
        assert json_types.mapping(fresh, "spec", "devices", 0) == {"name": "nic", "capacity": {"bandwidth": {"value": "10Gi"}}}
        kept = api.get(CLASS, "shared")
        json_types.child(kept, "metadata")["labels"] = {"touched": "true"}
        api.update(CLASS, kept)
        with pytest.raises(errors.InvalidError, match="allowMultipleAllocations"):
            api.create(CLASS, device_class("another"))
        dropped = ask(api, "c", "9Gi")
        assert json_types.at(dropped, "spec", "devices", "requests", 0, "exactly", "capacity") is None
        await_pending(api, "c")
        api.delete(POD, "b", namespace="default", grace_seconds=0)
        until(lambda: result(api, "b") == {}, "the share of b is given back")
        assert result(api, "a") == held


def enabled_again(start: Start, held: Object) -> None:
    """Shares count as they did; a claim whose amount was dropped has the default."""
    with start() as api:
        assert result(api, "a") == held
        assert consumed(api, "c") == "1Gi", "what it asked for was dropped with the gate off"
        ask(api, "d", "6Gi")
        await_pending(api, "d")
        ask(api, "e", "5Gi")
        assert consumed(api, "e") == "5Gi"
        assert {json_types.text(result(api, name), "pool") for name in "ace"} == {"first"}


def older_scheduler(start: Start, held: Object) -> None:
    """A server that knows the fields beside a scheduler that does not: what is asked for is kept, and nothing shared is given out."""
    with start(f"scheduler:{GATE}") as api:
        api.delete(POD, "e", namespace="default", grace_seconds=0)
        until(lambda: result(api, "e") == {}, "the share of e is given back")
        kept = ask(api, "f", "2Gi")
        assert json_types.at(kept, "spec", "devices", "requests", 0, "exactly", "capacity", "requests") == {"bandwidth": "2Gi"}
        await_pending(api, "f")
        assert result(api, "a") == held
    with start() as api:
        assert consumed(api, "f") == "2Gi"


def test_consumable_capacity_is_enabled_disabled_and_enabled_again(commands: forked_cli.Commands) -> None:
    with demo.short_folder() as folder:
        start = functools.partial(cluster, folder, commands)
        held = enabled(start)
        disabled(start, held)
        enabled_again(start, held)
        older_scheduler(start, held)
