"""``drakit unprepare --unclaimed``: lists hardware state that no claim has, and releases it, also beside a running driver.

The driver's marks and the journal's intents decide (``core.advanced.Reclaimer``). Each leftover is read again under its device's lock before it is
released, so a claim that a driver prepares meanwhile keeps its hardware. Each release is logged.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import typer

from drakit.cli import composition, options, output, views
from drakit.core import advanced, errors
from drakit.journal import inspection
from drakit.kubelet import checkpoint
from drakit.node import local_node
from drakit.telemetry import logs

_log = logs.get_logger(__name__)
_GONE = "nothing to release: it is gone, or a claim has it now"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A leftover of a driver. ``blocks`` is why it needs its name to be given, ``error`` why it was not released."""

    driver: str
    leftover: advanced.Leftover
    blocks: str = ""
    error: str = ""
    released: bool = False

    def document(self) -> dict[str, object]:
        """Return the row for machines."""
        fields = dataclasses.asdict(self.leftover)
        fields["marked"] = fields.pop("is_marked")
        del fields["locks"]
        return {"driver": self.driver, **fields, "blocks": self.blocks, "error": self.error, "released": self.released}


def release(families: Sequence[composition.NodeFamily], names: Sequence[str], *, is_sure: bool, style: options.Format) -> None:
    """List what no claim has. With ``is_sure`` release what is listed; ``names`` limits both. Raises ConfigError for an unknown name."""
    listed = [(family, row) for family in families for row in _rows(family, names)]
    known = {row.leftover.name for _, row in listed}
    if unknown := [name for name in names if name not in known]:
        held = "a claim has it, or there is no such thing; list the names with: unprepare --unclaimed"
        raise errors.ConfigError(f"{', '.join(unknown)} is not unclaimed: {held}", field="NAME")
    rows = [row for _, row in listed]
    if is_sure:
        logs.setup(level=logs.Level.INFO, style=logs.Style.CONSOLE)
        rows = [done for family in families for done in _released(family, [row for owner, row in listed if owner is family])]
    _show(rows, style, is_sure=is_sure)
    if failed := [f"{row.leftover.name}: {row.error}" for row in rows if row.error]:
        raise errors.HardwareError("unprepare", "; ".join(failed))
    if is_sure and (kept := [row.leftover.name for row in rows if not row.released]):
        output.note(f"not released, because these must be named: {', '.join(kept)}")


def _rows(family: composition.NodeFamily, names: Sequence[str]) -> Iterator[Row]:
    seen = views.look(family, with_unclaimed=True)
    if seen.error is not None:
        raise seen.error
    if seen.is_lost:
        raise errors.JournalError(
            f"the journal of {family.spec.driver_name} is lost and not restored, so its claims are unknown; "
            "start the driver, which restores them, and then run this command again"
        )
    doubt = _doubt(family, seen)
    for leftover in seen.unclaimed:
        if not names or leftover.name in names:
            yield Row(
                driver=family.spec.driver_name, leftover=leftover, blocks="" if leftover.name in names else doubt or _blocks(leftover)
            )


def _doubt(family: composition.NodeFamily, seen: views.View) -> str:
    """Return why a claim that the journal lacks may have what seems unclaimed; empty if nothing shows that."""
    journaled = {entry.claim.uid for entry in seen.entries}
    if not inspection.exists(family.folders.home):
        reason = "the journal is missing"
    elif views.claims_with_files(family) - journaled:
        reason = "the journal lacks claims that have CDI files"
    elif _has_kubelet(family) and not inspection.is_served(family.folders.home):
        reason = "a command made the journal, and no driver has verified it"
    else:
        return ""
    return f"{reason}, so a claim may have it: start the driver, which restores claims, or name it to release it"


def _has_kubelet(family: composition.NodeFamily) -> bool:
    """Return whether this node is one of a cluster: a kubelet may have claims that no command knows."""
    kubelet = family.folders.home.parent.parent
    return "KUBERNETES_SERVICE_HOST" in os.environ or (kubelet / checkpoint.FILE).exists()


def _blocks(leftover: advanced.Leftover) -> str:
    if not leftover.needs_name:
        return ""
    return f"in use: {leftover.user}; name it to release it" if leftover.user else "unclaimed, maybe an admin's; name it to release it"


def _released(family: composition.NodeFamily, rows: Sequence[Row]) -> Iterator[Row]:
    """Release the rows that nothing blocks."""
    if all(row.blocks for row in rows):
        yield from rows
        return
    with local_node.LocalNode.open(family.spec, family.folders, views.Nowhere()) as opened:
        if opened.is_lost:
            raise errors.JournalError(f"the journal of {family.spec.driver_name} was lost meanwhile; nothing was released")
        for row in rows:
            yield row if row.blocks else _release(opened, row)


def _release(opened: local_node.LocalNode, row: Row) -> Row:
    author, wanted = opened.author, row.leftover
    if not isinstance(author, advanced.Reclaimer):
        raise typer.BadParameter(f"{row.driver} has no unclaimed hardware")
    try:
        with opened.context.hold(wanted.locks):
            present = next((other for other in author.unclaimed() if (other.kind, other.name) == (wanted.kind, wanted.name)), None)
            if present is None:
                return dataclasses.replace(row, error=_GONE)
            author.reclaim(present)
    except errors.DrakitError as error:
        return dataclasses.replace(row, error=str(error))
    _log.info("unclaimed device released", driver=row.driver, device=f"{wanted.kind} {wanted.name}")
    return dataclasses.replace(row, released=True)


def _show(rows: Sequence[Row], style: options.Format, *, is_sure: bool) -> None:
    if style is not options.Format.TABLE:
        output.document([row.document() for row in rows], style)
        return
    out = output.console()
    if not rows:
        output.say(out, "no hardware state without a claim was found")
        return
    cells = [(row.leftover.kind, row.leftover.name, row.leftover.detail, row.driver, _state(row)) for row in rows]
    output.put(out, output.table("", ["KIND", "NAME", "DETAIL", "DRIVER", "STATE"], cells))
    if not is_sure:
        out.print()
        fix = "add their names and --yes" if all(row.blocks for row in rows) else "add --yes; what must be named is kept"
        output.say(output.prose(), f"Nothing was released. To release them, {fix}.")


def _state(row: Row) -> str:
    return "released" if row.released else row.error or row.blocks or "unclaimed"
