"""Entries for tests of the journal: one of everything a grant can hold, and small ones."""

import dataclasses
import datetime
import uuid

from drakit.core import capacity, claim, device, edits, lifecycle, names, quantity, records

BOOT = "5f6a8a5e-8d5e-4f0a-9a53-0d8f3f3a7c11"


def uid(number: int) -> names.ClaimUid:
    """The same claim UID for the same number."""
    return names.ClaimUid(str(uuid.uuid5(uuid.NAMESPACE_DNS, f"claim-{number}.example.com")))


def share(number: int) -> names.ShareId:
    return names.ShareId(str(uuid.uuid5(uuid.NAMESPACE_DNS, f"share-{number}.example.com")))


def ref(number: int) -> claim.ClaimRef:
    return claim.ClaimRef(uid=uid(number), namespace="team-a", name=f"claim-{number}")


def rich_device() -> device.Device:
    """A device that uses every field of the vocabulary."""
    mega = quantity.Quantity.parse("1M")
    return device.Device(
        name="gpu-0-mig-1g",
        attributes={
            "type": "mig",
            "index": 7,
            "healthy": True,
            "driverVersion": device.Version("580.95.5"),
            "resource.kubernetes.io/pcieRoot": "pci0000:00",
            "links": ("a", "b"),
            "numa": (0, 1),
            "flags": (True, False),
            "versions": (device.Version("1.0.0"), device.Version("2.0.0-rc.1")),
        },
        capacity={
            "memory": capacity.Capacity(value=quantity.Quantity.parse("4864Mi")),
            "odd": capacity.Capacity(value=quantity.Quantity.parse("1000.0000001Ki")),
            "bandwidth": capacity.Capacity(
                value=quantity.Quantity.parse("10G"),
                policy=capacity.RequestPolicy(
                    default=mega, valid_range=capacity.ValidRange(min=mega, max=quantity.Quantity.parse("5G"), step=mega)
                ),
            ),
            "lanes": capacity.Capacity(
                value=quantity.Quantity.parse("8"),
                policy=capacity.RequestPolicy(default=quantity.ONE, valid_values=(quantity.ONE, quantity.Quantity.parse("4"))),
            ),
            "free": capacity.Capacity(value=quantity.ONE, policy=capacity.RequestPolicy()),
        },
        consumes=(device.CounterConsumption(counter_set="gpu-0", counters={"memory": quantity.Quantity.parse("4864Mi")}),),
        allow_multiple_allocations=True,
        taints=(
            device.Taint(
                key="gpu.example.com/unhealthy",
                value="xid-79",
                effect=device.TaintEffect.NO_EXECUTE,
                time_added=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            ),
            device.Taint(key="gpu.example.com/plain"),
        ),
        binds_to_node=True,
        binding_conditions=("Ready",),
        binding_failure_conditions=("Failed",),
    )


def rich_edits() -> edits.Edits:
    """Edits that use every field of the vocabulary."""
    return edits.Edits(
        env={"NVIDIA_VISIBLE_DEVICES": "void", "MULTI": "a=b\nc"},
        device_nodes=(
            edits.DeviceNode(path="/dev/nvidia0"),
            edits.DeviceNode(
                path="/dev/nvidia-caps/nvidia-cap3",
                host_path="/run/driver/dev/nvidia-caps/nvidia-cap3",
                type="c",
                major=237,
                minor=0,
                file_mode=0o666,
                permissions="rw",
            ),
        ),
        mounts=(
            edits.Mount(host_path="/usr/bin/smi", container_path="/usr/bin/smi"),
            edits.Mount(host_path="a", container_path="/b", options=(), type="tmpfs"),
        ),
        hooks=(
            edits.Hook(name=edits.HookName.CREATE_RUNTIME, path="/opt/attach", args=("attach", "x y"), env={"A": "1"}, timeout=10),
            edits.Hook(name=edits.HookName.POSTSTOP, path="/opt/detach"),
        ),
        net_devices=(edits.NetDevice(host_interface_name="eth1", name="net0"),),
    )


def rich_grant() -> lifecycle.GrantEntry:
    """A prepared grant that uses every field."""
    return lifecycle.GrantEntry(
        request="gpu/small",
        pool="node-1",
        device=rich_device(),
        share_id=share(1),
        consumed_capacity={"bandwidth": quantity.Quantity.parse("250M")},
        admin_access=True,
        parameters={"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "n": 4}},
        config_source=claim.ConfigSource.CLASS,
        intent={"profile": "1g.5gb", "placement": [0, 1]},
        record={"uuid": "MIG-1", "ids": [1, 2.5, None, True], "big": 2**80},
        edits=rich_edits(),
    )


def grant(
    request: str = "gpu", device_name: str = "gpu-0", *, share_id: names.ShareId | None = None, admin_access: bool = False
) -> lifecycle.GrantEntry:
    """A grant that is begun: no record, no edits."""
    return lifecycle.GrantEntry(
        request=request,
        pool="node-1",
        device=device.Device(name=device_name),
        share_id=share_id,
        admin_access=admin_access,
        intent={"want": request},
    )


def frozen(given: lifecycle.GrantEntry) -> lifecycle.GrantEntry:
    """The grant as a journal gives it back: JSON values are frozen."""
    return dataclasses.replace(
        given,
        parameters=None if given.parameters is None else records.freeze_record(given.parameters),
        intent=records.freeze_record(given.intent),
        record=records.freeze_record(given.record),
    )


def entry(number: int, *grants: lifecycle.GrantEntry) -> lifecycle.Entry:
    """What ``begin`` is given."""
    return lifecycle.Entry(claim=ref(number), state=lifecycle.State.ABSENT, grants=grants or (grant(),), boot_id=BOOT)
