"""Bodies in Kubernetes' protobuf form, which kubectl sends for objects that it generates itself: ``create``, ``auth``, ``drain``.

Clients in Go may send all writes in this form. The kinds of resource.k8s.io are read whole, the others as kubectl generates them. A kind or a field
that is not read is refused, never dropped. Responses are JSON. Field numbers: the generated.proto file of each group; compatibilityGroups:
KEP-5963; the number of derivedAttributes was not found, so claims with them must be JSON.
"""

import base64
import datetime
import re
from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor, descriptor_pb2, descriptor_pool, message, message_factory, unknown_fields

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_BYTES = 2
"""The wire type of texts, bytes and messages."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MESSAGES = """
Envelope type=1:Type raw=2:bytes
Type apiVersion=1 kind=2
Owner kind=1 name=3 uid=4 apiVersion=5 controller=6:bool blockOwnerDeletion=7:bool
Time seconds=1:long nanos=2:int
Raw raw=1:bytes
Managed manager=1 operation=2 apiVersion=3 time=4:Time fieldsType=6 fieldsV1=7:Raw subresource=8
Meta name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation=7:count creationTimestamp=8:Time deletionTimestamp=9:Time \
 deletionGracePeriodSeconds=10:long labels=11:{} annotations=12:{} ownerReferences=13:[Owner] finalizers=14:[] managedFields=17:[Managed]
Namespace metadata=1:Meta
ServiceAccount metadata=1:Meta
ConfigMap metadata=1:Meta data=2:{} binaryData=3:{bytes} immutable=4:bool
Secret metadata=1:Meta data=2:{bytes} type=3 stringData=4:{} immutable=5:bool
Rule verbs=1:[] apiGroups=2:[] resources=3:[] resourceNames=4:[] nonResourceURLs=5:[]
Role metadata=1:Meta rules=2:[Rule]
ClusterRole metadata=1:Meta rules=2:[Rule]
Subject kind=1 apiGroup=2 name=3 namespace=4
RoleRef apiGroup=1 kind=2 name=3
RoleBinding metadata=1:Meta subjects=2:[Subject] roleRef=3:RoleRef
ClusterRoleBinding metadata=1:Meta subjects=2:[Subject] roleRef=3:RoleRef
Port name=1 containerPort=3:int
Use name=1 request=2
Resources claims=3:[Use]
Container name=1 image=2 command=3:[] args=4:[] ports=6:[Port] resources=8:Resources
PodClaim name=1 resourceClaimName=3:text resourceClaimTemplateName=4:text
PodSpec containers=2:[Container] restartPolicy=3 terminationGracePeriodSeconds=4:long schedulerName=19 resourceClaims=39:[PodClaim]
Template metadata=1:Meta spec=2:PodSpec
Selector matchLabels=1:{}
DeploymentSpec replicas=1:int selector=2:Selector template=3:Template
Deployment metadata=1:Meta spec=2:DeploymentSpec
JobSpec parallelism=1:int completions=2:int activeDeadlineSeconds=3:long template=6:Template backoffLimit=7:int \
 ttlSecondsAfterFinished=8:int completionMode=9 suspend=10:bool
Job metadata=1:Meta spec=2:JobSpec
JobTemplate metadata=1:Meta spec=2:JobSpec
CronJobSpec schedule=1 startingDeadlineSeconds=2:long concurrencyPolicy=3 suspend=4:bool jobTemplate=5:JobTemplate \
 successfulJobsHistoryLimit=6:int failedJobsHistoryLimit=7:int timeZone=8:text
