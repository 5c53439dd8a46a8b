"""The claims that a driver has to prepare, with their allocated devices, read from their objects."""

import dataclasses
import uuid
from collections.abc import Sequence

from drakit_cluster.kubelet.plugins.endpoint import Answer, ClaimId
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One device of an allocation. ``request`` is the base request, without a sub-request, as containers name it."""

    request: str
    pool: str
    device: str
    share_id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """An allocated claim, and its results of one driver."""

    id: ClaimId
    results: tuple[Result, ...]

    def __str__(self) -> str:
        return f"{self.id.namespace}/{self.id.name}"

    @classmethod
    def of(cls, claim: Object, driver: str) -> "Claim":
        """Read a ResourceClaim; raises ValueError where it has no device of the driver."""
        metadata = json_types.mapping(claim, "metadata")
        name = ClaimId(
            namespace=json_types.text(metadata, "namespace"), name=json_types.text(metadata, "name"), uid=json_types.text(metadata, "uid")
        )
        allocated = json_types.objects(claim, "status", "allocation", "devices", "results")
        results = tuple(
            Result(
                request=json_types.text(result, "request").partition("/")[0],
                pool=json_types.text(result, "pool"),
                device=json_types.text(result, "device"),
                share_id=json_types.text(result, "shareID") or None,
            )
            for result in allocated
            if json_types.text(result, "driver") == driver
        )
        if not results:
            raise ValueError(f"claim {name.namespace}/{name.name} has no device of {driver}: give claims that are allocated to it")
        return cls(id=name, results=results)

    def replaced(self) -> ClaimId:
        """Return the name of this claim with the UID of another."""
        return dataclasses.replace(self.id, uid=str(uuid.uuid4()))


def unknown() -> ClaimId:
    """Return a claim that does not exist."""
    uid = str(uuid.uuid4())
    return ClaimId(namespace="default", name=f"no-such-claim-{uid[:8]}", uid=uid)


def mistakes(claim: Claim, answer: Answer) -> Sequence[str]:
    """Return how the devices of an answer differ from those of the claim."""
    if answer.error:
        return [f"{claim}: {answer.error}"]
    differences = []
    for device in answer.devices:
        given = [result for result in claim.results if (result.pool, result.device) == (device.pool, device.device)]
        if not given:
            differences.append(f"{claim}: the answer has device {device.device!r} of pool {device.pool!r}, which the claim was not given")
            continue
        wrong = sorted(set(device.requests) - {result.request for result in given})
        if wrong:
            differences.append(
                f"{claim}: device {device.device} is answered for request {wrong[0]!r}; the claim has it for {given[0].request!r}"
            )
        if device.share_id not in {result.share_id for result in given}:
            differences.append(
                f"{claim}: device {device.device} is answered with shareID {device.share_id}; the claim has {given[0].share_id}"
            )
    return differences


def left_out(claim: Claim, answer: Answer) -> Sequence[str]:
    """Return the devices that a claim was given and an answer lacks."""
    answered = {(device.pool, device.device) for device in answer.devices}
    return [result.device for result in claim.results if (result.pool, result.device) not in answered]
