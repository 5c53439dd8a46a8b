"""Shapes of the core kinds, of PodGroups, and of what runs and configures drivers and their users: workloads, Lease, Secret, ConfigMap,
Service.

Pods and nodes are open: only fields that this cluster reads, merges or applies by key are described.
"""

from drakit_cluster.objects.schema import meta
from drakit_cluster.objects.schema.shape import INTEGER, ListOf, Shape, Struct, by_key, opened, struct


def _named(fields: str = "", **shapes: Shape) -> ListOf:
    return by_key("name", opened(f"name! {fields}", **shapes))


def _keyed(key: str) -> ListOf:
    return by_key(key, opened(f"{key}!"))


_CONTAINERS = _named(
    "image command:[] args:[]",
    env=_named("value"),
    volumeMounts=_keyed("mountPath"),
    volumeDevices=_keyed("devicePath"),
    resources=opened("limits:{quantity} requests:{quantity}", claims=ListOf(item=struct("name! request"))),
)
_POD_TERM = struct(
    "matchLabelKeys:[] mismatchLabelKeys:[] namespaces:[] topologyKey!",
    labelSelector=meta.LABEL_SELECTOR,
    namespaceSelector=meta.LABEL_SELECTOR,
)


def _affinity(required: Shape, term: str, preferred: Shape) -> Struct:
    """Return what must hold, and what is preferred by weight, while a pod is scheduled."""
    weighted = ListOf(item=Struct(fields={"weight": INTEGER, term: preferred}, required=("weight", term)))
    when = "DuringSchedulingIgnoredDuringExecution"
    return Struct(fields={f"required{when}": required, f"preferred{when}": weighted})


_BETWEEN_PODS = _affinity(ListOf(item=_POD_TERM), "podAffinityTerm", _POD_TERM)
_POD_SPEC = opened(
    """containers! nodeName nodeSelector:{} restartPolicy schedulerName terminationGracePeriodSeconds:int tolerations:[any]
    hostNetwork:bool""",
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    ephemeralContainers=_CONTAINERS,
    volumes=_named(),
    imagePullSecrets=_named(),
    resourceClaims=by_key("name", struct("name! resourceClaimName resourceClaimTemplateName")),
    schedulingGroup=struct("podGroupName"),
    affinity=struct(
        "",
        nodeAffinity=_affinity(meta.NODE_SELECTOR, "preference", meta.NODE_TERM),
        podAffinity=_BETWEEN_PODS,
        podAntiAffinity=_BETWEEN_PODS,
    ),
)
_POD_STATUS = opened("phase", conditions=_keyed("type"), resourceClaimStatuses=_named("resourceClaimName"))
POD = meta.opened_kind("spec!", spec=_POD_SPEC, status=_POD_STATUS)
NODE = meta.opened_kind(
    spec=opened("unschedulable:bool", taints=_keyed("key")), status=opened(conditions=_keyed("type"), addresses=_keyed("type"))
)
OTHER = meta.opened_kind()

