"""The decision for a pod: its node, and the devices of its claims. This module writes nothing.

Nodes are tried in the order of their names; the first on which all claims of the pod can be allocated together wins.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import uid_of
from drakit_cluster.client.pod_claims import MAX_RESERVATIONS
from drakit_cluster.client.sharing import Sharing, reserving_groups
from drakit_cluster.objects import json_types, nodes
from drakit_cluster.objects.devices import AllocationError, UnusablePoolError
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import extended
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.known_errors import KnownError
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.explain import obstacles, wording
from drakit_cluster.scheduling.explain.obstacles import Obstacle

_SHOWN_NODES = 3
_SHOWN_OBSTACLES = 3


@dataclass(frozen=True, kw_only=True)
class Special:
    """The claim for extended resources (without a name before it is created), and the requests that each container gets."""

    claim: Object
    mappings: Sequence[Object]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A node, and what to write. ``allocate`` pairs claims with their new allocations; ``reserve`` holds claims that are allocated already."""

    node: str
    allocate: Sequence[tuple[Object, Object]]
    reserve: Sequence[Object]
    special: Special | None = None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The reason that a pod waits, for its owner. ``stuck`` are claims that only this pod uses and whose devices bind it to other nodes.

    ``gated``: a claim of the pod does not exist or does not belong to it yet, which happens to every pod whose claims are generated.
    kube-scheduler (PreEnqueue of dynamicresources) does not try such a pod, so no event reports a failure.
    """

    message: str
    gated: bool = False
    stuck: Sequence[Object] = ()


@dataclass(frozen=True, kw_only=True)
class Site:
    """The inputs of placement: nodes in order of preference, and devices.

    No field has a default, so that no caller forgets one.
    """

    nodes: Sequence[Object]
    claims: Mapping[Key, Object]
    allocator: Allocator
    allocated: AllocatedState
    new_share_id: Callable[[], str]
    sharing: Sharing
    groups: Mapping[Key, Object]
    """The PodGroups."""
    is_first: Callable[[Object], bool]
    """Whether no other pod of a pod's PodGroup has a node."""
    resources: Mapping[str, str]
    """DeviceClass names by extended resource."""
    taken: Callable[[str, str], int]
    """How much of an extended resource the pods of a node use."""
    apart: Callable[[Object], str]
    """Why the pod must avoid a node because of the pods on it; "" if it need not."""
    holders: Callable[[], wording.Holders]
    """The claims that have devices."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The needs of a pod on one node: claims to allocate together, and claims that are allocated already."""

    pending: Sequence[Object]
    ready: Sequence[Object]
    special: Special | None = None


def place(pod: Object, site: Site) -> Placement | Refusal:
    """Return the placement of ``pod``, or the reason why it must wait."""
    claims = _claims(pod, site)
    if isinstance(claims, Refusal):
        return claims
    try:
        return _first_fit(pod, claims, site)
    except AllocationError as error:
        return Refusal(message=f"allocation is impossible: {error}")


def needs_on(pod: Object, node: Object, site: Site) -> Needs | str:
    """Return what ``pod`` needs on ``node``, extended resources included, or why it cannot run there whatever devices are free."""
    claims = _claims(pod, site)
    return claims.message if isinstance(claims, Refusal) else _needs(pod, node, claims, site)


def _claims(pod: Object, site: Site) -> list[Object] | Refusal:
    """Return the claims that the pod's spec names."""
    group = site.sharing.group_key(pod)
    if group is not None and group not in site.groups:
        return Refusal(message=f"PodGroup {group.namespace}/{group.name} not found", gated=True)
    claims: list[Object] = []
    for reference in pod_claims.references(pod):
        if reference.claim is None or reference.special:
            continue
        claim = _usable(pod, reference, site)
        if isinstance(claim, Refusal):
            return claim
        claims.append(claim)
    return claims


def _usable(pod: Object, reference: pod_claims.Reference, site: Site) -> Object | Refusal:
    """Return the claim of a reference if the pod may wait for it or use it."""
    if not reference.claim:
        missing = f"claim {reference.name} is not yet generated from template {reference.template}; check that the template exists"
        return Refusal(message=missing, gated=True)
    namespace = json_types.text(pod, "metadata", "namespace")
    label = f"claim {namespace}/{reference.claim}"
    claim = site.claims.get(Key(namespace, reference.claim))
    if claim is None:
        return Refusal(message=f"{label} not found", gated=True)
    if pod_claims.is_deleting(claim):
        return Refusal(message=f"{label} is being deleted", gated=True)
    if reference.template and not site.sharing.is_generated_for(claim, pod):
        return Refusal(message=f"{label} was not generated for this pod", gated=True)
    if site.sharing.is_missing(claim, pod) and len(pod_claims.reservations(claim)) >= MAX_RESERVATIONS:
        return Refusal(message=f"{label} is in use by {MAX_RESERVATIONS} consumers, the most there can be")
    return claim


