"""The kinds the local API server knows, as one table that routing, discovery, storage and clients all read.

``ALL`` are the kinds that are stored, each in one version. ``SERVED`` adds their other versions, and the reviews, which are answered and
never stored.
"""

from dataclasses import dataclass, replace

RESOURCE_GROUP = "resource.k8s.io"
RBAC_GROUP = "rbac.authorization.k8s.io"
ADMISSION_GROUP = "admissionregistration.k8s.io"
REFUSED_VERSIONS = {
    f"/apis/{RESOURCE_GROUP}/v1beta1": (
        f"{RESOURCE_GROUP}/v1beta1 is not served here, as it is off by default in Kubernetes 1.34 and later: use {RESOURCE_GROUP}/v1"
    )
}
"""By URL prefix: versions that clients may know, and why there is nothing."""
STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
REVIEW_VERBS = ("create",)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind: its names, its scope, and the few traits in which kinds differ.

    ``selectable`` lists the field selectors beyond metadata.name and metadata.namespace. ``counts_generations`` says whether the server
    keeps metadata.generation (claims and nodes have none). ``returns_deleted`` says whether DELETE answers with the object or with a
    Status, which clients decode by kind. ``posts`` are the sub-resources that are only posted to, and
    ``has_scale`` says whether the number of replicas is one too.
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
    """Sub-resources that Kubernetes serves and this server answers with a sentence that says why it does not."""

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


def _kind(group: str, version: str, kind: str, plural: str, *short: str, namespaced: bool = True) -> Resource:
    """Return a kind without special traits."""
    return Resource(group=group, version=version, kind=kind, plural=plural, singular=kind.lower(), namespaced=namespaced, short_names=short)


def _core(kind: str, plural: str, *short: str, namespaced: bool = True) -> Resource:
    return _kind("", "v1", kind, plural, *short, namespaced=namespaced)


def _cluster(group: str, version: str, kind: str, plural: str) -> Resource:
    return _kind(group, version, kind, plural, namespaced=False)


def _review(group: str, kind: str, *, namespaced: bool = False) -> Resource:
    """Return a kind that is posted, answered and forgotten."""
    return replace(_kind(f"{group}.k8s.io", "v1", kind, f"{kind.lower()}s", namespaced=namespaced), verbs=REVIEW_VERBS)


