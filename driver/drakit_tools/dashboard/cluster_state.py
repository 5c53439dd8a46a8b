"""The state of a cluster from its objects, read by watches or from files. Pure, apart from a cache of what was decoded."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from drakit.core import inventory
from drakit.core.slices import resource_slice
from drakit.kube import api_objects, slice_codec, transport
from drakit_tools.dashboard import granted, model, objects, pool_devices, rules, unused, waiting

_SHOWN = 3
"""Unreadable objects that the page names."""
_ABOUT = frozenset({"ResourceClaim", "Pod", "Node"})

_Value = TypeVar("_Value")
_Key = tuple[str, str, str]
"""Driver, node and pool."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listing:
    """The objects of a cluster. ``pods`` need not have pods that run; without ``classes`` they are unknown.

    ``missing`` says which kinds cannot be listed, ``note`` which kinds the server does not serve.
    """

    slices: Sequence[transport.Object] = ()
    claims: Sequence[transport.Object] = ()
    classes: Sequence[transport.Object] = ()
    pods: Sequence[transport.Object] = ()
    nodes: Sequence[transport.Object] = ()
    events: Sequence[transport.Object] = ()
    rules: Sequence[transport.Object] = ()
    taints_every_device: bool = False
    missing: Sequence[str] = ()
    pods_are_known: bool = True
    note: str = ""


class _Decoded(Generic[_Value]):
    """Decodes each object once, as long as it is listed again."""

    def __init__(self, decode: Callable[[transport.Object], _Value]) -> None:
        self._decode = decode
        self._known: dict[int, tuple[transport.Object, _Value | str]] = {}

    def read(self, items: Sequence[transport.Object], unread: list[str]) -> Iterator[_Value]:
        """Yield the decoded objects; name those that cannot be decoded, which other programs may write, in ``unread``."""
        self._known = {id(item): self._known.get(id(item)) or (item, self._of(item)) for item in items}
        for _, value in self._known.values():
            if isinstance(value, str):
                unread.append(value)
            else:
                yield value

    def _of(self, item: transport.Object) -> _Value | str:
        try:
            return self._decode(item)
        except api_objects.UNREADABLE as error:
            return f"{item.get('kind') or 'object'} {api_objects.metadata_text(item, 'name')}: {error}"


