"""What every ``ports.ClaimStatuses`` promises: the fake, and applies and JSON patches at the local API server with the driver's own rights."""

import itertools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from drakit.core import claim as claims
from drakit.core import claim_status, errors, names
from drakit.kube import client, status, status_patch, transport
from drakit_cluster.access import roles, users
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from fakes import byte_comparing_transport, claim_statuses, real_clock
from unit.cluster import samples

DRIVER, NODE = "gpu.drakit.dev", "n1"
SHARE = names.ShareId(samples.SHARE)
READY = claim_status.Condition(type="Ready", status=True, reason="Prepared", message="fine")
BROKEN = claim_status.Condition(type="Ready", status=False, reason="DeviceGone", message="no such device")
BOUND = claim_status.Condition(type="example.com/Attached", status=True, reason="Bound")
LINK = claim_status.Condition(type="example.com/LinkUp", status=True, reason="Carrier")

Standing = dict[str, tuple[dict[str, tuple[bool, str]], object]]


class World:
    """One claim with two devices of the driver, one of them a share, and one device of another driver."""

    store: Any
    ref: claims.ClaimRef

    def standing(self) -> Standing:
        """Of each of our devices: its conditions, and its values."""
        raise NotImplementedError

    def replace(self) -> None:
        """The claim is deleted and another of its name made."""
        raise NotImplementedError

    def deallocate(self) -> None:
        raise NotImplementedError


class FakeWorld(World):
    def __init__(self) -> None:
        self.store = claim_statuses.FakeStatuses(NODE)
        self.store.lasting = {BOUND.type}
        self.ref = claims.ClaimRef(uid=names.ClaimUid("0f2c8d3e-1a5b-4c7d-9e8f-102938475610"), namespace="default", name="c1")
        self.store.allocated[self.ref.uid] = {(NODE, "gpu-0", ""), (NODE, "pipe", SHARE)}

    def standing(self) -> Standing:
        found = self.store.standing.get(self.ref.uid, {})
        return {key[1]: ({one.type: (one.status, one.reason) for one in said.conditions}, dict(said.values)) for key, said in found.items()}

    def replace(self) -> None:
        del self.store.allocated[self.ref.uid]

    deallocate = replace


class RealWorld(World):
    def __init__(self, memory: registry.Registry, store: status.ApiStatuses) -> None:
        self.memory = memory
        self.store = store
        memory.create(resources.CLAIM, samples.claim())
        self.allocate()
        self.ref = claims.ClaimRef(uid=names.ClaimUid(json_types.text(self.stored(), "metadata", "uid")), namespace="default", name="c1")

    def stored(self) -> Object:
        return self.memory.get(resources.CLAIM, "c1", "default")

    def allocate(self) -> None:
        place: Json = {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}],
        }
        conditional = samples.result() | {"bindingConditions": [BOUND.type], "bindingFailureConditions": ["example.com/Failed"]}
        results = (conditional, samples.result("pipe", share=SHARE), samples.result("nic-0", driver="nic.drakit.dev"))
        wanted = samples.allocated(self.stored(), *results)
        json_types.mapping(wanted, "status", "allocation")["nodeSelector"] = place
        self.memory.update(resources.CLAIM, wanted, subresource="status")

    def devices(self) -> list[Object]:
        return [one for one in json_types.objects(self.stored(), "status", "devices") if one["driver"] == DRIVER]

    def standing(self) -> Standing:
        return {
            json_types.text(one, "device"): (
                {
                    json_types.text(each, "type"): (each["status"] == "True", json_types.text(each, "reason"))
                    for each in json_types.objects(one, "conditions")
                },
                one.get("data", {}),
            )
            for one in self.devices()
        }

    def replace(self) -> None:
        self.memory.delete(resources.CLAIM, "c1", namespace="default")
        self.memory.create(resources.CLAIM, samples.claim())
        self.allocate()

    def deallocate(self) -> None:
        found = self.stored()
        found["status"] = {}
        self.memory.update(resources.CLAIM, found, subresource="status")


