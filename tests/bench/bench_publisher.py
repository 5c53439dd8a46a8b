"""What publishing a node takes: time to make its slices of an inventory, and their bytes on the wire, with mixins and flat."""

import functools
import json
import pathlib
import statistics

from bench import table
from drakit import machines
from drakit.core import inventory, records
from drakit.core.slices import reconcile, resource_slice
from drakit.kube import slice_codec
from drakit.node.publishing import slice_pages
from fakes import installed_drivers

DRIVER, NODE = "gpu.drakit.dev", "node-1"
MACHINES = {8: "dgx-a100-40gb", 16: "mixed-16gpu"}


def _inventory(folder: pathlib.Path, machine: str) -> inventory.Inventory:
    choice = machines.Choice(name=machine, directory=folder / machine, owner=NODE)
    return installed_drivers.build("gpu", node=NODE, machine=choice).discover()


def bodies(offered: inventory.Inventory, form: resource_slice.Form) -> list[bytes]:
    """What would be sent, one body a slice: the whole way from an inventory."""
    pages = slice_pages.pages(offered, slice_pages.Server(), form)
    changes = reconcile.plan(pages, (), driver=DRIVER, node=NODE, pool=NODE)
    return [json.dumps(records.thaw(slice_codec.encode(create.spec)), separators=(",", ":")).encode() for create in changes.creates]


def report(folder: pathlib.Path, base: float, repeats: int) -> None:
    """Print the lines, beside the floor of a call in milliseconds."""
    for count, machine in MACHINES.items():
        offered = _inventory(folder, machine)
        made = {form: bodies(offered, form) for form in (resource_slice.Form.FLAT, resource_slice.Form.MIXINS)}
        flat = sum(map(len, made[resource_slice.Form.FLAT]))
        for form, sent in made.items():
            work = functools.partial(bodies, offered, form)
            taken = statistics.median(table.timed(work) for _ in range(repeats))
            size = sum(map(len, sent))
            value = f"{taken:7.2f} ms  {size / 1024:6.1f} KiB in {len(sent)}"
            table.line(f"slices of {count} GPUs, {form.value}", value, taken / base, f"{size / flat:.0%} of flat bytes")
