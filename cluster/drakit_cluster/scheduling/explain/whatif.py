"""A dry run of the scheduler: the decisions for claims and pods, one after the other, with the devices that objects describe.

Pods come first, in the order of the files; then claims that no pod uses, each with a pod of its own; then one claim for each template that
no pod uses. Devices allocated by one decision are in use for the next. Claims with an allocation and pods with a node only occupy
resources. :mod:`drakit_cluster.scheduling.placement` decides what a pod needs, as in the scheduler.
"""

import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drakit_cluster import cel as selectors
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.sharing import Sharing, is_of_group
from drakit_cluster.objects import capacity, json_types, naming, resources
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.scheduling import extended, placement, reservation, taint_rules
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.explain import obstacles, wording
from drakit_cluster.scheduling.explain.obstacles import Obstacle
from drakit_cluster.scheduling.placed_pods import PlacedPods
from drakit_cluster.scheduling.placement import Placement, Refusal

DEFAULT_NODE = "node"
_PLENTY = "1000000"
_QUICK_STEPS = 5_000
"""The length of a search that only serves a remark."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A claim and the allocation it would get."""

    claim: str
    allocation: Object


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision for one pod or claim; ``node`` is empty if it does not fit. ``message`` says why there is no allocation."""

    subject: str
    node: str = ""
    given: Sequence[Given] = ()
    message: str = ""
    difference: str = ""
    """What Kubernetes 1.36 decides instead, because of its known errors."""
    why: dict[str, list[Obstacle]] = field(default_factory=dict)
    """Obstacles by node; nodes that were not tried are missing."""

    @property
    def fits(self) -> bool:
        return bool(self.node)


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something about the objects that a reader of an answer should know. ``doubtful``: the answer may be wrong because of it."""

    text: str
    doubtful: bool = False


@dataclass(frozen=True, kw_only=True)
class World:
    """Objects as an API server stores them. Without nodes, the nodes that slices name are assumed, with plenty of any resource without a class."""

    slices: Sequence[Object] = ()
    classes: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    templates: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    groups: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    taint_rules: Sequence[Object] = ()
    notes: Sequence[Note] = ()
    """What is missing among the objects of a live cluster, or is not considered."""
    workloads: Mapping[str, str] = field(default_factory=dict)
    """By the label of a pod that was made of a workload of the files: the workload's place and label."""
    surging: Mapping[str, str] = field(default_factory=dict)
    """By the label of one of its pods: a Deployment whose rolling update starts a pod before it ends one."""

    @classmethod
    def of(cls, objects: Callable[[Resource], Sequence[Object]]) -> "World":
        return cls(
            slices=objects(resources.SLICE),
            classes=objects(resources.CLASS),
            claims=objects(resources.CLAIM),
            templates=objects(resources.CLAIM_TEMPLATE),
            pods=objects(resources.POD),
            groups=objects(resources.POD_GROUP),
            nodes=objects(resources.NODE),
            taint_rules=objects(resources.TAINT_RULE),
        )

    def known_nodes(self) -> list[Object]:
        """Return the nodes, or the assumed ones, sorted by name."""
        names = {json_types.text(resource_slice, "spec", "nodeName") for resource_slice in self.slices} - {""}
        foreign = {name for pod in self.pods for name in extended.requested(pod)} - extended.class_names(
            self.classes, FeatureGates()
        ).keys()
        offered: Object = {name: _PLENTY for name in foreign if not name.startswith(extended.CLASS_PREFIX)}
        assumed: list[Object] = [{"metadata": {"name": name}, "status": {"allocatable": offered}} for name in names or {DEFAULT_NODE}]
        return sorted(self.nodes or assumed, key=_name)