@pytest.fixture
def guarded() -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        yield running


Connect = Callable[..., status.ApiStatuses]


@pytest.fixture
def connect(guarded: apiserver.ApiServer, tmp_path: pathlib.Path) -> Connect:
    """A writer's connection, with the rights of the manifests; ``node`` empty means a token without a node."""
    for resource, made in roles.driver_objects("drakit-system", "drakit"):
        guarded.registry.create(resource, made)
    authority = tmp_path / "ca.pem"
    authority.write_bytes(guarded.ca_pem)

    def open_(*, driver: str = DRIVER, node: str = NODE, user: str = "system:serviceaccount:drakit-system:drakit") -> status.ApiStatuses:
        token = guarded.issue_token(user, extra={users.NODE_NAME: (node,)} if node else {})
        api = client.connect_to(guarded.url, token=token, ca_file=authority)
        return status.ApiStatuses(api, status.Writer(driver=driver, node=NODE, pool=NODE), real_clock.RealClock())

    return open_


@pytest.fixture
def real(guarded: apiserver.ApiServer, connect: Connect) -> RealWorld:
    return RealWorld(guarded.registry, connect())


def refusing(
    real: RealWorld, refused: str = byte_comparing_transport.ALLOCATION, *, always: str = ""
) -> byte_comparing_transport.ByteComparingTransport:
    """Make the world's connection refuse applies of statuses, or every write. Somebody's apply makes the local server keep managedFields."""
    applied: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"labels": {"a": "b"}}}
    real.memory.patch(resources.CLAIM, "c1", applied, namespace="default", kind=PatchKind.APPLY, manager="somebody")
    api = byte_comparing_transport.ByteComparingTransport(real.store._api, refused, refused_always=always)
    real.store = status.ApiStatuses(api, status.Writer(driver=DRIVER, node=NODE, pool=NODE), real_clock.RealClock())
    return api