CronJob metadata=1:Meta spec=2:CronJobSpec
IntOrString type=1:long intVal=2:int strVal=3
ServicePort name=1 protocol=2 port=3:int targetPort=4:IntOrString nodePort=5:int
ServiceSpec ports=1:[ServicePort] selector=2:{} clusterIP=3 type=4 externalName=10
Service metadata=1:Meta spec=2:ServiceSpec
Preconditions uid=1 resourceVersion=2
DeleteOptions gracePeriodSeconds=1:int preconditions=2:Preconditions orphanDependents=3:bool propagationPolicy=4 dryRun=5:[]
Eviction metadata=1:Meta deleteOptions=2:DeleteOptions
Attributes namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7
Path path=1 verb=2
AccessSpec resourceAttributes=1:Attributes nonResourceAttributes=2:Path
SelfSubjectReview
SelfSubjectAccessReview spec=2:AccessSpec
RulesSpec namespace=1
SelfSubjectRulesReview spec=2:RulesSpec
Bound kind=1 apiVersion=2 name=3 uid=4
TokenSpec audiences=1:[] boundObjectRef=3:Bound expirationSeconds=4:int
TokenRequest spec=2:TokenSpec
Condition type=1 status=2 observedGeneration=3:count lastTransitionTime=4:Time reason=5 message=6
Quantity string=1
Requirement key=1 operator=2 values=3:[]
Term matchExpressions=1:[Requirement] matchFields=2:[Requirement]
NodeSelector nodeSelectorTerms=1:[Term]
Attribute int=2:long bool=3:bool string=4:text version=5:text ints=6:[long] bools=7:[bool] strings=8:[] versions=9:[]
Range min=1:Quantity max=2:Quantity step=3:Quantity
Policy default=1:Quantity validValues=3:[Quantity] validRange=4:Range
Capacity value=1:Quantity requestPolicy=2:Policy
Counter value=1:Quantity
CounterSet name=1 counters=2:{Counter}
Consumption counterSet=1 counters=2:{Counter} compatibilityGroups=3:[]
Taint key=1 value=2 effect=3 timeAdded=4:Time
FormerMapping capacityKey=1:text allocationMultiplier=2:Quantity
Mapping capacityKey=1:text capacityMultiplier=2:Quantity deviceMultiplier=3:Quantity
Overhead perPod=1:Quantity perContainer=2:Quantity
NodeResource mapping=3:Mapping overhead=4:Overhead
Device name=1 attributes=2:{Attribute} capacity=3:{Capacity} consumesCounters=4:[Consumption] nodeName=5:text nodeSelector=6:NodeSelector \
 allNodes=7:bool taints=8:[Taint] bindsToNode=9:bool bindingConditions=10:[] bindingFailureConditions=11:[] allowMultipleAllocations=12:bool \
 nodeAllocatableResourceMappings=13:{FormerMapping} nodeAllocatableResources=14:{NodeResource}
Pool name=1 generation=2:long resourceSliceCount=3:long
SliceSpec driver=1 pool=2:Pool nodeName=3:text nodeSelector=4:NodeSelector allNodes=5:bool devices=6:[Device] \
 perDeviceNodeSelection=7:bool sharedCounters=8:[CounterSet] partitionTypeAttribute=9:text skipNodeOperations=10:[]
ResourceSlice metadata=1:Meta spec=2:SliceSpec
Opaque driver=1 parameters=2:Raw
Config opaque=1:Opaque
ClassConfig inline=1:Config
Cel expression=1
DeviceSelector cel=1:Cel
ClassSpec selectors=1:[DeviceSelector] config=2:[ClassConfig] extendedResourceName=4:text
DeviceClass metadata=1:Meta spec=2:ClassSpec
Toleration key=1 operator=2 value=3 effect=4 tolerationSeconds=5:long
Requirements requests=1:{Quantity}
Exactly deviceClassName=1 selectors=2:[DeviceSelector] allocationMode=3 count=4:count adminAccess=5:bool tolerations=6:[Toleration] \
 capacity=7:Requirements
Alternative name=1 deviceClassName=2 selectors=3:[DeviceSelector] allocationMode=4 count=5:count tolerations=6:[Toleration] \
 capacity=7:Requirements
DeviceRequest name=1 exactly=2:Exactly firstAvailable=3:[Alternative]
Constraint requests=1:[] matchAttribute=2:text distinctAttribute=3:text
ClaimConfig requests=1:[] inline=2:Config
Requested requests=1:[DeviceRequest] constraints=2:[Constraint] config=3:[ClaimConfig]
ClaimSpec devices=1:Requested
Result request=1 driver=2 pool=3 device=4 adminAccess=5:bool tolerations=6:[Toleration] bindingConditions=7:[] bindingFailureConditions=8:[] \
 shareID=9:text consumedCapacity=10:{Quantity} skipNodeOperations=11:[]
