"""What is free, as tables for people and as a document for programs."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.cli import fits, output
from drakit.core import packing
from drakit.core.packing import Kind
from drakit.telemetry import escaping, plurals
from drakit_tools.free.survey import Board, Free, Node, Shares

_SHOWN = 3
_ANSWERS_MAX = 20
"""Different answers for nodes that a table shows."""
_UNLIMITED = "any number"
_SEVERAL_NODES = "(several nodes)"
_Group = tuple[str, str]
"""Driver and model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Type:
    """One kind of device of one model, on all nodes: how many more fit if no other kind is allocated, and how many without claims and taints.

    ``nodes`` is the number of nodes on which one fits, ``most`` the largest number on one node.
    """

    driver: str
    model: str
    kind: Kind
    fits: int
    of: int
    exact: bool
    nodes: int
    most: int
    shares: Shares | None


def types(free: Free) -> list[Type]:
    """Return every kind of device, in the order of the first board that has it, the largest kinds first."""
    found: dict[tuple[_Group, Kind], dict[str, list[Board]]] = {}
    for name, board in free.boards:
        for kind in board.of:
            found.setdefault(((board.driver, board.model), kind), {}).setdefault(name, []).append(board)
    return [_type(group, kind, by_node) for (group, kind), by_node in found.items()]


def _type(group: _Group, kind: Kind, by_node: Mapping[str, Sequence[Board]]) -> Type:
    none = packing.Fill(counts={})
    boards = [board for listed in by_node.values() for board in listed]
    counts = {name: sum(board.alone.get(kind, none).counts.get(kind, 0) for board in listed) for name, listed in by_node.items()}
    shares = [board.shares[kind] for board in boards if kind in board.shares]
    return Type(
        driver=group[0],
        model=group[1],
        kind=kind,
        fits=sum(counts.values()),
        of=sum(board.of[kind].counts.get(kind, 0) for board in boards),
        exact=all(board.alone.get(kind, none).exact for board in boards),
        nodes=sum(count > 0 for count in counts.values()),
        most=max(counts.values()),
        shares=sum(shares[1:], shares[0]) if shares else None,
    )


def put(free: Free) -> None:
    """Print two tables for each model: what fits of each type, and what fits together on each node."""
    out = output.console()
    groups: dict[_Group, list[Type]] = {}
    for row in types(free):
        groups.setdefault((row.driver, row.model), []).append(row)
    is_fleet = len(free.nodes) > 1
    for number, (group, rows) in enumerate(groups.items()):
        if number:
            out.print()
        output.heading(out, escaping.escaped(f"{group[0]}: {group[1]}"))
        columns = ["TYPE", "FITS", "NODES", "ON ONE NODE", "SHARES", "CAPACITY FREE"]
        output.put(out, output.table("", columns, [_row(row, is_fleet=is_fleet) for row in rows]))
        out.print()
        output.put(out, output.table("", ["NODE", "FITS TOGETHER"], _together(free, group)))
    if not groups:
        output.say(out, "There is no device.")
    if lines := list(_notes(free)):
        out.print()
    for line in lines:
        output.say(out, escaping.escaped(line), hang=2)


def _row(row: Type, *, is_fleet: bool) -> tuple[object, ...]:
    count = str(row.fits) if row.exact else f"at least {row.fits}"
    shares = row.shares
    return (
        row.kind,
        f"{count} of {row.of}",
        row.nodes if is_fleet else "",
        row.most if is_fleet else "",
        "" if shares is None else _UNLIMITED if shares.more is None else shares.more,
        "" if shares is None else ", ".join(f"{name} {amount.free} of {amount.total}" for name, amount in shares.capacity.items()),
    )


