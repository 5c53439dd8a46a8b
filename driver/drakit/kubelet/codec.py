"""Conversion between the messages of the DRA service and the core's values, and between versions of one message.

Claims from the kubelet are checked one by one: a malformed claim gets an error of its own and the others are processed. A response always has
exactly one entry for each UID in the request, because the kubelet fails the whole pod otherwise.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

from google.protobuf import message

from drakit._proto import dra_v1_pb2 as wire
from drakit.core import claim as claims
from drakit.core import names

ERROR_MAX = 1024
NO_ANSWER = "the driver gave no answer for this claim; see its log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The claims of one call: those that can be worked on, and what is wrong with the others, by UID as it was sent."""

    refs: tuple[claims.ClaimRef, ...]
    refused: Mapping[str, str]


def decode_claims(sent: Iterable[wire.Claim]) -> Asked:
    """Check every claim; one asked for twice is worked on once."""
    refs: dict[str, claims.ClaimRef] = {}
    refused: dict[str, str] = {}
    for claim in sent:
        fault = _fault(claim)
        if fault:
            refused[claim.uid] = fault
        else:
            refs.setdefault(claim.uid, claims.ClaimRef(uid=names.ClaimUid(claim.uid), namespace=claim.namespace, name=claim.name))
    return Asked(refs=tuple(ref for uid, ref in refs.items() if uid not in refused), refused=refused)


def encode_prepared(asked: Asked, outcomes: Mapping[names.ClaimUid, claims.Outcome]) -> wire.NodePrepareResourcesResponse:
    """One entry for each claim asked for."""
    missing = claims.Outcome(error=NO_ANSWER)
    entries = {str(ref.uid): _prepared(outcomes.get(ref.uid, missing)) for ref in asked.refs}
    refused = {uid: wire.NodePrepareResourceResponse(error=text(error)) for uid, error in asked.refused.items()}
    return wire.NodePrepareResourcesResponse(claims=entries | refused)


def encode_unprepared(asked: Asked, results: Mapping[names.ClaimUid, str]) -> wire.NodeUnprepareResourcesResponse:
    """One entry for each claim asked for; no error means that nothing is left."""
    errors_by_uid = {str(ref.uid): results.get(ref.uid, NO_ANSWER) for ref in asked.refs} | dict(asked.refused)
    return wire.NodeUnprepareResourcesResponse(
        claims={uid: wire.NodeUnprepareResourceResponse(error=text(error)) for uid, error in errors_by_uid.items()}
    )


def text(error: str) -> str:
    """An error as it may travel: valid UTF-8, and no longer than what a pod's event holds."""
    clean = error.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= ERROR_MAX else f"{clean[: ERROR_MAX - 3]}..."


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
    made = kind.FromString(other.SerializeToString())
    made.DiscardUnknownFields()
    return made
