"""One Lease at the API server (coordination.k8s.io/v1): read, and written only as it was read."""

import dataclasses
import datetime
import http

from drakit.core import errors, leader_election, records, wire
from drakit.kube import api_objects, transport

API_VERSION = "coordination.k8s.io/v1"
KIND = "Lease"


_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_MICRO_TIME = api_objects.TIME._replace(encode=lambda moment: moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spec:
    holder_identity: str = ""
    lease_duration_seconds: int = 1
    acquire_time: datetime.datetime = _EPOCH
    renew_time: datetime.datetime = _EPOCH
    lease_transitions: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Metadata:
    resource_version: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Lease:
    metadata: _Metadata
    spec: _Spec = dataclasses.field(default_factory=_Spec)


_FORMAT = wire.Format(ignore_unknown=True, empty_is_absent=True, converters={datetime.datetime: _MICRO_TIME})


class ApiLease:
    """``core.ports.LeaseStore``: the lease of one name in one namespace."""

    def __init__(self, api: transport.Transport, *, namespace: str, name: str, timeout: float) -> None:
        """``timeout`` (seconds) bounds every request, because a renewal that comes late is worse than one that fails."""
        self._api = api
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/leases"
        self._metadata: records.Record = {"name": name, "namespace": namespace}
        self._name = name
        self._timeout = timeout

    def read(self) -> leader_election.Lease | None:
        """The lease, None where there is none; raises ApiError."""
        try:
            return _decode(self._api.request("GET", f"{self._path}/{self._name}", timeout=self._timeout))
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def write(self, lease: leader_election.Lease) -> leader_election.Lease:
        """Create it, or replace it as it was read; raises ApiError, with status 409 where somebody else was faster."""
        metadata = {**self._metadata, **({"resourceVersion": lease.version} if lease.version else {})}
        body: records.Record = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": _spec(lease)}
        method, path = ("PUT", f"{self._path}/{self._name}") if lease.version else ("POST", self._path)
        return _decode(self._api.request(method, path, body=body, timeout=self._timeout))


def _spec(lease: leader_election.Lease) -> records.Record:
    return _FORMAT.encode(
        _Spec(
            holder_identity=lease.holder,
            lease_duration_seconds=int(lease.duration),
            acquire_time=lease.acquired,
            renew_time=lease.renewed,
            lease_transitions=lease.transitions,
        )
    )


def _decode(found: transport.Object) -> leader_election.Lease:
    """A stored lease; what somebody else left out is as good as given up. Raises ApiError for one that cannot be read."""
    try:
        lease = _FORMAT.decode(_Lease, found)
    except api_objects.UNREADABLE as error:
        raise errors.ApiError(f"the API server sent a lease that cannot be read: {error}") from error
    return leader_election.Lease(
        holder=lease.spec.holder_identity,
        duration=float(lease.spec.lease_duration_seconds),
        acquired=lease.spec.acquire_time,
        renewed=lease.spec.renew_time,
        transitions=lease.spec.lease_transitions,
        version=lease.metadata.resource_version,
    )