AllocatedConfig source=1 requests=2:[] inline=3:Config
Allocated results=1:[Result] config=2:[AllocatedConfig]
Allocation devices=1:Allocated nodeSelector=3:NodeSelector allocationTimestamp=5:Time
Consumer apiGroup=1 resource=3 name=4 uid=5
Network interfaceName=1 ips=2:[] hardwareAddress=3
DeviceStatus driver=1 pool=2 device=3 conditions=4:[Condition] data=5:Raw networkData=6:Network shareID=7:text
ClaimStatus allocation=1:Allocation reservedFor=2:[Consumer] devices=4:[DeviceStatus]
ResourceClaim metadata=1:Meta spec=2:ClaimSpec status=3:ClaimStatus
ClaimTemplateSpec metadata=1:Meta spec=2:ClaimSpec
ResourceClaimTemplate metadata=1:Meta spec=2:ClaimTemplateSpec
TaintSelector driver=2:text pool=3:text device=4:text
RuleSpec deviceSelector=1:TaintSelector taint=2:Taint
RuleStatus conditions=1:[Condition]
DeviceTaintRule metadata=1:Meta spec=2:RuleSpec status=3:RuleStatus
PoolRequestSpec driver=1 poolName=2:text limit=3:int defaultPartitionTypeAttribute=4:text
PartitionType type=1 total=2:int allocatable=3:int attribute=4
ShareableCapacity name=1 total=2:Quantity consumed=3:Quantity available=4:Quantity
Shareable fullyAvailableDevices=1:int partiallyAvailableDevices=2:int capacity=3:[ShareableCapacity]
PoolStatus driver=1 poolName=2 nodeName=3:text totalDevices=4:int allocatedDevices=5:int availableDevices=6:int unavailableDevices=7:int \
 resourceSliceCount=8:int generation=9:long validationError=10:text partitionSummary=11:[PartitionType] shareableSummary=13:Shareable