@pytest.fixture(params=["fake", "apply", "patch"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "fake":
        return FakeWorld()
    real: RealWorld = request.getfixturevalue("real")
    if request.param == "patch":
        refusing(real)
    return real


class Listening:
    """A connection that records the method of each request."""

    def __init__(self, api: transport.Transport) -> None:
        self._api = api
        self.methods: list[str] = []

    def request(self, method: str, path: str, **more: Any) -> transport.Object:
        self.methods.append(method)
        return self._api.request(method, path, **more)

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> transport.Stream:
        return self._api.stream(path, query=query, timeout=timeout)


@pytest.fixture
def listening(real: RealWorld) -> Listening:
    """The world's connection; its claim was just read."""
    api = Listening(real.store._api)
    real.store = status.ApiStatuses(api, status.Writer(driver=DRIVER, node=NODE, pool=NODE), real_clock.RealClock())
    real.store.seen(real.ref, real.stored())
    return api


def said(device: str, *conditions: claim_status.Condition, share: names.ShareId | None = None, **values: Any) -> claim_status.StatusChange:
    return claim_status.of_device(claim_status.DeviceStatus(device=device, share_id=share, conditions=conditions, values=values), NODE)


def test_a_device_status_stays_until_the_next_one_replaces_it(world: World) -> None:
    world.store.write(world.ref, said("gpu-0", LINK, temperature=40))
    assert world.standing() == {"gpu-0": ({LINK.type: (True, "Carrier")}, {"temperature": 40})}
    world.store.write(world.ref, said("gpu-0", claim_status.Condition(type="Other", status=False, reason="Because")))
    assert world.standing() == {"gpu-0": ({"Other": (False, "Because")}, {})}


def test_each_device_and_each_share_id_has_a_status_of_its_own(world: World) -> None:
    world.store.write(world.ref, said("gpu-0", LINK))
    world.store.write(world.ref, said("pipe", LINK, share=SHARE, rate=5))
    assert world.standing() == {"gpu-0": ({LINK.type: (True, "Carrier")}, {}), "pipe": ({LINK.type: (True, "Carrier")}, {"rate": 5})}


def test_ready_is_set_on_all_devices_and_other_conditions_stay(world: World) -> None:
    world.store.write(world.ref, said("gpu-0", LINK, temperature=40))
    world.store.write(world.ref, claim_status.StatusChange(ready=BROKEN))
    assert world.standing() == {
        "gpu-0": ({LINK.type: (True, "Carrier"), "Ready": (False, "DeviceGone")}, {"temperature": 40}),
        "pipe": ({"Ready": (False, "DeviceGone")}, {}),
    }
    world.store.write(world.ref, said("gpu-0", LINK))
    assert world.standing()["gpu-0"] == ({LINK.type: (True, "Carrier"), "Ready": (False, "DeviceGone")}, {})


def test_a_binding_condition_stays_beside_other_conditions_until_deallocation(world: World) -> None:
    world.store.write(world.ref, said("gpu-0", LINK, temperature=40))
    world.store.write(world.ref, claim_status.StatusChange(bound={(NODE, "gpu-0", ""): BOUND}))
    assert world.standing() == {"gpu-0": ({LINK.type: (True, "Carrier"), BOUND.type: (True, "Bound")}, {"temperature": 40})}
    world.store.write(world.ref, said("gpu-0", temperature=50))
    assert world.standing() == {"gpu-0": ({BOUND.type: (True, "Bound")}, {"temperature": 50})}
    world.store.write(world.ref, claim_status.StatusChange(cleared=True))
    assert world.standing() == {"gpu-0": ({BOUND.type: (True, "Bound")}, {})}


def test_a_binding_condition_in_the_queue_survives_later_updates(world: World) -> None:
    bound = claim_status.StatusChange(bound={(NODE, "gpu-0", ""): BOUND})
    world.store.write(world.ref, bound.then(said("gpu-0", LINK)).then(claim_status.StatusChange(ready=READY)))
    assert set(world.standing()["gpu-0"][0]) == {BOUND.type, LINK.type, "Ready"}
    world.store.write(world.ref, bound.then(claim_status.StatusChange(cleared=True)))
    assert world.standing() == {"gpu-0": ({BOUND.type: (True, "Bound")}, {})}


def test_clearing_removes_every_condition_of_the_driver(world: World) -> None:
    world.store.write(world.ref, said("gpu-0", LINK, temperature=40))
    world.store.write(world.ref, claim_status.StatusChange(cleared=True))
    assert world.standing() == {}
    assert world.store.is_blank(world.ref.uid)


def test_a_device_that_is_not_allocated_gets_no_status(world: World) -> None:
    world.store.write(world.ref, said("gpu-7", LINK).then(said("gpu-0", LINK)))
    assert set(world.standing()) == {"gpu-0"}


def test_a_claim_that_was_replaced_or_deallocated_is_not_touched(world: World) -> None:
    world.replace()
    with pytest.raises(errors.ClaimError):
        world.store.write(world.ref, said("gpu-0", LINK))
    assert world.standing() == {}


def test_a_claim_without_allocation_has_no_status_to_write(world: World) -> None:
    world.deallocate()
    with pytest.raises(errors.ClaimError):
        world.store.write(world.ref, said("gpu-0", LINK))


def condition(world: RealWorld, device: str, kind: str) -> Object:
    (found,) = [one for one in world.devices() if one["device"] == device]
    (wanted,) = [one for one in json_types.objects(found, "conditions") if one["type"] == kind]
    return wanted


def test_the_time_of_a_condition_is_that_of_its_last_change(real: RealWorld) -> None:
    real.store.write(real.ref, said("gpu-0", LINK))
    stored = real.stored()
    for one in json_types.objects(stored, "status", "devices"):
        json_types.objects(one, "conditions")[0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    real.memory.update(resources.CLAIM, stored, subresource="status")
    real.store.write(real.ref, said("gpu-0", claim_status.Condition(type=LINK.type, status=True, reason="StillCarrier")))
    assert condition(real, "gpu-0", LINK.type)["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    real.store.write(real.ref, said("gpu-0", claim_status.Condition(type=LINK.type, status=False, reason="NoCarrier")))
    assert condition(real, "gpu-0", LINK.type)["lastTransitionTime"] != "2026-01-01T00:00:00Z"


def test_an_unchanged_status_is_not_written_again(real: RealWorld) -> None:
    change = said("gpu-0", LINK, temperature=40).then(claim_status.StatusChange(ready=READY))
    real.store.write(real.ref, change)
    version = json_types.text(real.stored(), "metadata", "resourceVersion")
    real.store.write(real.ref, change)
    assert json_types.text(real.stored(), "metadata", "resourceVersion") == version


def test_a_new_process_continues_from_the_stored_status(real: RealWorld, connect: Connect) -> None:
    real.store.write(real.ref, said("gpu-0", LINK, temperature=40))
    connect().write(real.ref, said("pipe", LINK, share=SHARE))
    assert set(real.standing()) == {"gpu-0", "pipe"}
    connect().write(real.ref, claim_status.StatusChange(cleared=True))
    assert real.standing() == {}


def test_conditions_of_other_writers_stay(real: RealWorld, connect: Connect) -> None:
    other = connect(driver="nic.drakit.dev")
    other.write(real.ref, said("nic-0", LINK))
    real.store.write(real.ref, said("gpu-0", LINK))
    real.store.write(real.ref, claim_status.StatusChange(cleared=True))
    (left,) = json_types.objects(real.stored(), "status", "devices")
    assert left["device"] == "nic-0"


def test_network_data_is_written_in_the_fields_of_the_api(real: RealWorld) -> None:
    network = claim_status.NetworkStatus(interface="net1", addresses=("10.99.1.3/16",), hardware_address="02:00:00:00:00:01")
    real.store.write(real.ref, claim_status.of_device(claim_status.DeviceStatus(device="gpu-0", network=network), NODE))
    (found,) = real.devices()
    assert found["networkData"] == {"interfaceName": "net1", "ips": ["10.99.1.3/16"], "hardwareAddress": "02:00:00:00:00:01"}


def test_a_missing_right_is_reported_with_its_fix_and_does_not_mean_a_deleted_claim(real: RealWorld, connect: Connect) -> None:
    for store, missing in (
        (connect(driver="other.example.com"), None),
        (connect(node=""), "associated-node:patch on resourceclaims/driver gpu.drakit.dev"),
        (connect(node="n2"), "associated-node:patch on resourceclaims/driver gpu.drakit.dev"),
    ):
        if missing is None:
            store.write(real.ref, said("gpu-0", LINK))  # Another driver has no device in this claim, so there is nothing to write.
            continue
        with pytest.raises(errors.ApiError, match=missing) as raised:
            store.write(real.ref, said("gpu-0", LINK))
        assert raised.value.status == 422
    assert real.standing() == {}


def test_a_right_to_statuses_that_is_missing_is_reported_with_its_fix(real: RealWorld) -> None:
    role = real.memory.get(resources.CLUSTER_ROLE, "drakit")
    role["rules"] = [one for one in json_types.objects(role, "rules") if one["resources"] != ["resourceclaims/status"]]
    real.memory.update(resources.CLUSTER_ROLE, role)
    with pytest.raises(errors.ApiError, match="; allow its service account to patch resourceclaims/status") as raised:
        real.store.write(real.ref, said("gpu-0", LINK))
    assert raised.value.status == 403
    assert real.standing() == {}


class Between:
    """A connection on which something happens between what is read and what is written of it."""

    def __init__(self, api: Any, event: Callable[[], None]) -> None:
        self._api = api
        self._event = event

    def request(self, method: str, path: str, **rest: Any) -> Any:
        if method == "PATCH":
            self._event()
        return self._api.request(method, path, **rest)


def test_a_claim_deallocated_during_a_status_write_counts_as_gone_not_as_an_error(real: RealWorld) -> None:
    api: Any = Between(real.store._api, real.deallocate)
    racing = status.ApiStatuses(api, status.Writer(driver=DRIVER, node=NODE, pool=NODE), real_clock.RealClock())
    with pytest.raises(errors.ClaimError, match="was deleted, replaced, or is not allocated"):
        racing.write(real.ref, said("gpu-0", LINK))
    assert real.standing() == {}


def test_a_claim_without_a_status_counts_as_empty_until_one_is_written(real: RealWorld) -> None:
    assert not real.store.is_blank(real.ref.uid), "nothing is known yet"
    real.store.seen(real.ref, real.stored())
    assert real.store.is_blank(real.ref.uid)
    real.store.write(real.ref, said("gpu-0", LINK))
    assert not real.store.is_blank(real.ref.uid)
    real.store.seen(real.ref, real.stored())
    assert not real.store.is_blank(real.ref.uid)


REFUSALS = [byte_comparing_transport.ALLOCATION, byte_comparing_transport.ALLOCATION_TO_ADMIN, byte_comparing_transport.OTHER_DRIVER]


@pytest.mark.parametrize("refused", REFUSALS)
def test_where_apply_fails_only_the_drivers_own_entries_are_patched(real: RealWorld, connect: Connect, refused: str) -> None:
    connect(driver="nic.drakit.dev").write(real.ref, said("nic-0", LINK))
    api = refusing(real, refused)
    real.store.write(real.ref, said("gpu-0", LINK).then(said("pipe", LINK, share=SHARE)))
    real.store.write(real.ref, said("pipe", share=SHARE, rate=5, limits={"z": 1, "a": 2}))
    assert json.dumps(real.devices()[-1]["data"]) == '{"limits": {"a": 2, "z": 1}, "rate": 5}'
    real.store.write(real.ref, claim_status.StatusChange(cleared=True))
    first = [("add", "/status/devices/-"), ("add", "/status/devices/-")]
    assert api.steps() == [*first, ("replace", "/status/devices/2"), ("remove", "/status/devices/2"), ("remove", "/status/devices/1")]
    (left,) = json_types.objects(real.stored(), "status", "devices")
    assert left["device"] == "nic-0"


def test_after_one_patch_a_claim_is_always_patched(real: RealWorld) -> None:
    api = refusing(real)
    real.store.write(real.ref, said("gpu-0", LINK))
    real.store.write(real.ref, said("gpu-0", temperature=40))
    assert [kind for kind, _ in api.writes] == [status.APPLY_TYPE, status_patch.PATCH_TYPE, status_patch.PATCH_TYPE]
    assert real.standing() == {"gpu-0": ({}, {"temperature": 40})}


def test_a_patch_takes_over_applied_fields_and_keeps_the_fields_of_others(real: RealWorld) -> None:
    real.store.write(real.ref, said("gpu-0", LINK, temperature=40))
    stored = real.stored()
    (entry,) = json_types.objects(stored, "status", "devices")
    entry["conditions"] = [*json_types.objects(entry, "conditions"), {**condition(real, "gpu-0", LINK.type), "type": "example.com/Theirs"}]
    real.memory.update(resources.CLAIM, stored, subresource="status")
    refusing(real)
    real.store.write(real.ref, claim_status.StatusChange(cleared=True))
    assert real.standing() == {"gpu-0": ({"example.com/Theirs": (True, "Carrier")}, {})}


def test_a_patch_with_a_conflict_is_rebuilt_from_the_current_status(real: RealWorld, connect: Connect) -> None:
    other, api = connect(driver="nic.drakit.dev"), refusing(real)

    def overtake() -> None:
        api.before_patch = byte_comparing_transport.nothing
        other.write(real.ref, said("nic-0", LINK))

    api.before_patch = overtake
    real.store.write(real.ref, said("gpu-0", LINK))
    assert {one["device"] for one in json_types.objects(real.stored(), "status", "devices")} == {"nic-0", "gpu-0"}


def test_a_patch_that_keeps_conflicting_is_retried_later(real: RealWorld) -> None:
    api, numbers = refusing(real), itertools.count()

    def label() -> None:
        patch: Object = {"metadata": {"labels": {"a": str(next(numbers))}}}
        real.memory.patch(resources.CLAIM, "c1", patch, namespace="default", kind=PatchKind.MERGE)

    api.before_patch = label
    with pytest.raises(errors.ApiError) as raised:
        real.store.write(real.ref, said("gpu-0", LINK))
    assert (raised.value.status, next(numbers)) == (409, 20)


@pytest.mark.parametrize(
    "refused, fix",
    [
        (byte_comparing_transport.ALLOCATION, "stored with white space .* create the claim with kubectl or with compact JSON"),
        (byte_comparing_transport.OTHER_DRIVER, "another driver .* that driver must write compact JSON"),
    ],
)
def test_a_status_that_nobody_can_write_is_reported_with_the_fix_after_two_tries(real: RealWorld, refused: str, fix: str) -> None:
    api = refusing(real, always=refused)
    with pytest.raises(errors.ConfigError, match=fix):
        real.store.write(real.ref, said("gpu-0", LINK))
    assert [kind for kind, _ in api.writes] == [status.APPLY_TYPE, status_patch.PATCH_TYPE]


def test_a_managers_name_fits_whatever_the_node_is_called() -> None:
    assert status.Writer(driver=DRIVER, node="n1", pool="n1").field_owner == "gpu.drakit.dev/n1"
    long = [status.Writer(driver=DRIVER, node=f"{'n' * 200}{end}", pool="p").field_owner for end in "ab"]
    assert all(len(name) <= 128 for name in long)
    assert long[0] != long[1]


def test_a_claim_that_was_just_read_or_written_is_not_read_again(real: RealWorld, listening: Listening) -> None:
    real.store.write(real.ref, said("gpu-0", LINK, temperature=40))
    real.store.write(real.ref, claim_status.StatusChange(ready=READY))
    assert listening.methods == ["PATCH", "PATCH"]
    assert real.standing()["gpu-0"] == ({LINK.type: (True, "Carrier"), "Ready": (True, "Prepared")}, {"temperature": 40})


def test_a_claim_that_changed_since_it_was_read_is_read_again(real: RealWorld, connect: Connect, listening: Listening) -> None:
    connect().write(real.ref, said("gpu-0", LINK, temperature=40))  # another process of the same driver
    real.store.write(real.ref, claim_status.StatusChange(ready=READY))
    assert listening.methods == ["PATCH", "GET", "PATCH"]
    assert real.standing()["gpu-0"] == ({LINK.type: (True, "Carrier"), "Ready": (True, "Prepared")}, {"temperature": 40})


def test_a_status_that_somebody_removed_is_written_again(real: RealWorld, listening: Listening) -> None:
    real.store.write(real.ref, said("gpu-0", LINK))
    found = real.stored()
    json_types.mapping(found, "status").pop("devices")
    real.memory.update(resources.CLAIM, found, subresource="status")
    real.store.write(real.ref, said("gpu-0", LINK))
    assert real.standing() == {"gpu-0": ({LINK.type: (True, "Carrier")}, {})}


def test_a_claim_that_was_replaced_since_it_was_read_gets_no_status(real: RealWorld, listening: Listening) -> None:
    real.replace()
    with pytest.raises(errors.ClaimError):
        real.store.write(real.ref, said("gpu-0", LINK))
    assert listening.methods == ["PATCH", "GET"]
    assert real.standing() == {}
