"""The state of a cluster, from watches of ResourceSlices, ResourceClaims, DeviceTaintRules and Events."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

from drakit.core import claim as claims
from drakit.core import errors, inventory, ports
from drakit.core.encoding import wire
from drakit.core.slices import resource_slice
from drakit.kube import api_objects, claim_codec, slice_codec, stored_claim, transport, watch
from drakit_cluster.objects import versions
from drakit_cluster.scheduling import taint_rules
from drakit_tools.dashboard import model

if TYPE_CHECKING:
    from drakit_cluster.objects.json_types import Object

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_EVENTS = "/api/v1/events"
_RULES = tuple(f"/apis/resource.k8s.io/{version}/devicetaintrules" for version in versions.SERVED["DeviceTaintRule"])
_NOT_FOUND = 404
_SHOWN = 3
"""Unreadable objects that the page names."""
_ABOUT = frozenset({"ResourceClaim", "Pod", "Node"})

_Value = TypeVar("_Value")
_Key = tuple[str, str, str]
"""Driver, node and pool."""


class _Collection:
    """The objects of one collection by UID, which a thread keeps up to date."""

    def __init__(self, api: transport.Transport, path: str, clock: ports.Clock, stop: threading.Event) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, transport.Object] = {}
        following = watch.objects(api, path, clock=clock, stop=stop)
        threading.Thread(target=self._run, args=(following,), name=f"dashboard {path.rpartition('/')[2]}", daemon=True).start()

    def items(self) -> Sequence[transport.Object]:
        """Return the current objects."""
        with self._lock:
            return list(self._objects.values())

    def _run(self, following: Iterator[watch.ObservedObject | None]) -> None:
        for seen in following:
            with self._lock:
                if seen is None:
                    self._objects.clear()
                    continue
                uid = api_objects.metadata_text(seen.object, "uid")
                if seen.is_deleted:
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = seen.object


class ClusterSource:
    """Watches a cluster until ``close``. It needs the rights to list and watch slices and claims in all namespaces.

    Events and DeviceTaintRules are optional.
    """

    def __init__(self, api: transport.Transport, clock: ports.Clock, title: str) -> None:
        # A request in the caller's thread, so that the command fails with a wrong kubeconfig or a missing right.
        for path in (_SLICES, _CLAIMS):
            api.request("GET", path, query={"limit": "1"})
        self._title = title
        rules = _find_rules(api)
        self._missing = "; ".join(filter(None, (_missing_events(api), rules.problem)))
        self._note = rules.note
        self._every_device = _taints_without_selector(api)
        self._stop = threading.Event()
        self._slices, self._claims, self._events = (_Collection(api, path, clock, self._stop) for path in (_SLICES, _CLAIMS, _EVENTS))
        self._rules = _Collection(api, rules.path, clock, self._stop) if rules.path else None

    def close(self) -> None:
        """Stop the watches."""
        self._stop.set()

    def state(self) -> model.State:
        """Return the current state. Its problem names the objects that cannot be read, and events that cannot be listed."""
        unread: list[str] = []
        holdings = _holdings(self._claims.items(), unread)
        pools: dict[str, list[model.Pool]] = {}
        held_on: dict[tuple[str, str], list[model.Holding]] = {}
        for (driver, node, name), slices in sorted(_pools(self._tainted_slices(), unread).items()):
            held = holdings.get((driver, name), [])
            base = model.Pool(
                driver=driver,
                name=name,
                generation=slices[0].spec.pool.generation,
                slices=f"{len(slices)} of {slices[0].spec.pool.count}",
            )
            pools.setdefault(node, []).append(_filled(base, slices, held))
            held_on.setdefault((driver, node), []).extend(held)
        nodes = tuple(model.Node(name=node, pools=tuple(found)) for node, found in sorted(pools.items()))
        claims = tuple(row for (driver, node), held in held_on.items() for row in model.claim_rows(driver, node, held))
        events = _events(self._events.items(), unread)
        more = f" and {len(unread) - _SHOWN} more" if len(unread) > _SHOWN else ""
        ignored = f"ignored, because it cannot be read: {'; '.join(unread[:_SHOWN])}{more}" if unread else ""
        problem = "; ".join(filter(None, (self._missing, ignored)))
        return model.State(title=self._title, nodes=nodes, claims=claims, events=events, problem=problem, note=self._note)

    def _tainted_slices(self) -> Sequence[transport.Object]:
        """Return the slices with the taints of DeviceTaintRules."""
        listed = self._slices.items()
        rules = cast("Sequence[Object]", self._rules.items() if self._rules is not None else [])
        if not rules:
            return listed
        return [taint_rules.tainted(entry, rules, unselective=self._every_device) for entry in cast("Sequence[Object]", listed)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RulesPath:
    """Where DeviceTaintRules are listed; without a path, the problem or the note that says why."""

    path: str = ""
    problem: str = ""
    note: str = ""


def _find_rules(api: transport.Transport) -> _RulesPath:
    """Return the path of the best API version of DeviceTaintRules that the server serves."""
    for path in _RULES:
        try:
            api.request("GET", path, query={"limit": "1"})
        except errors.ApiError as error:
            if error.status == _NOT_FOUND:
                continue
            return _RulesPath(problem=f"taints of DeviceTaintRules are not shown: {error}")
        return _RulesPath(path=path)
    return _RulesPath(note=f"The server does not serve DeviceTaintRules ({_NOT_FOUND}), so no rule taints a device.")


def _taints_without_selector(api: transport.Transport) -> bool:
    """Return whether the server's scheduler lets a rule without a selector taint every device."""
    try:
        version = versions.nearest(str(api.request("GET", "/version").get("gitVersion", "")))
    except errors.ApiError:
        version = versions.NEWEST
    return not versions.within(versions.RULES[versions.Rule.SELECTOR_REQUIRED], version)


