"""Finds the fewest pods to move so that others fit, with their old and new places.

A pod that moves ends, and starts again on another node or on other devices of its node. The search tries no move, then one, then two, and so on. For
each number it tries every way: a pod may replace others, which may replace others. The allocator decides about all new pods of a node at once, next
to the pods that stay, so the answer is exact. If this search would take too long, a second search only moves pods of one GPU; its answer is an
estimate.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import key_of
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.explain import obstacles, wording
from drakit_cluster.simulation.engine import blocks
from drakit_cluster.simulation.engine.nodes import Grant, Node, Nodes
from drakit_cluster.simulation.workload.templates import PodTemplate, WorkloadError

STEPS_MAX = 200_000
"""The number of decisions after which the search stops."""
MOVES_MAX = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Pod:
    """A pod that has devices and may move: its name, its template and its devices."""

    name: str
    template: PodTemplate
    grant: Grant


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A pod on a node, with its devices. ``moved_from`` is its previous node; empty for a new pod."""

    name: str
    node: str
    devices: Sequence[str]
    moved_from: str = ""
    devices_before: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The places of all pods. ``exact`` is true if fewer moves are not enough; ``found`` is false if there is no plan."""

    found: bool
    exact: bool
    placed: Sequence[Placed] = ()

    @property
    def moves(self) -> list[Placed]:
        """Return the pods that move."""
        return [placed for placed in self.placed if placed.moved_from]


class _GivenUpError(Exception):
    pass


@dataclass(eq=False)
class _PendingPod:
    """A pod that needs a place: a new pod, or a pod that must move (``was``)."""

    name: str
    template: PodTemplate
    was: Pod | None = None


@dataclass(eq=False)
class _Change:
    """The pods that leave and enter one node."""

    leaving: tuple[Pod, ...] = ()
    entering: tuple[_PendingPod, ...] = ()


class MovePlanner:
    """A search for moves of the pods on some nodes. It does not change the nodes."""

    def __init__(self, nodes: Nodes, pods: Sequence[Pod], budget: int = STEPS_MAX) -> None:
        if nodes.spans:
            raise WorkloadError("moves cannot be planned if a pool offers devices to several nodes")
        self.moves = 0
        """How many moves the search tries at the moment."""
        self._nodes = nodes
        self._budget = budget
        self._steps = 0
        self._one_gpu = False
        self._on: dict[int, list[Pod]] = {}
        for pod in pods:
            self._on.setdefault(pod.grant.node.rank, []).append(pod)
        self._decisions: dict[tuple[int, frozenset[str], tuple[str, ...]], list[Grant] | None] = {}
        self._failed: set[object] = set()

    def plan(self, new_pods: Sequence[tuple[str, PodTemplate]], max_moves: int = MOVES_MAX) -> Plan:
        """Return the plan with the fewest moves that gives all new pods a place, with at most ``max_moves`` moves."""
        queue = [_PendingPod(name, template) for name, template in new_pods]
        for self._one_gpu in (False, True):
            self._steps = 0
            self._failed.clear()
            try:
                for self.moves in range(max_moves + 1):
                    if (changes := self._place(queue, self.moves, {})) is not None:
                        return Plan(found=True, exact=not self._one_gpu, placed=self._placed(changes))
            except _GivenUpError:
                continue
            if not self._one_gpu:
                return Plan(found=False, exact=True)
        return Plan(found=False, exact=False)

    def _place(self, queue: Sequence[_PendingPod], moves: int, changes: dict[int, _Change]) -> dict[int, _Change] | None:
        """Return the changes that give all pods in the queue a place with this number of moves, or None."""
        if not queue:
            return changes
        # The same pods come together in many orders, and whether they fit does not depend on it.
        state = (
            moves,
            _names(queue),
            frozenset((rank, _names(change.leaving), _names(change.entering)) for rank, change in changes.items()),
        )
        if state in self._failed:
            return None
        first, *others = queue
        for rank, leaving in self._options(first, moves, changes):
            old_change = changes.get(rank, _Change())
            change = _Change(leaving=(*old_change.leaving, *leaving), entering=(*old_change.entering, first))
            if self._decide(rank, change) is None:
                continue
            evicted = [_PendingPod(pod.name, pod.template, pod) for pod in leaving]
            complete = self._place([*others, *evicted], moves - len(leaving), changes | {rank: change})
            if complete is not None:
                return complete
        self._failed.add(state)
        return None

    def _options(self, pending: _PendingPod, moves: int, changes: dict[int, _Change]) -> Iterator[tuple[int, tuple[Pod, ...]]]:
        """Yield nodes with the pods that would have to leave, few before many. Only the first of equal unchanged nodes is yielded."""
        for size in range(moves + 1):
            visited: set[object] = set()
            for node in self._nodes.all:
                if not pending.template.may_run_on(node.type.node):
                    continue
                change = changes.get(node.rank)
                if change is None and (node_key := self._node_key(node)) in visited:
                    continue
                if change is None:
                    visited.add(node_key)
                leaving = change.leaving if change is not None else ()
                staying = [pod for pod in self._on.get(node.rank, ()) if pod not in leaving]
                for group in self._groups(node, staying, pending):
                    for pods in itertools.combinations(group, size):
                        yield node.rank, pods
                    if not size:
                        break

    def _groups(self, node: Node, staying: Sequence[Pod], pending: _PendingPod) -> list[list[Pod]]:
        """Return the pods that may leave together: all of the node; in the second search those of one GPU, and only for new pods."""
        if not self._one_gpu:
            return [list(staying)]
        by_block: dict[int, list[Pod]] = {}
        for pod in staying if pending.was is None else ():
            for number in {node.type.offers.block_of[device] for device in pod.grant.devices()}:
                by_block.setdefault(number, []).append(pod)
        return list(by_block.values()) or [[]]

    def _node_key(self, node: Node) -> object:
        """Return a key that is equal for nodes with the same type, state and pods."""
        pods = tuple(sorted((pod.template.name, tuple(pod.grant.names())) for pod in self._on.get(node.rank, ())))
        return (id(node.type), tuple(node.states), pods)

    def _decide(self, rank: int, change: _Change) -> list[Grant] | None:
        """Return the devices of all new pods of a node, decided together, next to the pods that stay; None if they do not fit."""
        key = (rank, frozenset(pod.name for pod in change.leaving), tuple(pod.name for pod in change.entering))
        if key not in self._decisions:
            if self._steps >= self._budget:
                raise _GivenUpError
            self._steps += 1
            self._decisions[key] = self._try(self._nodes.all[rank], change)
        return self._decisions[key]

    def _try(self, node: Node, change: _Change) -> list[Grant] | None:
        for pod in change.leaving:
            self._nodes.release(pod.grant)
        together = PodTemplate(name="together", claims=[claim for pod in change.entering for claim in pod.template.claims])
        try:
            grant = self._nodes.allocate(together, node) if self._may_fit(node, change) else None
        except AllocationError:
            grant = None
        if grant is not None:
            self._nodes.release(grant)
        for pod in change.leaving:
            self._nodes.restore(pod.grant)
        if grant is None:
            return None
        claims = list(grant.claims)
        split = []
        for newcomer in change.entering:
            split.append(Grant(node, tuple(claims[: len(newcomer.template.claims)])))
            claims = claims[len(newcomer.template.claims) :]
        return split

    def _may_fit(self, node: Node, change: _Change) -> bool:
        """Return whether each new pod may fit alone after the others have left: a cheap check before the allocator decides."""
        offers = node.type.offers
        states = list(node.states)
        for number in {offers.block_of[device] for pod in change.leaving for device in pod.grant.devices()}:
            states[number] = blocks.state_of(offers.blocks[number], node.used)
        for pod in change.entering:
            needs = offers.needs(pod.template)
            if not needs.certain:
                continue
            rooms = [offers.room(pod.template, number, state) for number, state in enumerate(states)]
            if None not in rooms and not needs.met([sum(room[want] for room in rooms if room) for want in range(needs.wants)]):
                return False
        return True

    def _placed(self, changes: dict[int, _Change]) -> list[Placed]:
        placed = []
        for rank, change in sorted(changes.items()):
            grants = self._decide(rank, change) or []
            for pod, grant in zip(change.entering, grants, strict=True):
                old_grant = pod.was.grant if pod.was is not None else None
                placed.append(
                    Placed(
                        name=pod.name,
                        node=grant.node.name,
                        devices=grant.names(),
                        moved_from=old_grant.node.name if old_grant is not None else "",
                        devices_before=old_grant.names() if old_grant is not None else (),
                    )
                )
        return placed


def _names(pods: Iterable[Pod | _PendingPod]) -> frozenset[str]:
    return frozenset(pod.name for pod in pods)


def verified(nodes: Nodes, plan: Plan, pods: Sequence[Pod], new_pods: Sequence[tuple[str, PodTemplate]]) -> bool:
    """Return whether the plan works in a simulation: all moving pods end, then all pods of the plan start on their nodes.

    It does not change the nodes.
    """
    templates = dict(new_pods) | {pod.name: pod.template for pod in pods}
    moving = {move.name for move in plan.moves}
    released = [pod for pod in pods if pod.name in moving]
    for pod in released:
        nodes.release(pod.grant)
    with placed(nodes, plan.placed, templates) as started:
        works = len(started) == len(plan.placed)
    for pod in released:
        nodes.restore(pod.grant)
    return works


@contextlib.contextmanager
def placed(nodes: Nodes, places: Iterable[Placed], templates: Mapping[str, PodTemplate]) -> Iterator[list[Pod]]:
    """Start pods on their nodes while the context is open, those of a node together; yield those that started."""
    by_name = {node.name: node for node in nodes.all}
    names: dict[str, list[str]] = {}
    for place in places:
        names.setdefault(place.node, []).append(place.name)
    started: list[Pod] = []
    for node, listed in names.items():
        together = PodTemplate(name=node, claims=[claim for name in listed for claim in templates[name].claims])
        if (grant := nodes.allocate(together, by_name[node])) is not None:
            claims = iter(grant.claims)
            started += [
                Pod(
                    name=name,
                    template=templates[name],
                    grant=Grant(grant.node, tuple(itertools.islice(claims, len(templates[name].claims)))),
                )
                for name in listed
            ]
    yield started
    for pod in started:
        nodes.release(pod.grant)


@dataclass(frozen=True, kw_only=True, eq=False)
class User:
    """Pods that share claims, as namespace/name, with all their claims, which move together; or a claim without pods.

    The labels that their node needs, and the taints that it may have, are those of the pods that are known.
    """

    pods: Sequence[str]
    claims: Sequence[Object]
    known: Sequence[Object] = ()

    @property
    def may_move(self) -> bool:
        """Return whether no known pod stays with its node."""
        return not any(map(stays, self.known))

    @property
    def name(self) -> str:
        """Return the kind and the names of the pods, or of the claim."""
        if not self.pods:
            return f"claim {naming.label(self.claims[0])}"
        return f"{'pod' if len(self.pods) == 1 else 'pods'} {', '.join(self.pods)}"

    def template(self) -> PodTemplate:
        """Return what the pods request, or the claim."""
        first, *others = [json_types.objects(pod, "spec", "tolerations") for pod in self.known] or [[]]
        return PodTemplate(
            name=self.name,
            claims=[{"metadata": claim.get("metadata"), "spec": claim.get("spec")} for claim in self.claims],
            node_selector={key: value for pod in self.known for key, value in json_types.mapping(pod, "spec", "nodeSelector").items()},
            tolerations=[one for one in first if all(one in tolerations for tolerations in others)],
        )


def stays(pod: Object) -> bool:
    """Return whether a pod stays with its node, also in a drain: it belongs to a DaemonSet. Static pods have no claims; Kubernetes refuses them."""
    return json_types.text(pod_claims.owner(pod), "kind") == "DaemonSet"


def users_of(claims: Sequence[Object], pods: Sequence[Object]) -> list[User]:
    """Return the users of claims, as the reservations say (status.reservedFor), in order of appearance; ``pods`` are those that are known."""

    def reserving(claim: Object) -> list[str]:
        namespace = json_types.text(claim, "metadata", "namespace")
        return [f"{namespace}/{json_types.text(entry, 'name')}" for entry in pod_claims.reserving_pods(claim)]

    return _users(claims, pods, reserving)


def waiting_users(claims: Sequence[Object], pods: Sequence[Object]) -> list[User]:
    """Return the users of the claims without devices: the pods without a node that name them, in order of appearance."""
    waiting = [(naming.label(pod), pod_claims.claim_keys(pod)) for pod in pods if pod_claims.waits_for_node(pod)]
    pending = [claim for claim in claims if not pod_claims.is_allocated(claim)]
    return _users(pending, pods, lambda claim: [label for label, keys in waiting if key_of(claim) in keys])


def _users(claims: Iterable[Object], pods: Iterable[Object], pods_of_claim: Callable[[Object], list[str]]) -> list[User]:
    objects = {naming.label(pod): pod for pod in pods}
    by_name: dict[str, User] = {}
    for claim in claims:
        names = pods_of_claim(claim)
        former = list(dict.fromkeys(by_name[name] for name in names if name in by_name))
        joined = list(dict.fromkeys([*(name for user in former for name in user.pods), *names]))
        user = User(
            pods=joined,
            claims=[*(held for user in former for held in user.claims), claim],
            known=[objects[name] for name in joined if name in objects],
        )
        by_name |= dict.fromkeys(user.pods or [user.name], user)
    return list(dict.fromkeys(by_name.values()))


def why_no_place(nodes: Nodes, users: Iterable[User], template: PodTemplate, before: Sequence[Pod] = ()) -> str:
    """Return why a pod that fits on an empty node has no place, with the first of the users that have what it needs where it may run.

    ``before`` are the pods that got devices on these nodes before it.
    """
    takers = _takers(nodes, users, template, before)
    by = f": {wording.listed(takers)}" if takers else ""
    return f"{template.name} fits on an empty node, but other pods use the devices that it needs on every node{by}"


def _takers(nodes: Nodes, users: Iterable[User], template: PodTemplate, before: Sequence[Pod]) -> list[str]:
    held = [(user.name, grant) for user in users for claim in user.claims for grant in nodes.grants_of(claim)]
    held += [(f"{pod.name} (moved before it)", pod.grant) for pod in before]
    holders: dict[int, dict[DeviceId, list[str]]] = {}
    for name, grant in held:
        for device in grant.devices():
            holders.setdefault(grant.node.rank, {}).setdefault(device, []).append(name)
    names: list[str] = []
    for node in nodes.all:
        if node.rank in holders and template.may_run_on(node.type.node):
            with contextlib.suppress(AllocationError):
                problem = node.type.allocator().problem(claims=template.claims, node=node.type.node, allocated=node.used)
                names += obstacles.takers(problem, holders[node.rank])
    return list(dict.fromkeys(names))


def pods_of(nodes: Nodes, claims: Sequence[Object], pods: Sequence[Object]) -> list[Pod]:
    """Return the pods with the allocated claims of a cluster that can move; claims of one pod, and pods that share a claim, move together.

    A pod stays where a device of it is in no slice, for instance because the node's driver is down: what it would free is unknown. Pods of
    DaemonSets stay as well, and so do users of a claim that a pod without a node names, which waits for other claims where that one is.
    """
    awaited = {key for pod in pods if pod_claims.waits_for_node(pod) for key in pod_claims.claim_keys(pod)}
    holders = []
    for user in users_of(claims, pods):
        if not user.may_move or not awaited.isdisjoint(map(key_of, user.claims)):
            continue
        grants = [grant for claim in user.claims for grant in nodes.grants_of(claim)]
        if grants and all(grant.node is grants[0].node and grant.is_offered for grant in grants):
            holders.append(
                Pod(
                    name=user.name,
                    template=user.template(),
                    grant=Grant(grants[0].node, tuple(claim for grant in grants for claim in grant.claims)),
                )
            )
    return holders
