"""docs/reference/gpu-tables.md shows the tables that ship; UPDATE_GOLDEN=1 writes it anew."""

import os
import pathlib
from collections.abc import Iterator

from drakit_gpu.mig import counters, partitioning
from drakit_gpu.mock import machine

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "reference" / "gpu-tables.md"
INTRODUCTION = """# GPU tables

These tables describe the models of mock GPUs in `driver/drakit_gpu/mock/models/`. For real GPUs drakit reads NVML and does not use them. A
figure is **measured** (read from hardware or from its log), **documented** (the vendor's guide, or a published output of `nvidia-smi mig -lgip`), or
**guessed**. Public listings of one model can differ, and the comment says where: H200's `7g.141gb` has 139.75 or 140.00 GiB, B200's `1g.23gb` 22.00
or 20.50. The comment at the top of each file names its sources. If a table differs from the output of `nvidia-smi mig -lgip -lgipp` on your GPU,
please report a bug.

`enum` is the constant with which a program requests a profile (`NVML_GPU_INSTANCE_PROFILE_*`). `id` is the profile's id in all other places,
including device names. Memory is in MiB, placements are `start:size` in memory slices. *Counted by* names the counters of the GPU besides its memory
slices: engines if a count of all sets of partitions proves them exact, else one counter for each profile.

| Architecture | MIG mode | Offered |
| --- | --- | --- |
| Ampere | the admin's; a change takes a reset, and a reboot keeps it | on: partitions; off: the whole GPU |
| Hopper and newer | drakit's, at prepare; a change takes no reset, and a reboot forgets it | partitions and the whole GPU |
| without MIG, and vGPUs | none | the whole GPU |

A machine file may ask for the whole GPU beside the partitions of an Ampere GPU (`wholeBesidePartitions: true`), as KEP-4815's example has it. The
machines `dgx-a100-40gb` and `dgx-a100-40gb-2gpu` do.
"""


def starts(placements: tuple[int, ...], size: int) -> str:
    return f"{{{','.join(map(str, placements))}}}:{size}"


def section(name: str) -> Iterator[str]:
    model = machine.load_model(name)
    yield f"## {model.product_name}\n"
    major, minor = model.compute_capability
    memory = model.memory >> 20
    result = f"`{name}`, {model.evidence.value}. {model.architecture}, compute capability {major}.{minor}, {memory} MiB."
    partitions = partitioning.partitions(model.profiles.values())
    if not partitions:
        yield f"{result} No MIG.\n"
        return
    by = "engines" if "multiprocessors" in counters.counters_of(partitions).pool else "profiles"
    yield f"{result} {len(partitions)} partitions, counted by {by}.\n"
    yield "| profile | enum | id | instances | SM | CE | DEC | ENC | JPEG | OFA | memory | placements | evidence |"
    yield f"|{' --- |' * 13}"
    for profile, places in model.profiles.values():
        cells = [
            f"`{profile.name}`",
            profile.enum,
            profile.id,
            profile.instances,
            profile.multiprocessors,
            profile.copy_engines,
            profile.decoders,
            profile.encoders,
            profile.jpeg_engines,
            profile.ofa_engines,
            profile.memory_mib,
            starts(tuple(placement.start for placement in places), places[0].size),
            model.evidence_of(profile.id).value,
        ]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def page() -> str:
    return "\n".join([INTRODUCTION, *(line for name in machine.model_names() for line in section(name))]).rstrip("\n") + "\n"


def test_the_page_shows_the_tables_that_ship() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page()