_CONDITIONS = by_key("type", opened("type"))
_SPEC = "selector! template! minReadySeconds:int revisionHistoryLimit:int"
_TEMPLATE = struct("spec!", metadata=meta.OBJECT_META, spec=_POD_SPEC)
_STRATEGY = struct("type rollingUpdate:any")
DAEMON_SET = meta.kind(
    "spec!",
    spec=struct(_SPEC, selector=meta.LABEL_SELECTOR, template=_TEMPLATE, updateStrategy=_STRATEGY),
    status=struct(
        """observedGeneration:int desiredNumberScheduled:int currentNumberScheduled:int numberMisscheduled:int numberReady:int
        numberAvailable:int numberUnavailable:int updatedNumberScheduled:int collisionCount:int""",
        conditions=_CONDITIONS,
    ),
)
DEPLOYMENT = meta.kind(
    "spec!",
    spec=struct(
        f"{_SPEC} replicas:int paused:bool progressDeadlineSeconds:int",
        selector=meta.LABEL_SELECTOR,
        template=_TEMPLATE,
        strategy=_STRATEGY,
    ),
    status=struct(
        """observedGeneration:int replicas:int readyReplicas:int availableReplicas:int updatedReplicas:int unavailableReplicas:int
        collisionCount:int""",
        conditions=_CONDITIONS,
    ),
)
_GROUP_CLAIM = struct("name! resourceClaimName resourceClaimTemplateName")
POD_GROUP = meta.kind(
    "spec!",
    spec=struct(
        """podGroupTemplateRef:any workloadRef:any schedulingConstraints:any disruptionMode:any parentCompositePodGroupName
        priorityClassName priority:int preemptionPolicy schedulingPolicy!""",
        schedulingPolicy=struct(basic=struct(), gang=struct("minCount:int!")),
        resourceClaims=by_key("name", _GROUP_CLAIM),
    ),
    status=struct(conditions=meta.CONDITIONS, resourceClaimStatuses=by_key("name", struct("name! resourceClaimName"))),
)
"""All versions of a PodGroup: 1.36 has podGroupTemplateRef, 1.37 workloadRef."""
REPLICA_SET = meta.kind(
    "spec!",
    spec=struct("selector! template minReadySeconds:int replicas:int", selector=meta.LABEL_SELECTOR, template=_TEMPLATE),
    status=struct(
        """observedGeneration:int replicas:int fullyLabeledReplicas:int readyReplicas:int availableReplicas:int terminatingReplicas:int""",
        conditions=_CONDITIONS,
    ),
)
STATEFUL_SET = meta.kind(
    "spec!",
    spec=struct(
        f"""{_SPEC} replicas:int serviceName podManagementPolicy volumeClaimTemplates:[any]
        persistentVolumeClaimRetentionPolicy:any""",
        selector=meta.LABEL_SELECTOR,
        template=_TEMPLATE,
        updateStrategy=_STRATEGY,
        ordinals=struct("start:int"),
    ),
    status=struct(
        """observedGeneration:int replicas:int readyReplicas:int availableReplicas:int currentReplicas:int updatedReplicas:int
        currentRevision updateRevision collisionCount:int""",
        conditions=_CONDITIONS,
    ),
)
CONTROLLER_REVISION = meta.kind("data:any revision:int")
_JOB_SPEC = struct(
    """template! parallelism:int completions:int completionMode backoffLimit:int suspend:bool activeDeadlineSeconds:int
    ttlSecondsAfterFinished:int manualSelector:bool podFailurePolicy:any successPolicy:any backoffLimitPerIndex:int
    maxFailedIndexes:int podReplacementPolicy managedBy""",
    selector=meta.LABEL_SELECTOR,
    template=_TEMPLATE,
)
JOB = meta.kind(
    "spec!",
    spec=_JOB_SPEC,
    status=struct(
        """observedGeneration:int startTime:time completionTime:time active:int ready:int terminating:int succeeded:int failed:int
        completedIndexes failedIndexes""",
        uncountedTerminatedPods=struct("succeeded:[] failed:[]"),
        conditions=_CONDITIONS,
    ),
)
CRON_JOB = meta.kind(
    "spec!",
    spec=struct(
        """schedule! jobTemplate! timeZone concurrencyPolicy suspend:bool startingDeadlineSeconds:int successfulJobsHistoryLimit:int
        failedJobsHistoryLimit:int""",
        jobTemplate=struct("spec!", metadata=meta.OBJECT_META, spec=_JOB_SPEC),
    ),
    status=struct("lastScheduleTime:time lastSuccessfulTime:time", active=ListOf(item=opened("name"))),
)
SERVICE = meta.opened_kind("spec", spec=opened("type clusterIP selector:{}", ports=ListOf(item=opened("port:int"))))
LEASE = meta.kind(
    spec=struct("holderIdentity leaseDurationSeconds:int acquireTime:time renewTime:time leaseTransitions:int strategy preferredHolder")
)
SECRET = meta.kind("type data:{} stringData:{} immutable:bool")
CONFIG_MAP = meta.kind("data:{} binaryData:{} immutable:bool")
_REFERENCES = by_key("name", opened("name"))
SERVICE_ACCOUNT = meta.kind("automountServiceAccountToken:bool", secrets=_REFERENCES, imagePullSecrets=_REFERENCES)
