"""``drakit slices``: the ResourceSlices this node would publish, and what each form of them costs."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated

import typer

from drakit import settings as given
from drakit.cli import composition, not_offered, options, output, terminal
from drakit.cli.commands import prepare
from drakit.core import inventory, names, records
from drakit.core.slices import reconcile, resource_slice
from drakit.kube import slice_codec
from drakit.node.publishing import publisher

_LONGEST_NAME = 253


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sheaf:
    """The slices of one driver in one form, as objects and as the bytes that would travel."""

    driver: str
    form: resource_slice.Form
    objects: tuple[object, ...]

    @property
    def bytes(self) -> int:
        """Size as compact JSON, as it is sent."""
        return sum(len(json.dumps(entry, separators=(",", ":")).encode()) for entry in self.objects)


@options.quietly
@options.on_a_node
def slices(
    settings: given.Settings,
    families: options.Families = None,
    form: Annotated[
        resource_slice.Form | None,
        typer.Option("--form", help="flat repeats every fact, mixins shares them. Both are compared in the table."),
    ] = None,
    style: options.Output = options.Format.TABLE,
) -> None:
    """Show the ResourceSlices this node would publish, without publishing them.

    The table compares the two forms; yaml and json print the objects (flat unless --form mixins is given), and the sizes go to standard error.
    The objects have fixed names, so that kubectl apply takes them; a driver lets the server add random characters.

    [bold]Examples[/bold]

      drakit slices --mock dgx-a100-40gb-2gpu

      drakit slices --mock dgx-h100 --family gpu --form mixins -o yaml
    """
    output.note(composition.unserved(composition.narrowed(settings, families or ())))
    sheaves = [
        sheaf(family, offered, shape)
        for family, offered in inventories(composition.families(settings, only=families or ()))
        for shape in (resource_slice.Form if form is None else [form])
    ]
    if style is options.Format.TABLE:
        _table(sheaves)
        return
    wanted = form or resource_slice.Form.FLAT
    output.documents((entry for sheaf in sheaves if sheaf.form is wanted for entry in sheaf.objects), style)
    for one in () if terminal.QUIET.get() else sheaves:
        typer.echo(f"# {one.driver} {one.form.value}: {output.counted(len(one.objects), 'slice')}, {one.bytes} bytes", err=True)


def inventories(families: Sequence[composition.Family]) -> list[tuple[composition.Family, inventory.Inventory]]:
    """What each family offers now, knowing what its journal prepared. GPUs that are not offered are named on standard error."""
    seen = [(family, prepare.look(family)) for family in families]
    for _, view in seen:
        output.note(not_offered.gpus(view.withheld))
    return [(family, view.offered) for family, view in seen]


def sheaf(family: composition.Family, offered: inventory.Inventory, form: resource_slice.Form) -> Sheaf:
    """The slices of a first publication."""
    driver, node, creates = family.spec.driver_name, family.spec.identity.pool, list[resource_slice.Create]()
    for pool, part in inventory.by_pool(offered, node).items():
        pages = publisher.pages(part, publisher.Server(), form)
        creates += reconcile.plan(pages, (), driver=driver, node=node, pool=pool).creates
    return Sheaf(driver=driver, form=form, objects=tuple(map(_object, creates)))


def _object(create: resource_slice.Create) -> object:
    """Return the slice with a fixed name, which keeps the order of the slices: ``kubectl apply`` takes no generateName."""
    suffix = names.suffix_of(create.spec.pool.name, create.spec.node) or ""
    return {
        "apiVersion": slice_codec.API_VERSION,
        "kind": slice_codec.KIND,
        "metadata": {"name": f"{create.prefix[: _LONGEST_NAME - len(suffix)]}{suffix}".rstrip("-.")},
        "spec": records.thaw(slice_codec.encode(create.spec)),
    }


def _table(sheaves: Sequence[Sheaf]) -> None:
    flat = {sheaf.driver: sheaf.bytes for sheaf in sheaves if sheaf.form is resource_slice.Form.FLAT}
    rows = []
    for sheaf in sheaves:
        specs = [entry["spec"] for entry in sheaf.objects if isinstance(entry, dict)]
        devices = sum(len(spec.get("devices", ())) for spec in specs)
        sets = sum(len(spec.get("sharedCounters", ())) for spec in specs)
        share = f"{100 * sheaf.bytes / flat[sheaf.driver]:.0f}%" if sheaf.driver in flat else ""
        rows.append((sheaf.driver, sheaf.form.value, len(sheaf.objects), devices, sets, sheaf.bytes, share))
    columns = ["DRIVER", "FORM", "SLICES", "DEVICES", "COUNTER SETS", "BYTES", "OF FLAT"]
    output.put(output.console(), output.table("", columns, rows))