class Scheduler:
    """Decides over one world, and records what it allocated."""

    def __init__(
        self,
        world: World,
        gates: FeatureGates,
        nodes: Sequence[Object],
        errors: KnownErrors = known_errors.NONE,
        compared: KnownErrors = known_errors.KUBERNETES_1_36,
    ) -> None:
        """``errors`` are the known errors of a Kubernetes version to repeat. Without any, decisions report where a version with those of
        ``compared`` differs.
        """
        classes = {_name(device_class): device_class for device_class in world.classes}
        rules = sorted(world.taint_rules, key=_name) if gates.on(Gate.DEVICE_TAINT_RULES) else []
        unselective = KnownError.RULE_WITHOUT_SELECTOR in errors
        slices = [taint_rules.tainted(resource_slice, rules, unselective=unselective) for resource_slice in world.slices]
        self._allocator = Allocator(slices, classes, selectors.Selectors(gates), gates, errors)
        self.subject = ""
        """What it decides at the moment."""
        self._errors = errors
        self._compared = replace(compared, max_steps=_QUICK_STEPS)
        self._sharing = Sharing.of(gates)
        self._nodes = nodes
        self._world = world
        self._resources = extended.class_names(world.classes, gates)
        self._placed = PlacedPods()
        self._claims = {_key(claim_): claim_ for claim_ in world.claims}
        self._groups: dict[Key, Object] = {}
        for group in world.groups:
            self._groups[_key(group)] = self._with_claims(group, pod_claims.references(group), resources.POD_GROUP)
        self._allocated = AllocatedState(consumable_capacity=gates.on(Gate.CONSUMABLE_CAPACITY))
        self._holders: dict[DeviceId, list[str]] = {}
        for claim in sorted(world.claims, key=_key):
            self._record(claim)
        for pod in world.pods:
            self._placed.observe(pod, deleted=False)

    def decide(self) -> Iterator[Decision]:
        """Yield the decisions for all pods, claims and templates, in order."""
        used: set[Key] = set()
        templates: set[Key] = set()
        for pod in self._world.pods:
            references = pod_claims.references(pod)
            namespace = json_types.text(pod, "metadata", "namespace")
            templates |= {Key(namespace, reference.template) for reference in references if reference.template}
            used |= {Key(namespace, reference.claim) for reference in references if reference.claim}
            if pod_claims.waits_for_node(pod):
                yield self._decide(f"pod {naming.label(pod)}", self._with_claims(pod, references))
        for claim in self._world.claims:
            if _key(claim) not in used and not pod_claims.is_allocated(claim):
                yield self._decide(f"claim {naming.label(claim)}", _pod_for(claim))
        for template in self._world.templates:
            if _key(template) not in templates:
                claim = claim_of(template)
                self._claims[_key(claim)] = claim
                yield self._decide(f"template {naming.label(template)}", _pod_for(claim))

    def alone(self, claim: Object) -> Decision:
        """Return the decision for one more claim. Nothing is recorded, so the next decision starts from the same state."""
        self._claims[_key(claim)] = free = {name: value for name, value in claim.items() if name != "status"}
        return self._try(f"claim {naming.label(claim)}", _pod_for(free))[0]

    def beside_itself(self, claim: Object) -> str:
        """Return how Kubernetes 1.36 differs once one of the devices that the claim would get is in use. Nothing is recorded."""
        self._claims[_key(claim)] = free = {name: value for name, value in claim.items() if name != "status"}
        decision, _ = self._try("", _pod_for(free))
        for grant in decision.given:
            for result in json_types.objects(grant.allocation, "devices", "results"):
                held = DeviceId(*(json_types.text(result, field) for field in ("driver", "pool", "device")))
                amounts = capacity.decode_amounts(result.get("consumedCapacity"))
                occupy = (
                    functools.partial(self._allocated.share, held, amounts)
                    if "shareID" in result
                    else functools.partial(self._allocated.hold, held)
                )
                occupy(1)
                try:
                    if difference := self._try("", _pod_for(free))[0].difference:
                        return f"while {held.device} is {'shared' if 'shareID' in result else 'taken'}, {difference}"
                finally:
                    occupy(-1)
        return ""

    def alone_for(self, pod: Object) -> Decision:
        """Return the decision for one more pod. Nothing is recorded."""
        free = {name: value for name, value in pod.items() if name != "status"}
        return self._try(f"pod {naming.label(pod)}", self._with_claims(free, pod_claims.references(free)))[0]

    def full(self, decided: Iterable[Decision]) -> list[str]:
        """Return the Deployments of ``surging`` all of whose pods fit, and for which no node fits one pod more beside all that was decided."""
        workloads = self._world.workloads
        refused = {workloads.get(decision.subject.removeprefix("pod ")) for decision in decided if not decision.fits}
        pods = {naming.label(pod): pod for pod in self._world.pods if wants_devices(pod)}
        return [
            deployment
            for label, deployment in self._world.surging.items()
            if label in pods and workloads[label] not in refused and not self.alone_for(_renamed(pods[label])).fits
        ]

    def _with_claims(self, owner: Object, references: Iterable[pod_claims.Reference], resource: Resource = resources.POD) -> Object:
        """Return the pod or PodGroup with a claim from every template, as the controller would make them."""
        namespace = json_types.text(owner, "metadata", "namespace")
        group_key = self._sharing.group_key(owner)
        group = self._groups.get(group_key) if group_key is not None else None
        templates = {_key(template_): template_ for template_ in self._world.templates}
        statuses: list[Object] = []
        for reference in references:
            template = templates.get(Key(namespace, reference.template))
            if template is None or reference.claim:
                continue
            if group is not None and is_of_group(reference, group):
                name = next((entry.claim for entry in pod_claims.references(group) if entry.name == reference.name), None)
            else:
                claim = _copy_of(template, f"{_name(owner)}-{reference.name}")
                json_types.child(claim, "metadata")["ownerReferences"] = [pod_claims.owned_by(resource, owner)]
                self._claims[_key(claim)] = claim
                name = _name(claim)
            statuses.append({"name": reference.name, "resourceClaimName": name})
        existing = json_types.objects(owner, "status", "resourceClaimStatuses")
        return owner | {"status": {"resourceClaimStatuses": json_types.from_objects([*existing, *statuses])}}

    def _site(self, pod: Object) -> placement.Site:
        return placement.Site(
            nodes=self._nodes,
            claims=self._claims,
            allocator=self._allocator,
            allocated=self._allocated,
            new_share_id=lambda: str(uuid.uuid4()),
            sharing=self._sharing,
            groups=self._groups,
            is_first=lambda pod: self._placed.is_first(pod, ()),
            resources=self._resources,
            taken=self._placed.taken,
            apart=self._placed.rule_for(pod, {_name(node): node for node in self._nodes}),
            holders=lambda: self._holders,
        )

    def _try(self, subject: str, pod: Object) -> tuple[Decision, Placement | None]:
        """Return the decision for a pod, and its placement if it fits."""
        self.subject = subject
        site = self._site(pod)
        match placement.place(pod, site):
            case Refusal(message=message):
                why, difference = self._why(pod, site), self._difference(pod, site, None)
                return Decision(subject=subject, message=message, why=why, difference=difference), None
            case Placement() as decided:
                grants = [
                    Given(claim=naming.label(claim), allocation=reservation.granted(claim, allocation, self._sharing))
                    for claim, allocation in decided.allocate
                ]
                nothing = "all its claims are allocated" if pod_claims.references(pod) else "asks for no devices"
                message, difference = "" if grants else nothing, self._difference(pod, site, decided)
                return Decision(subject=subject, node=decided.node, given=grants, message=message, difference=difference), decided

    def _difference(self, pod: Object, site: placement.Site, correct: Placement | None) -> str:
        """Return in words what Kubernetes 1.36 decides instead of ``correct``; "" if it decides the same."""
        quick = self._compared
        if self._errors or not quick:
            return ""
        faulty = self._repeating(pod, site, quick)
        if _outcome(faulty) == _outcome(correct):
            return ""
        alone = (
            kind for kind in KnownError if _outcome(self._repeating(pod, site, replace(quick, kinds=frozenset({kind})))) == _outcome(faulty)
        )
        why = known_errors.advice(next(alone, None))
        if faulty is None:
            return f"Kubernetes {quick.version} leaves it Pending: {why}"
        if correct is None:
            return f"Kubernetes {quick.version} allocates it anyway: {why}"
        node, devices = _outcome(faulty)
        return f"Kubernetes {quick.version} allocates {', '.join(devices)} on {node} instead: {why}"

    def _repeating(self, pod: Object, site: placement.Site, errors: KnownErrors) -> Placement | None:
        decided = placement.place(pod, replace(site, allocator=self._allocator.repeating(errors)))
        return decided if isinstance(decided, Placement) else None

    def _decide(self, subject: str, pod: Object) -> Decision:
        decision, decided = self._try(subject, pod)
        if decided is not None:
            self._apply(pod, decided)
        return decision

    def _apply(self, pod: Object, decided: Placement) -> None:
        users: Json = [{"resource": "pods", "name": _name(pod)}] if _name(pod) else []
        for claim, allocation in decided.allocate:
            uid = json_types.text(claim, "metadata", "uid") or str(uuid.uuid4())
            metadata = json_types.mapping(claim, "metadata") | {"uid": uid}
            allocated = claim | {"metadata": metadata, "status": {"allocation": allocation}}
            if _name(claim):
                self._claims[_key(claim)] = allocated
            self._record(allocated | {"status": {"allocation": allocation, "reservedFor": users}})
        self._placed.take(pod, decided.node)

    def _record(self, claim: Object) -> None:
        self._allocated.add(claim)
        for device, holders in wording.holders_of([claim]).items():
            self._holders.setdefault(device, []).extend(holders)

    def _why(self, pod: Object, site: placement.Site) -> dict[str, list[Obstacle]]:
        return {_name(node): blocking for node in self._nodes if (blocking := self._why_on(pod, node, site))}

    def _why_on(self, pod: Object, node: Object, site: placement.Site) -> list[Obstacle]:
        needs = placement.needs_on(pod, node, site)
        if isinstance(needs, str):
            return [Obstacle(text=needs)]
        try:
            if text := self._allocator.misjudged(claims=needs.pending, node=node, allocated=self._allocated):
                return [Obstacle(text=text)]
            allocator = self._allocator.repeating(known_errors.NONE)
            return obstacles.find(allocator.problem(claims=needs.pending, node=node, allocated=self._allocated), self._holders)
        except AllocationError as error:
            return [Obstacle(text=str(error))]


