"""The kinds the local API server knows, as one table that routing, discovery, storage and clients all read.

``ALL`` are the kinds that are stored, each in one version. ``SERVED`` adds their other versions, and the reviews, which are answered and
never stored.
"""

from dataclasses import dataclass, replace
from typing import Any

RESOURCE_GROUP = "resource.k8s.io"
SCHEDULING_GROUP = "scheduling.k8s.io"
GROUP_FINALIZER = f"{SCHEDULING_GROUP}/podgroup-protection"
"""Keeps a deleted PodGroup until its last pod has ended."""
RBAC_GROUP = "rbac.authorization.k8s.io"
ADMISSION_GROUP = "admissionregistration.k8s.io"
REFUSED_VERSIONS = {
    f"/apis/{RESOURCE_GROUP}/v1beta1": (
        f"{RESOURCE_GROUP}/v1beta1 is not served here, as it is off by default in Kubernetes 1.34 and later: use {RESOURCE_GROUP}/v1"
    )
}
"""By URL prefix: versions that clients may request, and why the server does not serve them."""
STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
REVIEW_VERBS = ("create",)
_READ_VERBS = ("get", "list", "watch")


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind: its names, its scope, and the traits in which kinds differ.

    ``selectable`` lists the field selectors beyond metadata.name and metadata.namespace. ``counts_generations`` says whether the server
    keeps metadata.generation (claims and nodes have none). ``returns_deleted`` says whether DELETE answers with the object or with a
    Status, which clients decode by kind. ``posts`` are the sub-resources that accept only POST.
    ``has_scale`` says whether the kind has the sub-resource ``scale``.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    has_status: bool = False
    has_scale: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    counts_generations: bool = False
    returns_deleted: bool = True
    verbs: tuple[str, ...] = STORED_VERBS
    posts: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Sub-resources that Kubernetes serves. This server refuses them and says why."""

    @property
    def api_version(self) -> str:
        """``v1`` or ``resource.k8s.io/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages: ``pods`` or ``resourceclaims.resource.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prefix(self) -> str:
        """The URL path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or its sub-resource."""
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{self.prefix}{scope}/{self.plural}{tail}"


def _kind(names: str, api_version: str = "v1", *, selectable: str = "", **traits: Any) -> Resource:
    """Return a kind; ``names`` are its kind, its plural and its short names."""
    kind, plural, *short = names.split()
    group, _, version = api_version.rpartition("/")
    traits = {"namespaced": True} | traits
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=tuple(short),
        selectable=tuple(selectable.split()),
        **traits,
    )


def _cluster(names: str, api_version: str = "v1", *, selectable: str = "", **traits: Any) -> Resource:
    return _kind(names, api_version, selectable=selectable, namespaced=False, **traits)


