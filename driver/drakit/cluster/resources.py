"""The kinds the local API server knows, as one table that routing, discovery, storage and clients all read."""

from dataclasses import dataclass

RESOURCE_GROUP = "resource.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind: its names, its scope, and the few traits in which kinds differ.

    ``selectable`` lists the field selectors beyond metadata.name and metadata.namespace. ``counts_generations`` says whether the server
    keeps metadata.generation (claims and nodes have none). ``returns_deleted`` says whether DELETE answers with the object or with a
    Status, which clients decode by kind.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    has_status: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    counts_generations: bool = False
    returns_deleted: bool = True

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


NODE = Resource(
    group="",
    version="v1",
    kind="Node",
    plural="nodes",
    singular="node",
    namespaced=False,
    has_status=True,
    short_names=("no",),
    selectable=("spec.unschedulable",),
    returns_deleted=False,
)
POD = Resource(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    singular="pod",
    namespaced=True,
    has_status=True,
    short_names=("po",),
    categories=("all",),
    selectable=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    counts_generations=True,
)
NAMESPACE = Resource(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    singular="namespace",
    namespaced=False,
    has_status=True,
    short_names=("ns",),
    selectable=("status.phase",),
    returns_deleted=False,
)
EVENT = Resource(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    singular="event",
    namespaced=True,
    short_names=("ev",),
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
SECRET = Resource(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    singular="secret",
    namespaced=True,
    selectable=("type",),
    returns_deleted=False,
)
CONFIGMAP = Resource(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    singular="configmap",
    namespaced=True,
    short_names=("cm",),
    returns_deleted=False,
)
SERVICEACCOUNT = Resource(
    group="",
    version="v1",
    kind="ServiceAccount",
    plural="serviceaccounts",
    singular="serviceaccount",
    namespaced=True,
    short_names=("sa",),
)
CLAIM = Resource(
    group=RESOURCE_GROUP,
    version="v1",
    kind="ResourceClaim",
    plural="resourceclaims",
    singular="resourceclaim",
    namespaced=True,
    has_status=True,
)
CLAIM_TEMPLATE = Resource(
    group=RESOURCE_GROUP,
    version="v1",
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    singular="resourceclaimtemplate",
    namespaced=True,
)
CLASS = Resource(
    group=RESOURCE_GROUP,
    version="v1",
    kind="DeviceClass",
    plural="deviceclasses",
    singular="deviceclass",
    namespaced=False,
    counts_generations=True,
)
SLICE = Resource(
    group=RESOURCE_GROUP,
    version="v1",
    kind="ResourceSlice",
    plural="resourceslices",
    singular="resourceslice",
    namespaced=False,
    selectable=("spec.driver", "spec.nodeName"),
    counts_generations=True,
)

ALL: tuple[Resource, ...] = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    SECRET,
    CONFIGMAP,
    SERVICEACCOUNT,
    CLAIM,
    CLAIM_TEMPLATE,
    CLASS,
    SLICE,
)