def _first_fit(pod: Object, claims: Sequence[Object], site: Site) -> Placement | Refusal:
    if site.allocator.repeats(KnownError.ALL_STOPS):
        _check_every_node(pod, claims, site)
    refused: dict[str, str] = {}
    bound_elsewhere: dict[str, Object] = {}
    ready = [claim for claim in claims if pod_claims.is_allocated(claim)]
    for node in site.nodes:
        try:
            outcome = _on_node(pod, node, claims, site)
        except UnusablePoolError as error:
            outcome = str(error)
        if isinstance(outcome, Placement):
            return outcome
        if not _node_obstacle(pod, node, site):
            bound_elsewhere |= {uid_of(claim): claim for claim in _bound_elsewhere(ready, node)}
        refused[json_types.text(node, "metadata", "name")] = outcome
    message = _unavailable(refused, lambda names: _takers(pod, names, claims, site))
    return Refusal(message=message, stuck=[claim for claim in bound_elsewhere.values() if _is_free_for(claim, pod, site)])


def _check_every_node(pod: Object, claims: Sequence[Object], site: Site) -> None:
    """Raise the AllocationError of any node, as Kubernetes does that examines the nodes at the same time."""
    for node in site.nodes:
        needs = _needs(pod, node, claims, site)
        if isinstance(needs, Needs):
            site.allocator.problem(claims=needs.pending, node=node, allocated=site.allocated)


def _on_node(pod: Object, node: Object, claims: Sequence[Object], site: Site) -> Placement | str:
    """Return how the pod gets its devices on one node, or why not."""
    needs = _needs(pod, node, claims, site)
    if isinstance(needs, str):
        return needs
    results = _allocate(needs.pending, node, site)
    if results is None:
        return _summary(needs, node, site)
    return Placement(
        node=json_types.text(node, "metadata", "name"),
        allocate=list(zip(needs.pending, results, strict=True)),
        reserve=[claim for claim in needs.ready if site.sharing.is_missing(claim, pod)],
        special=needs.special,
    )


def _needs(pod: Object, node: Object, claims: Sequence[Object], site: Site) -> Needs | str:
    special = _node_obstacle(pod, node, site) or _special(pod, node, site)
    if isinstance(special, str):
        return special
    needed = [*claims, special.claim] if special is not None else claims
    ready = [claim for claim in needed if pod_claims.is_allocated(claim)]
    if elsewhere := _bound_elsewhere(ready, node):
        return f"claim {json_types.text(elsewhere[0], 'metadata', 'name')} is allocated on another node"
    return Needs(pending=[claim for claim in needed if not pod_claims.is_allocated(claim)], ready=ready, special=special)


def _special(pod: Object, node: Object, site: Site) -> Special | str | None:
    """Return the claim for the extended resources that only devices offer on the node; None if there are none; text if something is lacking.

    An existing claim is reused if its requests are the same.
    """
    resources = extended.requested(pod)
    from_devices = {name for name in resources if not extended.offered(node, name)}
    lacking = from_devices - site.resources.keys() | {name for name in resources - from_devices if _is_short(pod, node, name, site)}
    if lacking:
        return f"insufficient {', '.join(sorted(lacking))}"
    if not from_devices:
        return None
    plan = extended.plan(pod, {name: site.resources[name] for name in from_devices})
    existing = next(
        (claim for claim in site.claims.values() if extended.is_special(claim, pod) and not pod_claims.is_deleting(claim)), None
    )
    if existing is None:
        return Special(claim=extended.claim(pod, plan.requests), mappings=plan.mappings)
    if json_types.objects(existing, "spec", "devices", "requests") != plan.requests:
        return "the claim for extended resources was made for other nodes"
    return Special(claim=existing, mappings=plan.mappings)


def _is_short(pod: Object, node: Object, resource: str, site: Site) -> bool:
    """Return whether the node's device plugins have too little of a resource left for the pod."""
    taken = site.taken(json_types.text(node, "metadata", "name"), resource)
    return extended.amount(pod, resource) > extended.offered(node, resource) - taken


def _allocate(pending: Sequence[Object], node: Object, site: Site) -> list[Object] | None:
    if not pending:
        return []
    return site.allocator.allocate(claims=pending, node=node, allocated=site.allocated, new_share_id=site.new_share_id)