def _missing_events(api: transport.Transport) -> str:
    """Return why there are no events, "" if this user may list them."""
    try:
        api.request("GET", _EVENTS, query={"limit": "1"})
    except errors.ApiError as error:
        return f"no events are shown: {error}"
    return ""


def _filled(base: model.Pool, slices: Sequence[resource_slice.Published], held: Sequence[model.Holding]) -> model.Pool:
    pages = [published.spec.page for published in slices]
    try:
        offered = inventory.Inventory(
            devices=tuple(device for page in pages for device in page.devices),
            counter_sets=tuple(counters for page in pages for counters in page.counter_sets),
            mixins=_mixins(pages),
        )
        return model.pool(base, offered, held, {}, is_complete=len(slices) == slices[0].spec.pool.count)
    except api_objects.UNREADABLE as error:
        return model.Pool(driver=base.driver, name=base.name, generation=base.generation, slices=base.slices, note=f"incomplete: {error}")


def _mixins(pages: Sequence[resource_slice.Page]) -> inventory.Mixins:
    """Return the mixins of all pages without duplicates; each page has the mixins that it uses."""
    return inventory.Mixins(
        device=tuple({mixin.name: mixin for page in pages for mixin in page.mixins.device}.values()),
        counter_set=tuple({mixin.name: mixin for page in pages for mixin in page.mixins.counter_set}.values()),
        consumption=tuple({mixin.name: mixin for page in pages for mixin in page.mixins.consumption}.values()),
    )


def _pools(items: Sequence[transport.Object], unread: list[str]) -> Mapping[_Key, Sequence[resource_slice.Published]]:
    """Return the slices of the newest generation of each pool, sorted by name."""
    pools: dict[_Key, list[resource_slice.Published]] = collections.defaultdict(list)
    for published in _read(items, slice_codec.decode, unread):
        spec = published.spec
        if not spec.pool.name.endswith(resource_slice.PROBE_SUFFIX):
            pools[spec.driver, spec.node, spec.pool.name].append(published)
    newest = {key: max(published.spec.pool.generation for published in found) for key, found in pools.items()}
    return {
        key: sorted((published for published in found if published.spec.pool.generation == newest[key]), key=lambda entry: entry.name)
        for key, found in pools.items()
    }


def _holdings(items: Sequence[transport.Object], unread: list[str]) -> Mapping[tuple[str, str], list[model.Holding]]:
    """Return the allocated devices of all claims by driver and pool."""
    found: dict[tuple[str, str], list[model.Holding]] = collections.defaultdict(list)
    for claim, ready in _read(items, _allocated, unread):
        if claim is not None:
            for result in claim.results:
                found[result.driver, result.pool].append(
                    model.Holding(
                        device=result.device,
                        claim=str(claim.ref),
                        uid=claim.ref.uid,
                        request=result.request,
                        share=result.share_id or "",
                        consumed=result.consumed_capacity,
                        admin=result.admin_access,
                        done=True if (result.driver, result.pool, result.device) in ready else None,
                    )
                )
    return found


def _allocated(item: transport.Object) -> tuple[claims.Claim | None, frozenset[tuple[str, str, str]]]:
    """Return a claim, None if it is not allocated, and the devices whose drivers wrote a status, which they do after a prepare."""
    stored = stored_claim.read(item)
    if stored.allocation is None:
        return None, frozenset()
    ready = frozenset((entry.driver, entry.pool, entry.device) for entry in stored.entries)
    return claim_codec.decode(item, claim_codec.ref_of(item)), ready


def _events(items: Sequence[transport.Object], unread: list[str]) -> tuple[model.Event, ...]:
    events = [event for found in _read(items, _event, unread) for event in found]
    return tuple(sorted(events, key=lambda event: event.time, reverse=True)[: model.EVENTS_MAX])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Event:
    """An Event of core/v1."""

    created: Annotated[str, wire.Field(name="metadata.creationTimestamp")] = ""
    about_kind: Annotated[str, wire.Field(name="involvedObject.kind")] = ""
    about_namespace: Annotated[str, wire.Field(name="involvedObject.namespace")] = ""
    about_name: Annotated[str, wire.Field(name="involvedObject.name")] = ""
    last_observed: Annotated[str, wire.Field(name="series.lastObservedTime")] = ""
    last_timestamp: str = ""
    event_time: str = ""
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1


def _event(item: transport.Object) -> tuple[model.Event, ...]:
    event = api_objects.FORMAT.decode(_Event, item)
    if event.about_kind not in _ABOUT:
        return ()
    return (
        model.Event(
            time=event.last_observed or event.last_timestamp or event.event_time or event.created,
            warning=event.type == "Warning",
            reason=event.reason,
            about=f"{event.about_kind} {'/'.join(filter(None, (event.about_namespace, event.about_name)))}",
            message=event.message,
            count=event.count,
        ),
    )


def _read(items: Sequence[transport.Object], decode: Callable[[transport.Object], _Value], unread: list[str]) -> Iterator[_Value]:
    """Yield the decoded objects; name those that cannot be decoded, which other programs may write, in ``unread``."""
    for item in items:
        try:
            yield decode(item)
        except api_objects.UNREADABLE as error:
            unread.append(f"{item.get('kind') or 'object'} {api_objects.metadata_text(item, 'name')}: {error}")
