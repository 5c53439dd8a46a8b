"""Convert messages of the DRA service to the core's values and back, and between versions of one message.

Claims from the kubelet are checked one by one: a malformed claim gets its own error, and the others are processed. A response always has exactly one
entry for each UID in the request, because the kubelet fails the whole pod otherwise.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

from google.protobuf import message

from drakit import texts
from drakit._proto import dra_v1_pb2 as wire
from drakit.core import claim as claims
from drakit.core import names

ERROR_MAX = 1024
NO_ANSWER = "the driver gave no answer for this claim; see its log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The claims of one call: the valid references, and the errors of the malformed claims by UID as sent."""

    refs: tuple[claims.ClaimRef, ...]
    refused: Mapping[str, str]


def decode_claims(sent: Iterable[wire.Claim]) -> Request:
    """Return the checked claims of a request; a claim that is sent twice is processed once."""
    refs: dict[str, claims.ClaimRef] = {}
    refused: dict[str, str] = {}
    for claim in sent:
        fault = _fault(claim)
        if fault:
            refused[claim.uid] = fault
        else:
            refs.setdefault(claim.uid, claims.ClaimRef(uid=names.ClaimUid(claim.uid), namespace=claim.namespace, name=claim.name))
    return Request(refs=tuple(ref for uid, ref in refs.items() if uid not in refused), refused=refused)


def encode_prepared(request: Request, outcomes: Mapping[names.ClaimUid, claims.Outcome]) -> wire.NodePrepareResourcesResponse:
    """Return a response with one entry for each claim of the request."""
    missing = claims.Outcome(error=NO_ANSWER)
    entries = {str(ref.uid): _prepared(outcomes.get(ref.uid, missing)) for ref in request.refs}
    refused = {uid: wire.NodePrepareResourceResponse(error=text(error)) for uid, error in request.refused.items()}
    return wire.NodePrepareResourcesResponse(claims=entries | refused)


def encode_unprepared(request: Request, results: Mapping[names.ClaimUid, str]) -> wire.NodeUnprepareResourcesResponse:
    """Return a response with one entry for each claim of the request; an empty error means that the claim is unprepared."""
    errors_by_uid = {str(ref.uid): results.get(ref.uid, NO_ANSWER) for ref in request.refs} | dict(request.refused)
    return wire.NodeUnprepareResourcesResponse(
        claims={uid: wire.NodeUnprepareResourceResponse(error=text(error)) for uid, error in errors_by_uid.items()}
    )


def text(error: str) -> str:
    """Return an error text as valid UTF-8, cut to the size of a pod's event."""
    clean = error.encode("utf-8", "replace").decode("utf-8")
    return texts.cut(clean, ERROR_MAX)


def _fault(message: wire.Claim) -> str:
    if not names.is_uid(message.uid):
        return f"uid: {message.uid!r} is not a lower-case UUID"
    if not names.is_label(message.namespace):
        return f"namespace: {message.namespace!r} is not a DNS label"
    if not names.is_subdomain(message.name):
        return f"name: {message.name!r} is not a DNS subdomain"
    return ""


def _prepared(result: claims.Outcome) -> wire.NodePrepareResourceResponse:
    if result.error:
        return wire.NodePrepareResourceResponse(error=text(result.error))
    return wire.NodePrepareResourceResponse(devices=[_device(device) for device in result.devices])


def _device(device: claims.PreparedDevice) -> wire.Device:
    return wire.Device(
        request_names=[device.request.partition("/")[0]],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )


Message = TypeVar("Message", bound=message.Message)


def convert(kind: type[Message], other: message.Message) -> Message:
    """Return the message in another version of the API; fields that this version does not have are dropped.

    Kubernetes keeps the field numbers of a message in all its versions, so equal bytes mean equal fields.
    """
    converted = kind.FromString(other.SerializeToString())
    converted.DiscardUnknownFields()
    return converted