class Reader:
    """Makes states of listings. It remembers decoded objects and unchanged pools, so that a large cluster costs what changes. Not thread-safe."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._tainted = rules.TaintedSlices()
        self._slices = _Decoded(slice_codec.decode)
        self._claims = _Decoded(objects.claim)
        self._pods = _Decoded(objects.pod)
        self._nodes = _Decoded(objects.node)
        self._events = _Decoded(objects.event)
        self._pools: dict[_Key, _Made] = {}
        self._lacking: dict[tuple[str, str], str] = {}
        """Why a driver that was on a node has no slices there, by driver and node; empty while it has some."""

    def state(self, listing: Listing, *, at: str = "") -> model.State:
        """Return the state, which is that of the time ``at``; empty if there are no earlier ones.

        Its problem names the objects that cannot be read, and kinds that cannot be listed. A driver that was on a node and has no slices there any
        more, as when the kubelet deletes those of a dead driver, has a pool that is down.
        """
        unread: list[str] = []
        claims = list(self._claims.read(listing.claims, unread))
        events = [event for event in self._events.read(listing.events, unread) if event.about_kind in _ABOUT]
        pods = list(self._pods.read(listing.pods, unread))
        known = {node.name: node for node in self._nodes.read(listing.nodes, unread)}
        holdings = _holdings(claims)
        pools: dict[str, list[model.Pool]] = {}
        node_of: dict[tuple[str, str], str] = {}
        made = {}
        tainted = self._tainted.of(listing.slices, listing.rules, taints_every_device=listing.taints_every_device)
        for key, slices in sorted(_pools(self._slices.read(tainted, unread)).items()):
            driver, node, name = key
            made[key] = self._pool(key, slices, holdings.get((driver, name), []))
            pools.setdefault(node, []).append(made[key].pool)
            node_of[driver, name] = node
        self._pools = made
        down = self._down({(driver, node) for driver, node, _ in made}, holdings.keys() - node_of.keys(), known, at)
        for (driver, node), text in down.items():
            note = f"{text}; check that its driver runs on this node"
            lost = pool_devices.unpublished(holdings.get((driver, node), []))
            pools.setdefault(node, []).append(model.Pool(driver=driver, name=node, note=note, is_down=True, unpublished=lost))
        held = [
            granted.Held(driver=driver, node=node_of.get((driver, name), name if name in known else ""), holdings=own)
            for (driver, name), own in sorted(holdings.items(), key=lambda entry: entry[0])
        ]
        nodes = tuple(
            model.Node(name=name, pools=tuple(map(unused.closed, listed) if notes else listed), notes=notes)
            for name, listed in sorted(pools.items())
            for notes in [known[name].notes if name in known else ()]
        )
        rows = (*granted.rows(held, nodes), *_waiting_rows(claims))
        waits = waiting.of(
            pods,
            claims,
            events,
            pods_are_known=listing.pods_are_known,
            classes={api_objects.metadata_text(entry, "name") for entry in listing.classes},
        )
        return model.State(
            title=self._title,
            nodes=nodes,
            claims=rows,
            events=_latest(events),
            problem="; ".join(filter(None, (*listing.missing, _ignored(unread)))),
            waiting_is_known=listing.pods_are_known,
            waiting=waits,
            namespaces=granted.namespaces(rows, waits),
            note=listing.note,
            free=unused.free(nodes),
        )

    def _down(
        self, present: Collection[tuple[str, str]], unpublished: Iterable[tuple[str, str]], nodes: Collection[str], at: str
    ) -> Mapping[tuple[str, str], str]:
        """Return why drivers lack slices on nodes that exist, by driver and node: those that had some, and those whose devices claims have.

        ``unpublished`` has the driver and the pool of such claims. A node's own pool has the node's name.
        """
        self._lacking = {lost: text or f"no slices of {lost[0]} since {at}" for lost, text in self._lacking.items()}
        self._lacking |= dict.fromkeys(present, "")
        down = {lost: f"no slices of {lost[0]}, and claims have devices of it" for lost in unpublished if lost not in present}
        down |= {lost: text for lost, text in self._lacking.items() if text}
        return {(driver, node): text for (driver, node), text in sorted(down.items()) if node in nodes}

    def _pool(self, key: _Key, slices: Sequence[resource_slice.Published], held: Sequence[model.Holding]) -> "_Made":
        """Return a pool with what it is made of; that of the last state if nothing changed."""
        former = self._pools.get(key)
        if former is not None and former.held == held and list(map(id, former.slices)) == list(map(id, slices)):
            return former
        driver, _, name = key
        spec = slices[0].spec
        base = model.Pool(driver=driver, name=name, generation=spec.pool.generation, slices=f"{len(slices)} of {spec.pool.count}")
        return _Made(slices=slices, held=held, pool=_filled(base, slices, held, self._tainted))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Made:
    """A pool, and the slices and holdings that it is made of."""

    slices: Sequence[resource_slice.Published]
    held: Sequence[model.Holding]
    pool: model.Pool


def _ignored(unread: Sequence[str]) -> str:
    more = f" and {len(unread) - _SHOWN} more" if len(unread) > _SHOWN else ""
    return f"ignored, because it cannot be read: {'; '.join(unread[:_SHOWN])}{more}" if unread else ""


def _waiting_rows(claims: Sequence[objects.Claim]) -> Iterator[model.ClaimRow]:
    """Yield a row for each claim without devices."""
    for claim in claims:
        if claim.devices is None:
            yield model.ClaimRow(claim=claim.meta.label, uid=claim.meta.uid, state=claim.state, since=claim.meta.created)


def _filled(
    base: model.Pool, slices: Sequence[resource_slice.Published], held: Sequence[model.Holding], tainted: rules.TaintedSlices
) -> model.Pool:
    pages = [published.spec.page for published in slices]
    names = [device.name for page in pages for device in page.devices if device.taints]
    health = {name: model.Health(taints=tainted.named(base.driver, base.name, name)) for name in names}
    try:
        offered = inventory.Inventory(
            devices=tuple(device for page in pages for device in page.devices),
            counter_sets=tuple(counters for page in pages for counters in page.counter_sets),
            mixins=_mixins(pages),
        )
        return pool_devices.pool(base, offered, held, health, is_complete=len(slices) == slices[0].spec.pool.count)
    except api_objects.UNREADABLE as error:
        return dataclasses.replace(base, note=f"incomplete: {error}")


def _mixins(pages: Sequence[resource_slice.Page]) -> inventory.Mixins:
    """Return the mixins of all pages without duplicates; each page has the mixins that it uses."""
    return inventory.Mixins(
        device=tuple({mixin.name: mixin for page in pages for mixin in page.mixins.device}.values()),
        counter_set=tuple({mixin.name: mixin for page in pages for mixin in page.mixins.counter_set}.values()),
        consumption=tuple({mixin.name: mixin for page in pages for mixin in page.mixins.consumption}.values()),
    )


def _pools(slices: Iterator[resource_slice.Published]) -> Mapping[_Key, Sequence[resource_slice.Published]]:
    """Return the slices of the newest generation of each pool, sorted by name."""
    pools: dict[_Key, list[resource_slice.Published]] = collections.defaultdict(list)
    for published in slices:
        spec = published.spec
        if not spec.pool.name.endswith(resource_slice.PROBE_SUFFIX):
            pools[spec.driver, spec.node, spec.pool.name].append(published)
    newest = {key: max(published.spec.pool.generation for published in found) for key, found in pools.items()}
    return {
        key: sorted((published for published in found if published.spec.pool.generation == newest[key]), key=lambda entry: entry.name)
        for key, found in pools.items()
    }


def _holdings(claims: Sequence[objects.Claim]) -> Mapping[tuple[str, str], list[model.Holding]]:
    """Return the allocated devices of all claims by driver and pool."""
    found: dict[tuple[str, str], list[model.Holding]] = collections.defaultdict(list)
    for claim in claims:
        for result in claim.devices.results if claim.devices is not None else ():
            key = (result.driver, result.pool, result.device, result.share_id or "")
            found[result.driver, result.pool].append(
                model.Holding(
                    device=result.device,
                    claim=claim.meta.label,
                    uid=claim.meta.uid,
                    request=result.request,
                    share=result.share_id or "",
                    consumed=result.consumed_capacity,
                    admin=result.admin_access,
                    state=claim.state,
                    done=claim.prepared.get(key),
                    interface=claim.interfaces.get(key, ""),
                    pods=claim.pods,
                    since=claim.meta.created,
                    pool=result.pool,
                )
            )
    return found


def _latest(events: Sequence[objects.Event]) -> tuple[model.Event, ...]:
    """Return the latest events, the newest first."""
    ordered = sorted(events, key=lambda event: objects.moment(event.time), reverse=True)
    return tuple(
        model.Event(
            time=event.time,
            warning=event.type == "Warning",
            reason=event.reason,
            about=event.about,
            message=event.message,
            count=event.count,
        )
        for event in ordered[: model.EVENTS_MAX]
    )
