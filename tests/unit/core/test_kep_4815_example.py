"""KEP-4815's server with two A100 GPUs: its mixins flatten to exactly the devices that the text describes.

The table below is written from NVIDIA's profile tables as the text quotes them, not from the document's mixins.
"""

import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from drakit.core import device, inventory, quantity
from drakit.core.slices import mixin_factoring, paging, resource_slice
from fakes import slice_document

DOCUMENT = pathlib.Path(__file__).parents[2] / "golden" / "kep-4815-two-gpus.yaml"
UUIDS = ("GPU-f27658d7-1427-4974-9dfe-45cc9ca77b34", "GPU-e43c1138-8af2-4cfe-af1c-988dbd476754")
MODEL: dict[str, device.AttributeValue] = {
    "architecture": "Ampere",
    "brand": "Nvidia",
    "cudaComputeCapability": "8.0",
    "productName": "Mock NVIDIA A100-SXM4-40GB",
    "cudaDriverVersion": device.Version("12.4.0"),
    "driverVersion": device.Version("550.54.15"),
}
COUNTER_OF = {
    "copyEngines": "copy-engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg-engines",
    "memory": "memory",
    "multiprocessors": "multiprocessors",
    "ofaEngines": "ofa-engines",
} | {f"memorySlice{n}": f"memory-slice-{n}" for n in range(8)}


class Profile(NamedTuple):
    """One row: copy engines, decoders, JPEG engines, memory, multiprocessors, OFA engines, and the memory slices of each placement."""

    name: str
    copies: int
    decoders: int
    jpegs: int
    memory: str
    processors: int
    ofas: int
    placements: tuple[range, ...]


PROFILES = {
    "": Profile("", 7, 5, 1, "40Gi", 98, 1, (range(8),)),
    "1g-10gb": Profile("1g.10gb", 1, 1, 0, "9856Mi", 14, 0, (range(2), range(2, 4), range(4, 6), range(6, 8))),
    "1g-5gb": Profile("1g.5gb", 1, 0, 0, "4864Mi", 14, 0, tuple(range(n, n + 1) for n in range(7))),
    "1g-5gb-me": Profile("1g.5gb+me", 1, 1, 1, "4864Mi", 14, 1, tuple(range(n, n + 1) for n in range(7))),
    "2g-10gb": Profile("2g.10gb", 2, 1, 0, "9856Mi", 28, 0, (range(2), range(2, 4), range(4, 6))),
    "3g-20gb": Profile("3g.20gb", 3, 2, 0, "19968Mi", 42, 0, (range(4), range(4, 8))),
    "4g-20gb": Profile("4g.20gb", 4, 2, 0, "19968Mi", 56, 0, (range(4),)),
    "7g-40gb": Profile("7g.40gb", 7, 5, 1, "40192Mi", 98, 1, (range(8),)),
}


def described() -> Iterator[tuple[str, int, str, range]]:
    """Name, GPU, profile label and memory slices of every device, in the text's order."""
    for gpu in range(2):
        for label, profile in PROFILES.items():
            for span in profile.placements:
                place = f"{span[0]}" if len(span) == 1 else f"{span[0]}-{span[-1]}"
                yield (f"gpu-{gpu}-mig-{label}-{place}" if label else f"gpu-{gpu}"), gpu, label, span


def amounts(label: str, span: range) -> dict[str, quantity.Quantity]:
    row = PROFILES[label]
    wanted = {
        "copyEngines": str(row.copies),
        "decoders": str(row.decoders),
        "encoders": "0",
        "jpegEngines": str(row.jpegs),
        "memory": row.memory,
        "multiprocessors": str(row.processors),
        "ofaEngines": str(row.ofas),
    } | {f"memorySlice{n}": "1" for n in span}
    return {name: quantity.Quantity.parse(text) for name, text in wanted.items()}


def attributes(gpu: int, label: str) -> dict[str, device.AttributeValue]:
    if not label:
        return MODEL | {"type": "gpu", "index": gpu, "minor": gpu, "uuid": UUIDS[gpu]}
    own: dict[str, device.AttributeValue] = {
        "type": "mig",
        "profile": PROFILES[label].name,
        "parentIndex": gpu,
        "parentMinor": gpu,
        "parentUUID": UUIDS[gpu],
    }
    return MODEL | own


@pytest.fixture(scope="module")
def author() -> inventory.Inventory:
    return slice_document.load(DOCUMENT)


@pytest.fixture(scope="module")
def flat(author: inventory.Inventory) -> inventory.Inventory:
    return author.flat()


def test_there_are_the_52_devices_of_the_text_in_its_order(flat: inventory.Inventory) -> None:
    assert [item.name for item in flat.devices] == [name for name, *_ in described()]
    assert len(flat.devices) == 52


@pytest.mark.parametrize("name, gpu, label, span", list(described()))
def test_a_device_has_exactly_what_the_text_gives_it(flat: inventory.Inventory, name: str, gpu: int, label: str, span: range) -> None:
    item: device.Device = flat.by_name()[name]
    wanted = amounts(label, span)
    assert item.attributes == attributes(gpu, label)
    assert {key: entry.value for key, entry in item.capacity.items()} == wanted
    (part,) = item.consumes
    assert part.counter_set == f"gpu-{gpu}-capacity-pool"
    assert part.counters == {COUNTER_OF[key]: amount for key, amount in wanted.items()}
    assert not item.includes
    assert not part.includes


def test_each_gpu_has_one_counter_set_that_holds_the_whole_gpu(flat: inventory.Inventory) -> None:
    whole = {COUNTER_OF[key]: amount for key, amount in amounts("", range(8)).items()}
    assert [(item.name, item.counters) for item in flat.counter_sets] == [(f"gpu-{gpu}-capacity-pool", whole) for gpu in range(2)]


def test_the_flat_form_fills_one_slice_of_counters_and_one_of_devices(author: inventory.Inventory, flat: inventory.Inventory) -> None:
    pages = paging.paginate(author, form=resource_slice.Form.FLAT, layout=resource_slice.Layout.APART)
    assert pages == (resource_slice.Page(counter_sets=flat.counter_sets), resource_slice.Page(devices=flat.devices))


def test_the_mixin_form_carries_each_mixin_once(author: inventory.Inventory) -> None:
    sets, devices = paging.paginate(author, form=resource_slice.Form.MIXINS, layout=resource_slice.Layout.APART)
    assert (sets.mixins.counter_set, sets.mixins.device) == (author.mixins.counter_set, ())
    assert (devices.mixins.device, devices.mixins.consumption) == (author.mixins.device, author.mixins.consumption)
    assert len(devices.devices) + len(devices.mixins) == 103


def test_mixins_halve_the_size_and_automatic_factoring_beats_the_authors(author: inventory.Inventory, flat: inventory.Inventory) -> None:
    automatic = mixin_factoring.factor(flat)
    sizes = [mixin_factoring.estimate(form) for form in (automatic, author, flat)]
    assert sizes == sorted(sizes)
    assert sizes[1] < 0.6 * sizes[2]
    assert automatic.flat() == flat