def _outcome(decided: Placement | None) -> tuple[str, list[str]]:
    """Return the node and all allocated devices, to compare two decisions."""
    if decided is None:
        return "", []
    results = [result for _, allocation in decided.allocate for result in json_types.objects(allocation, "devices", "results")]
    return decided.node, ["/".join(json_types.text(result, field) for field in ("driver", "pool", "device")) for result in results]


def has_node(pod: Object) -> bool:
    """Return whether the pod has a node."""
    return bool(json_types.text(pod, "spec", "nodeName"))


def wants_devices(pod: Object) -> bool:
    """Return whether the pod requests anything that devices may serve."""
    return bool(pod_claims.references(pod) or extended.requested(pod))


def _renamed(pod: Object) -> Object:
    """Return a further pod of the same workload."""
    return pod | {"metadata": json_types.mapping(pod, "metadata") | {"name": f"{_name(pod)}-updated", "uid": str(uuid.uuid4())}}


def claim_of(template: Object) -> Object:
    """Return a claim as a pod would get it from the template."""
    return _copy_of(template, f"from-template-{_name(template)}")


def _pod_for(claim: Object) -> Object:
    """Return a pod without a name that uses the claim and nothing else."""
    namespace, name = json_types.text(claim, "metadata", "namespace"), _name(claim)
    reference: Object = {"name": "claim", "resourceClaimName": name}
    return {"metadata": {"namespace": namespace, "uid": f"for {namespace}/{name}"}, "spec": {"resourceClaims": [reference]}}


def _copy_of(template: Object, name: str) -> Object:
    """Return the claim made from a template."""
    namespace = json_types.text(template, "metadata", "namespace")
    metadata: Object = {"namespace": namespace, "name": name, "uid": str(uuid.uuid4())}
    return {"metadata": metadata, "spec": json_types.copy(json_types.mapping(template, "spec", "spec"))}


def _name(obj: Object) -> str:
    return json_types.text(obj, "metadata", "name")


def _key(obj: Object) -> Key:
    return Key(json_types.text(obj, "metadata", "namespace"), _name(obj))
