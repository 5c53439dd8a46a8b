"""``drakit slices``: prints the ResourceSlices that this node would publish, and their size in each form."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated

import typer

from drakit import settings as given
from drakit.cli import composition, not_offered, options, output, terminal, views
from drakit.core import inventory, names, records
from drakit.core.slices import feature_gates, reconcile, resource_slice
from drakit.kube import slice_codec
from drakit.node.publishing import slice_pages
from drakit.telemetry import plurals

_LONGEST_NAME = 253


@dataclasses.dataclass(frozen=True, kw_only=True)
class SliceSet:
    """The slices of one driver in one form, as objects and with their size on the wire."""

    driver: str
    form: resource_slice.Form
    objects: tuple[object, ...]

    @property
    def bytes(self) -> int:
        """Return the size as compact JSON, as the driver sends it."""
        return sum(len(json.dumps(entry, separators=(",", ":")).encode()) for entry in self.objects)


@options.quietly
@options.on_a_node
def slices(
    settings: given.Settings,
    families: options.Families = None,
    form: Annotated[
        resource_slice.Form | None,
        typer.Option("--form", help="flat repeats common attributes in each device, mixins shares them. By default the table has both."),
    ] = None,
    style: options.Output = options.Format.TABLE,
) -> None:
    """Show the ResourceSlices that this node would publish with the default feature gates, without publishing them.

    The table compares the two forms. With -o yaml or json the command prints the objects, in the form flat unless --form is given, and writes the
    sizes to standard error. The objects have fixed names, which kubectl apply needs; a driver uses generateName.

    [bold]Examples[/bold]

      drakit slices --mock dgx-a100-40gb-2gpu

      drakit slices --mock dgx-h100 --family gpu --form mixins -o yaml
    """
    output.note(composition.unserved_note(settings, families or ()))
    offers = inventories(composition.families(settings, only=families or ()))
    slice_sets = [
        slices_of(family, offered, shape) for family, offered in offers for shape in (resource_slice.Form if form is None else [form])
    ]
    if style is options.Format.TABLE:
        _table(slice_sets)
        return
    wanted = form or resource_slice.Form.FLAT
    output.documents((entry for slice_set in slice_sets if slice_set.form is wanted for entry in slice_set.objects), style)
    if terminal.QUIET.get():
        return
    for slice_set in slice_sets:
        typer.echo(
            f"# {slice_set.driver} {slice_set.form.value}: {plurals.counted(len(slice_set.objects), 'slice')}, {slice_set.bytes} bytes",
            err=True,
        )
    left_out = frozenset[str]().union(*(feature_gates.used_by(offered) for _, offered in offers)) & slice_pages.OFF_BY_DEFAULT
    if left_out:
        typer.echo(f"# left out, because these feature gates are off by default: {', '.join(sorted(left_out))}", err=True)


def inventories(families: Sequence[composition.NodeFamily]) -> list[tuple[composition.NodeFamily, inventory.Inventory]]:
    """Return the inventory of each family with its prepared claims. Faulty hardware is reported on standard error. Raises HardwareError."""
    seen = [(family, views.look(family)) for family in families]
    for _, view in seen:
        if view.error is not None:
            raise view.error
        output.note(not_offered.faults(view.withheld))
    return [(family, view.offered) for family, view in seen]


def slices_of(family: composition.NodeFamily, offered: inventory.Inventory, form: resource_slice.Form) -> SliceSet:
    """Return the slices that a driver would create on a cluster with the default feature gates and without slices of this node."""
    driver, node, creates = family.spec.driver_name, family.spec.identity.pool, list[resource_slice.Create]()
    for pool, part in inventory.by_pool(offered, node).items():
        pages = slice_pages.pages(part, slice_pages.DEFAULT_SERVER, form)
        creates += reconcile.plan(pages, (), driver=driver, node=node, pool=pool).creates
    return SliceSet(driver=driver, form=form, objects=tuple(map(_object, creates)))


def _object(create: resource_slice.Create) -> object:
    """Return the slice with a fixed name, which keeps the order of the slices: ``kubectl apply`` takes no generateName."""
    suffix = names.suffix_of(create.spec.pool.name, create.spec.node) or ""
    return {
        "apiVersion": slice_codec.API_VERSION,
        "kind": slice_codec.KIND,
        "metadata": {"name": f"{create.prefix[: _LONGEST_NAME - len(suffix)]}{suffix}".rstrip("-.")},
        "spec": records.thaw(slice_codec.encode(create.spec)),
    }


def _table(slice_sets: Sequence[SliceSet]) -> None:
    flat = {slice_set.driver: slice_set.bytes for slice_set in slice_sets if slice_set.form is resource_slice.Form.FLAT}
    rows = []
    for slice_set in slice_sets:
        specs = [entry["spec"] for entry in slice_set.objects if isinstance(entry, dict)]
        devices = sum(len(spec.get("devices", ())) for spec in specs)
        sets = sum(len(spec.get("sharedCounters", ())) for spec in specs)
        share = f"{100 * slice_set.bytes / flat[slice_set.driver]:.0f}%" if slice_set.driver in flat else ""
        rows.append((slice_set.driver, slice_set.form.value, len(slice_set.objects), devices, sets, slice_set.bytes, share))
    columns = ["DRIVER", "FORM", "SLICES", "DEVICES", "COUNTER SETS", "BYTES", "OF FLAT"]
    output.put(output.console(), output.table("", columns, rows))