def _together(free: Free, group: _Group) -> list[tuple[str, str]]:
    """Return what fits together of one model on each node; nodes with equal answers are listed together, up to ``_ANSWERS_MAX`` of them."""
    alike: dict[str, list[str]] = {}
    for node in free.nodes:
        if (fills := sets(node).get(group)) is not None:
            answer = "; or ".join(map(str, packing.distinct(fills))) or "nothing"
            alike.setdefault(f"{answer} ({node.closed})" if node.closed else answer, []).append(node.name or _SEVERAL_NODES)
    left = [name for listed in list(alike.values())[_ANSWERS_MAX:] for name in listed]
    rows = [(_listed(listed), answer) for answer, listed in list(alike.items())[:_ANSWERS_MAX]]
    return [*rows, (_listed(left), "see --node NAME or -o json")] if left else rows


def sets(node: Node) -> Mapping[_Group, tuple[packing.Fill, ...]]:
    """Return what fits together on all boards of a node, by driver and model."""
    groups: dict[_Group, list[Board]] = {}
    for board in node.boards:
        groups.setdefault((board.driver, board.model), []).append(board)
    return {
        group: packing.total([board.together for board in boards], dict.fromkeys(kind for board in boards for kind in board.of))
        for group, boards in groups.items()
    }


def _notes(free: Free) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for node in free.nodes:
        for note in (*node.notes, *_withheld(node)):
            alike.setdefault(note, []).append(node.name)
    for note, names in alike.items():
        yield f"{_listed(names)}: {note}" if any(names) else note
    if free.deleting:
        hold = "holds" if len(free.deleting) == 1 else "hold"
        yield f"{plurals.counted(len(free.deleting), 'claim')} in deletion still {hold} devices: {_listed(free.deleting)}"
    if free.pending:
        yield f"{plurals.counted(len(free.pending), 'claim')} without devices may take some first: {_listed(free.pending)}"


def _withheld(node: Node) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for board in node.boards:
        for reason, names in board.withheld.items():
            by_reason.setdefault(reason, []).extend(names)
    for reason, devices in by_reason.items():
        yield f"{plurals.counted(len(devices), 'device')} {reason} ({_listed(devices)})"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def document(free: Free) -> Mapping[str, object]:
    """Return everything as JSON values."""
    return {
        "types": [_type_document(row) for row in types(free)],
        "nodes": [_node_document(node) for node in free.nodes],
        "pending": list(free.pending),
        "deleting": list(free.deleting),
    }


def _type_document(row: Type) -> Mapping[str, object]:
    return {
        "driver": row.driver,
        "model": row.model,
        "type": row.kind.name,
        "shared": row.kind.shared,
        "fits": row.fits,
        "of": row.of,
        "exact": row.exact,
        "nodes": row.nodes,
        "mostOnOneNode": row.most,
        **({} if row.shares is None else _shares_document(row.shares)),
    }


def _shares_document(shares: Shares) -> Mapping[str, object]:
    return {
        "shares": shares.more,
        "capacity": {name: {"free": str(amount.free), "of": str(amount.total)} for name, amount in shares.capacity.items()},
    }


def _node_document(node: Node) -> Mapping[str, object]:
    return {
        "name": node.name,
        "together": [{"driver": driver, "model": model, "sets": _sets_document(fills)} for (driver, model), fills in sets(node).items()],
        "boards": [_board_document(board) for board in node.boards],
        "notes": list(node.notes),
    }


def _board_document(board: Board) -> Mapping[str, object]:
    return {
        "driver": board.driver,
        "pool": board.pool,
        "name": board.name,
        "model": board.model,
        "alone": {str(kind): filled.counts.get(kind, 0) for kind, filled in board.alone.items()},
        "of": {str(kind): filled.counts.get(kind, 0) for kind, filled in board.of.items()},
        "together": _sets_document(board.together),
        "shares": {str(kind): _shares_document(shares) for kind, shares in board.shares.items()},
        "inUse": board.in_use,
        "withheld": {reason: list(names) for reason, names in board.withheld.items()},
    }


def _sets_document(fills: Iterable[packing.Fill]) -> list[dict[str, int]]:
    return [fits.named(filled.counts) for filled in packing.distinct(fills)]


def is_any(free: Free) -> bool:
    """Return whether any device is free."""
    return any(filled.counts for _, board in free.boards for filled in board.together)
