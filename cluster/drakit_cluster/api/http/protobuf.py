"""Bodies in Kubernetes' protobuf form, which kubectl sends for what it makes itself: ``create``, ``auth``, ``drain``.

Only the kinds below are read, and only what kubectl writes into them; answers are JSON. Field numbers: the generated.proto file of each group.
"""

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory

from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MESSAGES = """
Envelope type=1:Type raw=2:bytes
Type apiVersion=1 kind=2
Meta name=1 generateName=2 namespace=3 labels=11:{} annotations=12:{}
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
PodSpec containers=2:[Container]
Template metadata=1:Meta spec=2:PodSpec
Selector matchLabels=1:{}
DeploymentSpec replicas=1:int selector=2:Selector template=3:Template
Deployment metadata=1:Meta spec=2:DeploymentSpec
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
"""
"""A message a line: its fields with their numbers and types. ``[]`` is a list, ``{}`` a map from text; a field without a type is text."""
_KINDS = set(re.findall(r"^(\w+)(?: metadata=| spec=|$)", _MESSAGES, re.MULTILINE)) - {"Template"} | {"DeleteOptions"}
_FIELD = re.compile(r"(\w+)=(\d+):?([\[{]?)(\w*)")
_SCALARS = {
    "": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
}


def _add_field(made: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, *, many: bool = False) -> None:
    label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED if many else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    field = made.field.add(name=name, number=number, label=label)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".kubectl.{kind}"
    if kind == "int":  # A number of 0 differs from none.
        field.proto3_optional, field.oneof_index = True, len(made.oneof_decl)
        made.oneof_decl.add(name=f"_{name}")


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="kubectl.proto", package="kubectl", syntax="proto3")
    for line in _MESSAGES.strip().splitlines():
        made = file.message_type.add(name=line.partition(" ")[0])
        for name, number, bracket, kind in _FIELD.findall(line):
            if bracket == "{":
                entry = made.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry", options={"map_entry": True})
                _add_field(entry, "key", 1, "")
                _add_field(entry, "value", 2, kind)
                _add_field(made, name, int(number), f"{made.name}.{entry.name}", many=True)
            else:
                _add_field(made, name, int(number), kind, many=bracket == "[")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()


def read(body: bytes) -> Object:
    """Return the object that a body holds; UnsupportedMediaError for other kinds, BadRequestError for bytes that make no sense."""
    if not body.startswith(_MAGIC):
        raise errors.BadRequestError(f"body: not {MEDIA_TYPE}")
    try:
        envelope = _parsed("Envelope", body[len(_MAGIC) :])
        head = json_format.MessageToDict(envelope.type, preserving_proto_field_name=True)
        kind = envelope.type.kind
        if kind not in _KINDS:
            raise errors.UnsupportedMediaError(f"the body of the request was in an unknown format ({MEDIA_TYPE}); send application/json")
        read = _parsed(kind, envelope.raw)
    except message.DecodeError as error:
        raise errors.BadRequestError(f"body: the message cannot be read: {error}") from error
    spec: Object = {"spec": {}} if "spec" in read.DESCRIPTOR.fields_by_name else {}
    return {**head, **spec, **json_format.MessageToDict(read, preserving_proto_field_name=True)}


def _parsed(name: str, content: bytes) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"kubectl.{name}")).FromString(content)
