"""The state of this node: hardware, journal, and the health that a running driver reports."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

from drakit import settings as values
from drakit.cli import composition, views
from drakit.core import errors, inventory, lifecycle
from drakit.kubelet import sockets
from drakit.serving import unix_sockets
from drakit_tools.dashboard import granted, model, pool_devices, unused


class NodeSource:
    """Reads the drivers of one node, as ``drakit show`` does."""

    def __init__(self, settings: values.Settings, *, only: Sequence[str] = ()) -> None:
        self._families = composition.families_to_read(settings, only=only)
        self._node = composition.node_name(settings)

    def state(self) -> model.State:
        """Return the current state. A driver that cannot be read is reported as a problem, and the others are shown."""
        pools, held_by, problems = [], [], []
        node_name = self._node
        for family in self._families:
            driver = family.spec.driver_name
            try:
                seen = views.look(family)
            except errors.DrakitError as error:
                problems.append(f"{driver}: {error}")
                continue
            if seen.error is not None and (family.is_served or seen.entries):
                problems.append(f"{driver}: {seen.error}")
            node_name = seen.pool
            held = [holding for entry in seen.entries for holding in _holdings(entry)]
            health = {name: model.Health(state=found.health.value, message=found.message) for name, found in seen.health.items()}
            stopped = _stopped(family.folders.home) if seen.was_served else ""
            for name, offered in inventory.by_pool(seen.offered, seen.pool).items():
                note = "; ".join(filter(None, (stopped, seen.trouble)))
                base = model.Pool(driver=driver, name=name, note=note, is_down=bool(stopped))
                pools.append(pool_devices.pool(base, offered, held, health, seen.readings))
            held_by.append(granted.Held(driver=driver, node=node_name, holdings=held))
        node = model.Node(name=node_name, pools=tuple(pools))
        rows = tuple(granted.rows(held_by, [node]))
        return model.State(
            title=f"node {node_name}",
            nodes=(node,),
            claims=rows,
            problem="; ".join(problems),
            waiting=tuple(dict.fromkeys(_unfinished(held_by))),
            waiting_is_known=False,
            free=unused.free([node]),
            namespaces=granted.namespaces(rows, ()),
        )


def _stopped(home: pathlib.Path) -> str:
    """Return that no driver runs in a folder, where none accepts a connection; empty if one does."""
    if any(unix_sockets.occupant(path) is unix_sockets.Occupant.LISTENER for path in sockets.services(home)):
        return ""
    return f"the driver does not run: no socket in {home} answers, so no new pod gets its devices; start it, and see its log"


def _holdings(entry: lifecycle.Entry) -> Sequence[model.Holding]:
    return [
        model.Holding(
            device=grant.device.name,
            claim=str(entry.claim),
            uid=entry.claim.uid,
            request=grant.request,
            share=grant.share_id or "",
            consumed=grant.consumed_capacity,
            admin=grant.admin_access,
            state=entry.state.value,
            done=grant.edits is not None,
            pool=grant.pool,
        )
        for grant in entry.grants
    ]


def _unfinished(held_by: Iterable[granted.Held]) -> Iterator[model.Waiting]:
    """Yield the claims whose prepare or unprepare has begun and not ended."""
    for entry in held_by:
        for holding in entry.holdings:
            if holding.state != lifecycle.State.PREPARED.value:
                asks = ", ".join(other.device for other in entry.holdings if other.uid == holding.uid)
                reason = f"{entry.driver} is {holding.state} it; its log has the reason if this lasts"
                yield model.Waiting(kind="Claim", name=holding.claim, asks=asks, reason=reason)
