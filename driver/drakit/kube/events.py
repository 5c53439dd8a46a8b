"""Events for people: what a driver has to say to the users of a claim, as core/v1 Events on their pods.

An Event is on every pod that has the claim reserved, or on the claim where none has. What was told before to the same one counts up the Event that
is there. Names are made of what is told, so that a request whose answer was lost makes no second Event when it is sent again.
"""

import collections
import dataclasses
import datetime
import hashlib
import http
import threading
from collections.abc import Iterator

from drakit.core import claim as claims
from drakit.core import context, errors, records
from drakit.kube import claim_codec, stored_claim, transport
from drakit.kube import claims as kube_claims

MERGE_TYPE = "application/merge-patch+json"
MESSAGE_MAX = 1024
_REASON_MAX = 128
_NAME_MAX = 200
_KNOWN_MAX = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Subject:
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def to_record(self) -> records.Record:
        return {"apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name, "uid": self.uid}


class ApiEvents:
    """``core.ports.Events``: ``component`` is the driver's name, ``host`` the node's. Safe between threads."""

    def __init__(self, api: transport.Transport, *, component: str, host: str) -> None:
        self._api = api
        self._component = component
        self._host = host
        self._lock = threading.Lock()
        self._counts: collections.OrderedDict[str, int] = collections.OrderedDict()

    def tell(self, ref: claims.ClaimRef, notice: context.Event, times: int, since: datetime.datetime) -> None:
        """Tell each user of the claim; raises ClaimError when the claim is gone or another by now, ApiError."""
        for subject in self._subjects(ref):
            self._tell(subject, notice, times, since)

    def _subjects(self, ref: claims.ClaimRef) -> list[_Subject]:
        try:
            claim_object = stored_claim.read(self._api.request("GET", kube_claims.path(ref), timeout=kube_claims.TIMEOUT))
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim does not exist any more") from error
            raise
        if claim_object.uid != ref.uid:
            raise errors.ClaimError(errors.ClaimFault.REPLACED, "the claim was deleted and another of its name was made")
        claim = _Subject(api_version=claim_codec.API_VERSION, kind=claim_codec.KIND, namespace=ref.namespace, name=ref.name, uid=ref.uid)
        return [*_pods(claim_object, ref.namespace)] or [claim]

    def _tell(self, subject: _Subject, notice: context.Event, times: int, since: datetime.datetime) -> None:
        digest = hashlib.sha256(repr((self._component, subject.uid, notice.reason, notice.message)).encode()).hexdigest()[:16]
        name = f"{subject.name[:_NAME_MAX].rstrip('-.')}.{digest}"
        path = f"/api/v1/namespaces/{subject.namespace}/events"
        with self._lock:
            before = self._counts.get(name, 0)
        now = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        if not (before and self._count_up(f"{path}/{name}", before + times, now)):
            before = self._create(path, name, self._event(name, subject, notice, times, now), times, now)
        with self._lock:
            self._counts[name] = before + times
            self._counts.move_to_end(name)
            while len(self._counts) > _KNOWN_MAX:
                self._counts.popitem(last=False)

    def _create(self, path: str, name: str, body: records.Record, times: int, now: str) -> int:
        """Make the Event; what was told before this is 0. One that is there already is from a request whose answer was lost, or an earlier life."""
        try:
            self._api.request("POST", path, body=body)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise
            self._count_up(f"{path}/{name}", times, now)
        return 0

    def _count_up(self, path: str, count: int, now: str) -> bool:
        """Whether the Event is still there and has counted up."""
        try:
            self._api.request("PATCH", path, body={"count": count, "lastTimestamp": now}, content_type=MERGE_TYPE)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _event(self, name: str, subject: _Subject, notice: context.Event, times: int, now: str) -> records.Record:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": subject.namespace},
            "involvedObject": subject.to_record(),
            "type": notice.type.value,
            "reason": notice.reason[:_REASON_MAX],
            "message": _cut(notice.message),
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": times,
        }


def _pods(claim: stored_claim.StoredClaim, namespace: str) -> Iterator[_Subject]:
    for consumer in claim.consumers:
        if consumer.resource == "pods" and not consumer.api_group:
            yield _Subject(api_version="v1", kind="Pod", namespace=namespace, name=consumer.name, uid=consumer.uid)


def _cut(message: str) -> str:
    """At most 1024 bytes, which is what the API takes, without a broken character at the end."""
    return message.encode()[:MESSAGE_MAX].decode("utf-8", "ignore")