NODE = replace(_core("Node", "nodes", "no", namespaced=False), has_status=True, selectable=("spec.unschedulable",), returns_deleted=False)
POD = replace(
    _core("Pod", "pods", "po"),
    has_status=True,
    categories=("all",),
    selectable=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    counts_generations=True,
    posts=("binding", "eviction"),
    absent=("attach", "exec", "log", "portforward"),
)
NAMESPACE = replace(
    _core("Namespace", "namespaces", "ns", namespaced=False), has_status=True, selectable=("status.phase",), returns_deleted=False
)
EVENT = replace(
    _core("Event", "events", "ev"),
    selectable=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    returns_deleted=False,
)
SECRET = replace(_core("Secret", "secrets"), selectable=("type",), returns_deleted=False)
POD_TEMPLATE = _core("PodTemplate", "podtemplates")
CONFIGMAP = replace(_core("ConfigMap", "configmaps", "cm"), returns_deleted=False)
SERVICEACCOUNT = replace(_core("ServiceAccount", "serviceaccounts", "sa"), posts=("token",))
CLAIM = replace(_kind(RESOURCE_GROUP, "v1", "ResourceClaim", "resourceclaims"), has_status=True)
CLAIM_TEMPLATE = _kind(RESOURCE_GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
CLASS = replace(_cluster(RESOURCE_GROUP, "v1", "DeviceClass", "deviceclasses"), counts_generations=True)
SLICE = replace(
    _cluster(RESOURCE_GROUP, "v1", "ResourceSlice", "resourceslices"), selectable=("spec.driver", "spec.nodeName"), counts_generations=True
)
TAINT_RULE = replace(_cluster(RESOURCE_GROUP, "v1alpha3", "DeviceTaintRule", "devicetaintrules"), has_status=True, counts_generations=True)
POOL_STATUS_REQUEST = replace(
    _cluster(RESOURCE_GROUP, "v1alpha3", "ResourcePoolStatusRequest", "resourcepoolstatusrequests"), has_status=True
)
DAEMON_SET = replace(_kind("apps", "v1", "DaemonSet", "daemonsets", "ds"), has_status=True, categories=("all",), counts_generations=True)
DEPLOYMENT = replace(
    _kind("apps", "v1", "Deployment", "deployments", "deploy"),
    has_status=True,
    has_scale=True,
    categories=("all",),
    counts_generations=True,
)
LEASE = _kind("coordination.k8s.io", "v1", "Lease", "leases")
ROLE = _kind(RBAC_GROUP, "v1", "Role", "roles")
ROLE_BINDING = _kind(RBAC_GROUP, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = _cluster(RBAC_GROUP, "v1", "ClusterRole", "clusterroles")
CLUSTER_ROLE_BINDING = _cluster(RBAC_GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings")
ADMISSION_POLICY = replace(
    _cluster(ADMISSION_GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"), has_status=True, counts_generations=True
)
ADMISSION_BINDING = replace(
    _cluster(ADMISSION_GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"), counts_generations=True
)
WEBHOOKS = replace(
    _cluster(ADMISSION_GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"), counts_generations=True
)
TOKEN_REQUEST = _review("authentication", "TokenRequest", namespaced=True)
"""The body of serviceaccounts/token; it has no path of its own."""
EVICTION = replace(_kind("policy", "v1", "Eviction", "evictions"), verbs=REVIEW_VERBS)
"""The body of pods/eviction."""
POD_BINDING = replace(_core("Binding", "bindings"), verbs=REVIEW_VERBS)
"""The body of pods/binding."""
TOKEN_REVIEW = _review("authentication", "TokenReview")
SELF_REVIEW = _review("authentication", "SelfSubjectReview")
ACCESS_REVIEW = _review("authorization", "SubjectAccessReview")
LOCAL_ACCESS_REVIEW = _review("authorization", "LocalSubjectAccessReview", namespaced=True)
SELF_ACCESS_REVIEW = _review("authorization", "SelfSubjectAccessReview")
SELF_RULES_REVIEW = _review("authorization", "SelfSubjectRulesReview")

ALL: tuple[Resource, ...] = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    SECRET,
    POD_TEMPLATE,
    CONFIGMAP,
    SERVICEACCOUNT,
    CLAIM,
    CLAIM_TEMPLATE,
    CLASS,
    SLICE,
    TAINT_RULE,
    POOL_STATUS_REQUEST,
    DAEMON_SET,
    DEPLOYMENT,
    LEASE,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ADMISSION_POLICY,
    ADMISSION_BINDING,
    WEBHOOKS,
)
SERVED: tuple[Resource, ...] = (
    *ALL,
    *(replace(one, version="v1beta2") for one in (CLAIM, CLAIM_TEMPLATE, CLASS, SLICE, TAINT_RULE)),
    TOKEN_REVIEW,
    SELF_REVIEW,
    ACCESS_REVIEW,
    LOCAL_ACCESS_REVIEW,
    SELF_ACCESS_REVIEW,
    SELF_RULES_REVIEW,
)
POSTED: dict[str, Resource] = {"token": TOKEN_REQUEST, "eviction": EVICTION, "binding": POD_BINDING}
"""By sub-resource that is only posted to: the kind of the body."""
_STORED = {(one.group, one.kind): one for one in ALL}


def stored(resource: Resource) -> Resource:
    """Return the version of a kind that is stored; a review is its own."""
    return _STORED.get((resource.group, resource.kind), resource)