_DRA, _RBAC, _ADMISSION = f"{RESOURCE_GROUP}/v1", f"{RBAC_GROUP}/v1", f"{ADMISSION_GROUP}/v1"
_WORKLOAD: dict[str, Any] = {"has_status": True, "categories": ("all",), "counts_generations": True}
NODE = _cluster("Node nodes no", selectable="spec.unschedulable", has_status=True, returns_deleted=False)
POD = _kind(
    "Pod pods po",
    selectable="""spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP
    status.nominatedNodeName""",
    posts=("binding", "eviction"),
    absent=("attach", "exec", "log", "portforward"),
    **_WORKLOAD,
)
NAMESPACE = _cluster("Namespace namespaces ns", selectable="status.phase", has_status=True, returns_deleted=False)
EVENT = _kind(
    "Event events ev",
    selectable="""involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion
    involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type""",
    returns_deleted=False,
)
SECRET = _kind("Secret secrets", selectable="type", returns_deleted=False)
POD_TEMPLATE = _kind("PodTemplate podtemplates")
CONFIGMAP = _kind("ConfigMap configmaps cm", returns_deleted=False)
SERVICEACCOUNT = _kind("ServiceAccount serviceaccounts sa", posts=("token",))
CLAIM = _kind("ResourceClaim resourceclaims", _DRA, has_status=True)
CLAIM_TEMPLATE = _kind("ResourceClaimTemplate resourceclaimtemplates", _DRA)
CLASS = _cluster("DeviceClass deviceclasses", _DRA, counts_generations=True)
SLICE = _cluster("ResourceSlice resourceslices", _DRA, selectable="spec.driver spec.nodeName", counts_generations=True)
TAINT_RULE = _cluster("DeviceTaintRule devicetaintrules", _DRA, has_status=True, counts_generations=True)
POOL_STATUS_REQUEST = _cluster("ResourcePoolStatusRequest resourcepoolstatusrequests", f"{RESOURCE_GROUP}/v1alpha3", has_status=True)
POD_GROUP = _kind("PodGroup podgroups", f"{SCHEDULING_GROUP}/v1beta1", has_status=True, counts_generations=True)
DAEMON_SET = _kind("DaemonSet daemonsets ds", "apps/v1", **_WORKLOAD)
DEPLOYMENT = _kind("Deployment deployments deploy", "apps/v1", has_scale=True, **_WORKLOAD)
REPLICA_SET = _kind("ReplicaSet replicasets rs", "apps/v1", has_scale=True, **_WORKLOAD)
STATEFUL_SET = _kind("StatefulSet statefulsets sts", "apps/v1", has_scale=True, **_WORKLOAD)
CONTROLLER_REVISION = _kind("ControllerRevision controllerrevisions", "apps/v1")
"""A former template of a StatefulSet."""
JOB = _kind("Job jobs", "batch/v1", selectable="status.successful", **_WORKLOAD)
CRON_JOB = _kind("CronJob cronjobs cj", "batch/v1", **_WORKLOAD)
SERVICE = _kind("Service services svc", has_status=True, categories=("all",))
"""An object that nothing serves: no addresses, no endpoints."""
REPLICATION_CONTROLLER = _kind("ReplicationController replicationcontrollers rc", categories=("all",), verbs=_READ_VERBS)
"""A kind without objects, because ``kubectl cluster-info dump`` lists it. The server refuses to create one: use a Deployment."""
LEASE = _kind("Lease leases", "coordination.k8s.io/v1")
ROLE = _kind("Role roles", _RBAC)
ROLE_BINDING = _kind("RoleBinding rolebindings", _RBAC)
CLUSTER_ROLE = _cluster("ClusterRole clusterroles", _RBAC)
CLUSTER_ROLE_BINDING = _cluster("ClusterRoleBinding clusterrolebindings", _RBAC)
ADMISSION_POLICY = _cluster("ValidatingAdmissionPolicy validatingadmissionpolicies", _ADMISSION, has_status=True, counts_generations=True)
ADMISSION_BINDING = _cluster("ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings", _ADMISSION, counts_generations=True)
WEBHOOKS = _cluster("ValidatingWebhookConfiguration validatingwebhookconfigurations", _ADMISSION, counts_generations=True)

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io/v1", "authorization.k8s.io/v1"
TOKEN_REQUEST = _kind("TokenRequest tokenrequests", _AUTHENTICATION, verbs=REVIEW_VERBS)
"""The body of serviceaccounts/token; it has no path of its own."""
EVICTION = _kind("Eviction evictions", "policy/v1", verbs=REVIEW_VERBS)
"""The body of pods/eviction."""
POD_BINDING = _kind("Binding bindings", verbs=REVIEW_VERBS)
"""The body of pods/binding."""
TOKEN_REVIEW = _cluster("TokenReview tokenreviews", _AUTHENTICATION, verbs=REVIEW_VERBS)
SELF_REVIEW = _cluster("SelfSubjectReview selfsubjectreviews", _AUTHENTICATION, verbs=REVIEW_VERBS)
ACCESS_REVIEW = _cluster("SubjectAccessReview subjectaccessreviews", _AUTHORIZATION, verbs=REVIEW_VERBS)
SELF_ACCESS_REVIEW = _cluster("SelfSubjectAccessReview selfsubjectaccessreviews", _AUTHORIZATION, verbs=REVIEW_VERBS)
SELF_RULES_REVIEW = _cluster("SelfSubjectRulesReview selfsubjectrulesreviews", _AUTHORIZATION, verbs=REVIEW_VERBS)

ALL: tuple[Resource, ...] = (
    *(NAMESPACE, NODE, POD, EVENT, SECRET, POD_TEMPLATE, CONFIGMAP, SERVICEACCOUNT),
    *(CLAIM, CLAIM_TEMPLATE, CLASS, SLICE, TAINT_RULE, POOL_STATUS_REQUEST),
    *(DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET, CONTROLLER_REVISION, JOB, CRON_JOB, SERVICE, LEASE, POD_GROUP),
    *(ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING),
    *(ADMISSION_POLICY, ADMISSION_BINDING, WEBHOOKS),
)
SERVED: tuple[Resource, ...] = (
    *ALL,
    *(replace(resource, version="v1beta2") for resource in (CLAIM, CLAIM_TEMPLATE, CLASS, SLICE, TAINT_RULE)),
    *(replace(POD_GROUP, version=version) for version in ("v1alpha2", "v1alpha3")),
    replace(TAINT_RULE, version="v1alpha3"),
    REPLICATION_CONTROLLER,
    *(TOKEN_REVIEW, SELF_REVIEW, ACCESS_REVIEW, SELF_ACCESS_REVIEW, SELF_RULES_REVIEW),
)
POSTED: dict[str, Resource] = {"token": TOKEN_REQUEST, "eviction": EVICTION, "binding": POD_BINDING}
"""The kind of the body by sub-resource that accepts only POST."""
_STORED = {(served.group, served.kind): served for served in ALL}


def stored(resource: Resource) -> Resource:
    """Return the version of a kind that is stored; a review is its own."""
    return _STORED.get((resource.group, resource.kind), resource)
