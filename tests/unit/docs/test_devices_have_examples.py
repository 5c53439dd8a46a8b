"""The examples on the pages of devices are what mock machines publish: values, selectors, capacities, taints and statuses."""

import functools
import json
import re
from collections.abc import Mapping

import pytest

from drakit import machines
from drakit.inputs import documents
from drakit_cluster import cel
from drakit_cluster.objects import devices, json_types
from drakit_cluster.objects.json_types import Object
from fakes import forked_cli
from unit.docs import markdown

REFERENCE = markdown.ROOT / "docs" / "reference"
PAGES = {"gpu": REFERENCE / "devices-gpu.md", "nic": REFERENCE / "devices-nic.md"}
SHOWN = ("dgx-a100-40gb-2gpu", "dgx-h100")
"""The machines whose values the pages show."""
SHARED = ("gpu.shares=4", "gpu.share_memory=true", "nic.shares=64", "nic.whole=[eth2]")
"""Settings for devices in all their forms."""
CONNECTX = """
name: connectx
description: A NIC with virtual functions and RDMA
nics:
- {name: ens1, mac: "02:d9:a1:00:01:00", mtu: 9000, speedMbps: 100000, pciBusID: "0000:8a:00.0", pcieRoot: "pci0000:80", driver: mlx5_core,
   vendor: 15b3, rdmaDevice: mlx5_0, virtualFunctions: 4}
- {name: ens1v0, mac: "02:d9:a1:00:01:01", mtu: 1500, speedMbps: 10000, pciBusID: "0000:8a:00.1", driver: mlx5_core, vendor: 15b3,
   physicalFunction: "0000:8a:00.0", functionNumber: 0}
"""
CLASSES = [markdown.ROOT / "daemonset" / family / "deviceclasses.yaml" for family in PAGES]
_ROW = re.compile(r"^\| `([\w./]+)` \|(.*)\|$", re.MULTILINE)


Fleet = Mapping[tuple[str, str], list[Object]]


@pytest.fixture(scope="module")
def fleet(commands: forked_cli.Commands, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The devices of every mock machine, by machine and driver; ``shared`` is the first with devices in all their forms."""
    found: dict[tuple[str, str], list[Object]] = {}
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "connectx.yaml").write_text(CONNECTX)
    orders: dict[str, tuple[str, ...]] = {name: (name,) for name in machines.names() if not name.startswith("tpu")}
    orders["shared"] = (SHOWN[0], *(word for setting in SHARED for word in ("--set", setting)))
    orders["connectx"] = (
        str(folder / "connectx.yaml"),
        "--family",
        "nic",
        "--set",
        "nic.rules=[{match: ens1v0, speed: 10G}]",
        "--set",
        "nic.whole=[ens1]",
    )
    for key, words in orders.items():
        ran = commands.run("slices", "-o", "json", "--folder", str(folder / key), "--mock", *words)
        assert ran.returncode == 0, ran.stderr
        for item in json.loads(ran.stdout)["items"]:
            found.setdefault((key, item["spec"]["driver"]), []).extend(item["spec"].get("devices", ()))
    return found


def shown(fleet: Fleet, family: str) -> list[Object]:
    """The devices of the machines whose values the pages show."""
    return [device for name in (*SHOWN, "connectx", "shared") for device in fleet.get((name, f"{family}.drakit.dev"), ())]


def values(offered: list[Object]) -> Mapping[str, set[str]]:
    """The values of all attributes and capacities, by name, as a page has them."""
    found: dict[str, set[str]] = {}
    for device in offered:
        parts = json_types.mapping(device, "attributes") | json_types.mapping(device, "capacity")
        for name in parts:
            (content,) = [one for key, one in json_types.mapping(parts, name).items() if key != "requestPolicy"]
            found.setdefault(name, set()).add(json.dumps(content) if isinstance(content, bool) else str(content))
    return found


def rows(family: str) -> Mapping[str, str]:
    """The example of each attribute and capacity in the page's tables."""
    text = PAGES[family].read_text("utf-8")
    parts = [text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0] for title in ("Attributes", "Capacities")]
    found = {}
    for name, rest in _ROW.findall("".join(parts)):
        cells = rest.split(" | ")
        found[name] = cells[-2].strip().strip("`")
    return found


