"""Bodies in Kubernetes' protobuf form, which kubectl sends for objects that it generates itself: ``create``, ``auth``, ``drain``.

Go clients send all writes in this form, so a driver in Go publishes its ResourceSlices in it. Only the kinds below are read; of the kinds that
kubectl generates, only the fields that it sets. Responses are JSON. Field numbers: the generated.proto file of each group.
"""

import base64
import datetime
import re
from typing import Any

from google.protobuf import descriptor, descriptor_pb2, descriptor_pool, message, message_factory

from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Json, Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MESSAGES = """
Envelope type=1:Type raw=2:bytes
Type apiVersion=1 kind=2
Owner kind=1 name=3 uid=4 apiVersion=5 controller=6:bool blockOwnerDeletion=7:bool
Meta name=1 generateName=2 namespace=3 uid=5 resourceVersion=6 labels=11:{} annotations=12:{} ownerReferences=13:[Owner] finalizers=14:[]
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
Container name=1 image=2 command=3:[] args=4:[] ports=6:[Port]
PodSpec containers=2:[Container] restartPolicy=3
Template metadata=1:Meta spec=2:PodSpec
Selector matchLabels=1:{}
DeploymentSpec replicas=1:int selector=2:Selector template=3:Template
Deployment metadata=1:Meta spec=2:DeploymentSpec
JobSpec parallelism=1:int completions=2:int activeDeadlineSeconds=3:long template=6:Template backoffLimit=7:int \
 ttlSecondsAfterFinished=8:int completionMode=9 suspend=10:bool
Job metadata=1:Meta spec=2:JobSpec
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
Quantity string=1
Time seconds=1:long nanos=2:int
Requirement key=1 operator=2 values=3:[]
Term matchExpressions=1:[Requirement] matchFields=2:[Requirement]
NodeSelector nodeSelectorTerms=1:[Term]
Attribute int=2:long bool=3:bool string=4:text version=5:text ints=6:[long] bools=7:[bool] strings=8:[] versions=9:[]
Range min=1:Quantity max=2:Quantity step=3:Quantity
Policy default=1:Quantity validValues=3:[Quantity] validRange=4:Range
Capacity value=1:Quantity requestPolicy=2:Policy
Counter value=1:Quantity
CounterSet name=1 counters=2:{Counter}
Consumption counterSet=1 counters=2:{Counter}
Taint key=1 value=2 effect=3 timeAdded=4:Time
Mapping capacityKey=1:text allocationMultiplier=2:Quantity
Device name=1 attributes=2:{Attribute} capacity=3:{Capacity} consumesCounters=4:[Consumption] nodeName=5:text nodeSelector=6:NodeSelector \
 allNodes=7:bool taints=8:[Taint] bindsToNode=9:bool bindingConditions=10:[] bindingFailureConditions=11:[] allowMultipleAllocations=12:bool \
 nodeAllocatableResourceMappings=13:{Mapping}
Pool name=1 generation=2:long resourceSliceCount=3:long
SliceSpec driver=1 pool=2:Pool nodeName=3:text nodeSelector=4:NodeSelector allNodes=5:bool devices=6:[Device] \
 perDeviceNodeSelection=7:bool sharedCounters=8:[CounterSet]
ResourceSlice metadata=1:Meta spec=2:SliceSpec
"""
"""One message per line: its fields with their numbers and types. ``[]`` is a list, ``{}`` a map from text. A field without a type is text that is
left out where it is empty; a field of type ``text`` stays where it is empty."""
_KINDS = set(re.findall(r"^(\w+)(?: metadata=| spec=|$)", _MESSAGES, re.MULTILINE)) - {"Template"} | {"DeleteOptions"}
_SLICE_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
"""The versions whose devices have the fields above; v1beta1 holds them in another message."""
_FIELD = re.compile(r"(\w+)=(\d+):?([\[{]?)(\w*)")
_SCALARS = {
    "": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "long": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
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
    """Return the object that a body holds; UnsupportedMediaError for other kinds, BadRequestError for bytes that cannot be decoded."""
    if not body.startswith(_MAGIC):
        raise errors.BadRequestError(f"body: not {MEDIA_TYPE}")
    try:
        envelope = _parsed("Envelope", body[len(_MAGIC) :])
        head = _object(envelope.type)
        kind = envelope.type.kind
        if kind not in _KINDS or (kind == "ResourceSlice" and envelope.type.apiVersion not in _SLICE_VERSIONS):
            raise errors.UnsupportedMediaError(f"the body of the request was in an unknown format ({MEDIA_TYPE}); send application/json")
        parsed = _parsed(kind, envelope.raw)
        spec: Object = {"spec": {}} if "spec" in parsed.DESCRIPTOR.fields_by_name else {}
        return {**head, **spec, **_object(parsed)}
    except (message.DecodeError, OverflowError) as error:  # OverflowError: a time beyond the range of datetime.
        raise errors.BadRequestError(f"body: the message cannot be read: {error}") from error


def _object(parsed: message.Message) -> Object:
    return {field.name: _field(field, value) for field, value in parsed.ListFields()}


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
    if field.message_type.name == "Quantity":
        text: str = value.string
        return text
    if field.message_type.name == "IntOrString":
        port: Json = value.strVal if value.type else value.intVal
        return port
    if field.message_type.name == "Time":
        return (_EPOCH + datetime.timedelta(seconds=value.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _object(value)


def _parsed(name: str, content: bytes) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"kubectl.{name}")).FromString(content)