def _node_obstacle(pod: Object, node: Object, site: Site) -> str:
    """Return why the node does not accept the pod, apart from devices; "" if it does."""
    if json_types.at(node, "spec", "unschedulable") is True:
        return "is unschedulable"
    if pod_claims.is_deleting(node):
        return "is being deleted"
    selector, tolerations = json_types.mapping(pod, "spec", "nodeSelector"), json_types.objects(pod, "spec", "tolerations")
    return nodes.exclusion(node, selector, tolerations) or site.apart(node)


def _bound_elsewhere(ready: Sequence[Object], node: Object) -> list[Object]:
    """Return the allocated claims that cannot be used on the node."""
    selectors = [(claim, pod_claims.allocation(claim).get("nodeSelector")) for claim in ready]
    return [claim for claim, selector in selectors if selector is not None and not nodes.selects(selector, node)]


def _is_free_for(claim: Object, pod: Object, site: Site) -> bool:
    """Return whether only ``pod`` uses the claim, so that its devices can be released. False for a workload's claim: its users are unknown."""
    holders = {json_types.text(holder, "uid") for holder in pod_claims.reservations(claim)}
    return not pod_claims.serves_any_pod(claim) and holders <= own_holds(claim, pod, site)


def own_holds(claim: Object, pod: Object, site: Site) -> set[str]:
    """Return the UIDs whose reservations of the claim end with ``pod``: its own, and its PodGroup's until another pod of the group has a node."""
    group = site.sharing.group_key(pod)
    if group is None or not site.is_first(pod):
        return {uid_of(pod)}
    return {uid_of(pod)} | {json_types.text(entry, "uid") for entry in reserving_groups(claim) if entry.get("name") == group.name}


def _takers(pod: Object, names: Sequence[str], claims: Sequence[Object], site: Site) -> list[str]:
    """Return the claims that have what the pod needs of the named nodes."""
    takers: list[str] = []
    for node in site.nodes:
        if json_types.text(node, "metadata", "name") not in names:
            continue
        needs = _needs(pod, node, claims, site)
        if isinstance(needs, Needs):
            with contextlib.suppress(AllocationError):
                allocator = site.allocator.repeating(known_errors.NONE)
                problem = allocator.problem(claims=needs.pending, node=node, allocated=site.allocated)
                takers += obstacles.takers(problem, site.holders())
    return takers


def _unavailable(refused: Mapping[str, str], takers_on: Callable[[Sequence[str]], Sequence[str]]) -> str:
    """Return why no node is available, by node; nodes with the same reason are listed together, with the claims that have what is needed."""
    if not refused:
        return "0/0 nodes are available: no node has registered"
    alike: dict[str, list[str]] = {}
    for name, reason in refused.items():
        alike.setdefault(reason, []).append(name)
    groups = []
    for reason, names in list(alike.items())[:_SHOWN_NODES]:
        examined = names if len(names) <= _SHOWN_NODES else names[:1]
        takers = takers_on(examined)
        where = "" if examined == names else f"on {examined[0]} "
        by = f", {where}taken by {wording.listed(takers)}" if takers else ""
        groups.append(f"{wording.listed(names, _SHOWN_NODES)}: {reason}{by}")
    more = sum(len(names) for names in list(alike.values())[_SHOWN_NODES:])
    return f"0/{len(refused)} nodes are available: {'; '.join(groups)}{f'; and {more} more' if more else ''}"


def _summary(needs: Needs, node: Object, site: Site) -> str:
    """Return the obstacles on one node. Raises AllocationError as allocating does."""
    if text := site.allocator.misjudged(claims=needs.pending, node=node, allocated=site.allocated):
        return text
    allocator = site.allocator.repeating(known_errors.NONE)
    problem = allocator.problem(claims=needs.pending, node=node, allocated=site.allocated)
    pools, requests = obstacles.of_pools(problem), obstacles.of_requests(problem, {})
    parts = [
        *(pool.text for pool in pools),
        *(f"{request.claim}, request {request.request}: {request.text}{_group_counts(request)}" for request in requests),
    ]
    return "; ".join(parts if requests else [*parts, "every request could be served alone, but not all together"])


def _group_counts(obstacle: Obstacle) -> str:
    """Return how many devices each reason excludes: nearest to fitting first, then most frequent; the other reasons as one number.

    Where devices of the requested kind are refused, those of other kinds are among the others.
    """
    ordered = sorted(obstacle.groups, key=lambda group: (group.mismatch, -len(group.devices)))
    near = [group for group in ordered if not group.mismatch] or ordered
    shown = near[:_SHOWN_OBSTACLES]
    counts = [(len(group.devices), group.text) for group in shown]
    if others := sum(len(group.devices) for group in ordered[len(shown) :]):
        counts.append((others, "for other reasons"))
    return f" ({'; '.join(f'{count}x {text}' for count, text in counts)})" if counts else ""