@pytest.mark.parametrize("family", PAGES)
def test_every_example_is_a_value_of_a_mock_machine(fleet: Fleet, family: str) -> None:
    published = values(shown(fleet, family))
    examples = rows(family)
    assert {name: value for name, value in examples.items() if value.strip('"') not in published.get(name, ())} == {}
    names = {name for (_, driver), found in fleet.items() if driver == f"{family}.drakit.dev" for name in values(found)}
    assert names - set(examples) == ({"shares"} if family == "gpu" else set()), "these are in an object on the page"


@functools.cache
def classes() -> Mapping[str, str]:
    """The selectors of the DeviceClasses that drakit installs."""
    items = [item for file in CLASSES for item in documents.load_all(file.read_text("utf-8"))]
    return {item["metadata"]["name"]: item["spec"]["selectors"][0]["cel"]["expression"] for item in items}


@pytest.mark.parametrize("family", PAGES)
def test_every_selector_matches_a_device_and_fails_on_none(fleet: Fleet, family: str) -> None:
    selectors = cel.Selectors(cel.Gates(consumable_capacity=True, list_type_attributes=False))
    driver = f"{family}.drakit.dev"
    offered = [devices.view_of(driver, device) for (_, name), found in fleet.items() if name == driver for device in found]
    used = ""
    for block in [block for block in markdown.blocks(PAGES[family]) if block.mark == "selectors"]:
        candidates = [device for device in offered if selectors.matches(classes()[block.value], device)]
        for line in block.text.splitlines():
            matched = [selectors.matches(line, device) for device in candidates]
            assert any(matched), line
            used += f"{line}\n"
    absent = [name for name in rows(family) if not re.search(rf"\b{name.rpartition('/')[2]}\b", used)]
    assert absent == [], "each attribute and capacity has a selector"


def contains(whole: object, part: object) -> bool:
    """Whether all that is in a part is in the whole object too."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(name in whole and contains(whole[name], value) for name, value in part.items())
    return whole == part


@pytest.mark.parametrize("family", PAGES)
def test_every_object_of_a_device_is_one_of_a_slice(fleet: Fleet, family: str) -> None:
    published = {str(device["name"]): device for device in shown(fleet, family)}
    blocks = [block for block in markdown.blocks(PAGES[family]) if block.mark == "device"]
    assert blocks
    assert [block.value for block in blocks if not contains(published[block.value], documents.load(block.text))] == []


def test_attributes_of_gpus_are_on_the_devices_that_the_page_names(fleet: Fleet) -> None:
    where = dict(re.findall(r"^\| `([\w./]+)` \| \w+ \| ([^|]+) \|", PAGES["gpu"].read_text("utf-8"), re.MULTILINE))
    by_kind: dict[str, list[set[str]]] = {"gpu": [], "mig": []}
    for (_, driver), offered in fleet.items():
        for device in offered if driver == "gpu.drakit.dev" else ():
            kind = json_types.text(device, "attributes", "type", "string").removeprefix("shared-")
            by_kind[kind].append(set(json_types.mapping(device, "attributes")))
    whole, mig = by_kind["gpu"], by_kind["mig"]
    some_whole, some_mig = {name for names in whole for name in names}, {name for names in mig for name in names}
    assert set.intersection(*whole, *mig) >= {name for name, place in where.items() if place == "all"}
    assert set.intersection(*mig) - some_whole == {name for name, place in where.items() if place == "MIG"}
    assert some_whole - some_mig == {name for name, place in where.items() if place.startswith("whole")}