PoolRequestStatus pools=2:[PoolStatus] conditions=3:[Condition] poolCount=6:int
ResourcePoolStatusRequest metadata=1:Meta spec=2:PoolRequestSpec status=3:PoolRequestStatus
"""
"""One message per line: its fields with their numbers and types. ``[]`` is a list, ``{}`` a map from text. A field without a type is text that is
left out where it is empty; a field of type ``text`` stays where it is empty. ``count`` is a number that is left out where it is zero, and the
fields of ``inline`` belong to the message that has it."""
_PARTS = {"Template", "JobTemplate", "ClaimTemplateSpec"}
_KINDS = set(re.findall(r"^(\w+)(?: metadata=| spec=|$)", _MESSAGES, re.MULTILINE)) - _PARTS | {"DeleteOptions"}
_EQUAL = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
_VERSIONS = {
    **dict.fromkeys(("ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"), _EQUAL),
    "DeviceTaintRule": (*_EQUAL, "resource.k8s.io/v1alpha3"),
    "ResourcePoolStatusRequest": ("resource.k8s.io/v1alpha3",),
}
"""By kind, the versions that have the fields above. v1beta1 holds those of a device in another message."""
_FIELD = re.compile(r"(\w+)=(\d+):?([\[{]?)(\w*)")
_SCALARS = {
    "": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "long": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "count": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "text": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_OPTIONAL = ("bool", "int", "long", "text")
"""The types for which zero, false and the empty text differ from an unset field."""


def _add_field(message_type: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, *, many: bool = False) -> None:
    label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED if many else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    field = message_type.field.add(name=name, number=number, label=label)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".kubectl.{kind}"
    if kind in _OPTIONAL and not many:
        field.proto3_optional, field.oneof_index = True, len(message_type.oneof_decl)
        message_type.oneof_decl.add(name=f"_{name}")


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="kubectl.proto", package="kubectl", syntax="proto3")
    for line in _MESSAGES.strip().splitlines():
        message_type = file.message_type.add(name=line.partition(" ")[0])
        for name, number, bracket, kind in _FIELD.findall(line):
            if bracket == "{":
                entry = message_type.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry", options={"map_entry": True})
                _add_field(entry, "key", 1, "")
                _add_field(entry, "value", 2, kind)
                _add_field(message_type, name, int(number), f"{message_type.name}.{entry.name}", many=True)
            else:
                _add_field(message_type, name, int(number), kind, many=bracket == "[")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()


def read(body: bytes) -> Object:
    """Return the object that a body holds.

    Raises UnsupportedMediaError for kinds and fields that are not read, and BadRequestError for bytes that cannot be decoded.
    """
    if not body.startswith(_MAGIC):
        raise errors.BadRequestError(f"body: not {MEDIA_TYPE}")
    try:
        envelope = _parsed("Envelope", body[len(_MAGIC) :])
        head = _object(envelope.type)
        kind, version = envelope.type.kind, envelope.type.apiVersion
        if kind not in _KINDS or version not in _VERSIONS.get(kind, (version,)):
            raise _unsupported(f"{kind} of {version} is not read from protobuf")
        parsed = _parsed(kind, envelope.raw)
        spec: Object = {"spec": {}} if "spec" in parsed.DESCRIPTOR.fields_by_name else {}
        return {**head, **spec, **_object(parsed)}
    except (message.DecodeError, OverflowError) as error:  # OverflowError: a time beyond the range of datetime.
        raise errors.BadRequestError(f"body: the message cannot be read: {error}") from error


def _unsupported(reason: str) -> errors.UnsupportedMediaError:
    return errors.UnsupportedMediaError(f"the body of the request was in an unknown format ({MEDIA_TYPE}): {reason}; send application/json")


def _object(parsed: message.Message) -> Object:
    for unread in _unread(parsed):
        if not _is_blank(unread):
            raise _unsupported(f"field {unread.field_number} of the message {parsed.DESCRIPTOR.name} is not known")
    found: Object = {}
    for field, value in parsed.ListFields():
        if field.name == "inline":
            found |= _object(value)
        elif (read_value := _field(field, value)) is not None:
            found[field.name] = read_value
    return found


def _unread(parsed: message.Message) -> list[Any]:
    fields = unknown_fields.UnknownFieldSet(parsed)
    return [fields[place] for place in range(len(fields))]


def _is_blank(unread: Any) -> bool:
    """Return whether an unknown field says nothing: clients in Go write fields that are not pointers even if they are empty."""
    if unread.wire_type != _BYTES:
        return not unread.data
    try:
        return all(_is_blank(inner) for inner in _unread(_parsed("SelfSubjectReview", unread.data)))
    except message.DecodeError:
        return False


def _field(field: descriptor.FieldDescriptor, value: Any) -> Json:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {key: _value(inner, value[key]) for key in value}
    if field.is_repeated:
        return [_value(field, element) for element in value]
    return _value(field, value)


def _value(field: descriptor.FieldDescriptor, value: Any) -> Json:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if field.message_type is None:
        scalar: Json = value
        return scalar
    return _CONVERTERS.get(field.message_type.name, _object)(value)


def _time(value: Any) -> Json:
    """Return a time; None for the zero time, which clients in Go write for one that is not set."""
    return (_EPOCH + datetime.timedelta(seconds=value.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ") if value.ListFields() else None


def _raw(value: Any) -> Json:
    try:
        return json_types.parse(value.raw) if value.raw else None
    except (ValueError, RecursionError) as error:
        raise errors.BadRequestError(f"body: not JSON: {error}") from error


_CONVERTERS: dict[str, Callable[[Any], Json]] = {
    "Quantity": lambda value: value.string,
    "IntOrString": lambda value: value.strVal if value.type else value.intVal,
    "Time": _time,
    "Raw": _raw,
}


def _parsed(name: str, content: bytes) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"kubectl.{name}")).FromString(content)
