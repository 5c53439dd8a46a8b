"""One Lease at the API server (coordination.k8s.io/v1): read, and written only as it was read."""

import datetime
import http

from drakit.core import errors, leader_election, records
from drakit.kube import fields, transport

API_VERSION = "coordination.k8s.io/v1"
KIND = "Lease"


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
    return {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": int(lease.duration),
        "acquireTime": _micro_time(lease.acquired),
        "renewTime": _micro_time(lease.renewed),
        "leaseTransitions": lease.transitions,
    }


def _micro_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _decode(lease: transport.Object) -> leader_election.Lease:
    """A stored lease; what somebody else left out is as good as given up. Raises ApiError for one that cannot be read."""
    root = fields.Field(lease)
    spec = root["spec"]
    try:
        duration, transitions = spec["leaseDurationSeconds"], spec["leaseTransitions"]
        return leader_election.Lease(
            holder=spec["holderIdentity"].text_or_empty(),
            duration=float(duration.integer()) if duration else 1.0,
            acquired=_time(spec["acquireTime"]),
            renewed=_time(spec["renewTime"]),
            transitions=transitions.integer() if transitions else 0,
            version=root["metadata"]["resourceVersion"].text(),
        )
    except fields.UNREADABLE as error:
        raise errors.ApiError(f"the API server sent a lease that cannot be read: {error}") from error


def _time(field: fields.Field) -> datetime.datetime:
    if not field:
        return datetime.datetime.fromtimestamp(0, datetime.UTC)
    try:
        return datetime.datetime.fromisoformat(field.text()).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise field.error(f"{field.text()!r} is not a time") from error
