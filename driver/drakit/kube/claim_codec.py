"""ResourceClaim JSON to ``core.claim.Claim``, checked in the order in which Kubernetes' own drivers check: found, allocated, not replaced.

What a claim says is not trusted: names that later become parts of file names and commands are checked against the API's rules here.
"""

import types
from collections.abc import Callable, Mapping

from drakit.core import claim as claims
from drakit.core import errors, names, quantity, records
from drakit.kube import fields, transport

API_VERSION = "resource.k8s.io/v1"
KIND = "ResourceClaim"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


def decode(found: transport.Object, ref: claims.ClaimRef) -> claims.Claim:
    """The claim that the kubelet means; raises ClaimError: NOT_ALLOCATED, REPLACED, or MALFORMED naming the field."""
    try:
        root = fields.Field(found)
        allocation = root["status"]["allocation"]
        if not allocation:
            raise errors.ClaimError(errors.ClaimFault.NOT_ALLOCATED, "the claim is not allocated", field="status.allocation")
        if root["metadata"]["uid"].text() != ref.uid:
            raise errors.ClaimError(
                errors.ClaimFault.REPLACED, "the claim was deleted and another of its name was made", field="metadata.uid"
            )
        return claims.Claim(
            ref=ref,
            results=tuple(_result(item) for item in allocation["devices"]["results"].each()),
            configs=tuple(_config(item) for item in allocation["devices"]["config"].each()),
            pod_claim_name=_pod_claim_name(root["metadata"]["annotations"]),
        )
    except errors.ConfigError as error:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, error.reason, field=error.field) from error


def _pod_claim_name(annotations: fields.Field) -> str:
    """What the claim controller noted; users may write anything there, so what is no name counts as none."""
    noted = annotations[POD_CLAIM_NAME].value
    return noted if isinstance(noted, str) and names.is_label(noted) else ""


def ref_of(found: fields.Field) -> claims.ClaimRef:
    """Identity of a claim from its metadata; raises ConfigError."""
    metadata = found["metadata"]
    namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
    if not names.is_label(namespace.text_or_empty() or "default"):
        raise namespace.error("is not a DNS label")
    if not names.is_subdomain(name.text()):
        raise name.error("is not a DNS subdomain")
    if not names.is_uid(uid.text()):
        raise uid.error("is not a lower-case UUID")
    return claims.ClaimRef(uid=names.ClaimUid(uid.text()), namespace=namespace.text_or_empty() or "default", name=name.text())


def _result(item: fields.Field) -> claims.AllocationResult:
    return claims.AllocationResult(
        request=_request(item["request"]),
        driver=_driver(item["driver"]),
        pool=_checked(item["pool"], is_good=_is_pool, what="a pool name"),
        device=_checked(item["device"], is_good=names.is_label, what="a DNS label"),
        share_id=_share_id(item["shareID"]),
        consumed_capacity=_amounts(item["consumedCapacity"]),
        admin_access=item["adminAccess"].flag(),
        binding_conditions=item["bindingConditions"].texts(),
        binding_failure_conditions=item["bindingFailureConditions"].texts(),
    )


def _config(item: fields.Field) -> claims.OpaqueConfig:
    opaque = item["opaque"]
    if not opaque:
        raise opaque.error("is missing, and drakit knows no other kind of configuration")
    return claims.OpaqueConfig(
        source=claims.ConfigSource(item["source"].only_in(*(source.value for source in claims.ConfigSource)).text()),
        driver=_driver(opaque["driver"]),
        parameters=parameters(opaque["parameters"]),
        requests=tuple(_request(request) for request in item["requests"].each()),
    )


def parameters(item: fields.Field) -> records.Record:
    """The opaque parameters of a configuration; raises ConfigError for anything but an object that can be kept."""
    try:
        return records.freeze_record(item.object())
    except TypeError as error:
        raise item.error(str(error)) from error


def _request(item: fields.Field) -> str:
    text = item.text()
    base, slash, sub = text.partition("/")
    if names.is_label(base) and (not slash or names.is_label(sub)):
        return text
    raise item.error(f"{text!r} is not a request name")


def _driver(item: fields.Field) -> str:
    """A driver name; the API server takes upper-case letters too, with a warning."""
    return _checked(item, is_good=lambda text: names.is_subdomain(text.lower(), limit=names.DRIVER_MAX), what="a driver name")


def _is_pool(text: str) -> bool:
    return names.is_subdomain(text) or (len(text) <= names.SUBDOMAIN_MAX and all(map(names.is_subdomain, text.split("/"))))


def _checked(item: fields.Field, *, is_good: Callable[[str], bool], what: str) -> str:
    text = item.text()
    if is_good(text):
        return text
    raise item.error(f"{text!r} is not {what}")


def _share_id(item: fields.Field) -> names.ShareId | None:
    if not item:
        return None
    return names.ShareId(_checked(item, is_good=names.is_uid, what="a lower-case UUID"))


def _amounts(item: fields.Field) -> Mapping[str, quantity.Quantity]:
    return types.MappingProxyType({_capacity(name, amount): amount.amount() for name, amount in item.items()})


def _capacity(name: str, amount: fields.Field) -> str:
    try:
        return names.check_qualified(name, "consumedCapacity")
    except errors.InventoryError as error:
        raise amount.error(f"{error.reason}; write the capacity's name, such as memory") from error
