"""The machine is what tests of real drivers rely on."""

import pathlib
import subprocess

CGROUPS = pathlib.Path("/sys/fs/cgroup")
NETWORK = pathlib.Path("/sys/class/net")


def driver_of(interface: pathlib.Path) -> str:
    return (interface / "device/driver").resolve().name


def test_systemd_runs_with_the_unified_cgroup_hierarchy() -> None:
    assert pathlib.Path("/proc/1/comm").read_text().strip() == "systemd"
    assert {"cpu", "memory", "pids"} <= set((CGROUPS / "cgroup.controllers").read_text().split())


def test_it_has_one_nic_with_virtual_functions_and_a_partner_on_the_wire() -> None:
    drivers = sorted(driver_of(interface) for interface in NETWORK.iterdir() if (interface / "device").exists())
    assert drivers == ["igb", "virtio_net"]
    (nic,) = (interface for interface in NETWORK.iterdir() if driver_of(interface) == "igb")
    assert (nic / "device/sriov_totalvfs").read_text().strip() == "7"


def test_no_nic_has_a_default_route() -> None:
    routes = [
        subprocess.run(["ip", version, "route", "show", "default"], check=True, capture_output=True).stdout for version in ("-4", "-6")
    ]
    assert routes == [b"", b""]
