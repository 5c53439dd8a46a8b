"""Record core/v1 Events for the users of a claim, on their pods.

An Event is recorded on every pod that has the claim reserved, and on the claim where another user has, such as a PodGroup, or none. A repeated
Event increments the count of the stored one. The name is a digest of the content, so that a retry after a lost answer creates no second Event.
"""

import collections
import dataclasses
import datetime
import hashlib
import http
import threading

from drakit import texts
from drakit.core import claim as claims
from drakit.core import context, errors, records
from drakit.kube import api_objects, claim_codec, recent_claims, stored_claim, transport
from drakit.kube import claims as kube_claims

MERGE_TYPE = "application/merge-patch+json"
MESSAGE_MAX = 1024
_REASON_MAX = 128
_NAME_MAX = 200
_COUNTS_MAX = 1024


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
    """The ``core.ports.Events`` of one driver on one node: ``component`` is the driver's name, ``host`` the node's. Thread-safe.

    ``recent`` has the claims that need no second read to know their pods.
    """

    def __init__(self, api: transport.Transport, *, component: str, host: str, recent: recent_claims.RecentClaims | None = None) -> None:
        self._api = api
        self._component = component
        self._host = host
        self._recent = recent
        self._lock = threading.Lock()
        self._counts: collections.OrderedDict[str, int] = collections.OrderedDict()

    def record(self, ref: claims.ClaimRef, event: context.Event, times: int, since: datetime.datetime) -> None:
        """Record an Event for each user of the claim. Raise ClaimError when the claim is deleted or replaced, ApiError."""
        for subject in self._subjects(ref):
            self._record(subject, event, times, since)

    def _subjects(self, ref: claims.ClaimRef) -> list[_Subject]:
        stored = self._recent.get(ref.uid) if self._recent is not None else None
        try:
            stored = stored or self._api.request("GET", kube_claims.path(ref), timeout=kube_claims.TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, "the claim no longer exists") from error
            raise
        # A malformed claim has an Event too: it is what its users see of the error.
        if api_objects.metadata_text(stored, "uid") not in ("", ref.uid):
            raise errors.ClaimError(errors.ClaimFault.REPLACED, "the claim was deleted and another of its name was created")
        claim = _Subject(api_version=claim_codec.API_VERSION, kind=claim_codec.KIND, namespace=ref.namespace, name=ref.name, uid=ref.uid)
        users = list(stored_claim.consumers(stored))
        pods = [_of_pod(user, ref.namespace) for user in users if user.resource == "pods" and not user.api_group]
        return pods if pods and len(pods) == len(users) else [*pods, claim]

    def _record(self, subject: _Subject, event: context.Event, times: int, since: datetime.datetime) -> None:
        digest = hashlib.sha256(repr((self._component, subject.uid, event.reason, event.message)).encode()).hexdigest()[:16]
        name = f"{subject.name[:_NAME_MAX].rstrip('-.')}.{digest}"
        path = f"/api/v1/namespaces/{subject.namespace}/events"
        with self._lock:
            before = self._counts.get(name, 0)
        now = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        if not (before and self._count_up(f"{path}/{name}", before + times, now)):
            before = self._create(path, name, self._event_object(name, subject, event, times, now), times, now)
        with self._lock:
            self._counts[name] = before + times
            self._counts.move_to_end(name)
            while len(self._counts) > _COUNTS_MAX:
                self._counts.popitem(last=False)

    def _create(self, path: str, name: str, body: records.Record, times: int, now: str) -> int:
        """Create the Event, and return 0 as its earlier count.

        An Event that exists already is from a request with a lost answer, or from an earlier process.
        """
        try:
            self._api.request("POST", path, body=body)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise
            self._count_up(f"{path}/{name}", times, now)
        return 0

    def _count_up(self, path: str, count: int, now: str) -> bool:
        """Set the count of the Event, and return whether the Event still exists."""
        try:
            self._api.request("PATCH", path, body={"count": count, "lastTimestamp": now}, content_type=MERGE_TYPE)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _event_object(self, name: str, subject: _Subject, event: context.Event, times: int, now: str) -> records.Record:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": subject.namespace},
            "involvedObject": subject.to_record(),
            "type": event.type.value,
            "reason": event.reason[:_REASON_MAX],
            "message": _truncated(event.message),
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": times,
        }


def _of_pod(user: stored_claim.Consumer, namespace: str) -> _Subject:
    return _Subject(api_version="v1", kind="Pod", namespace=namespace, name=user.name, uid=user.uid)


def _truncated(message: str) -> str:
    """Return at most 1024 bytes, the limit of the API. UTF-8 has at most four bytes for a character."""
    fits = len(message.encode("utf-8", "replace")) <= MESSAGE_MAX
    return message if fits else texts.cut(message, MESSAGE_MAX if message.isascii() else MESSAGE_MAX // 4)
