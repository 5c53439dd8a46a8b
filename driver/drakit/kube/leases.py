"""Read and write one Lease at the API server (coordination.k8s.io/v1), with optimistic locking."""

import datetime
import http

from drakit.core import errors, records
from drakit.core.encoding import wire
from drakit.core.slices import leader_election
from drakit.kube import api_objects, transport

API_VERSION = "coordination.k8s.io/v1"
KIND = "Lease"

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_MICRO_TIME = api_objects.TIME._replace(encode=lambda moment: moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))

# The defaults of absent fields make a lease that another program wrote count as released.
_FORMAT = wire.Format(
    ignore_unknown=True,
    empty_is_absent=True,
    converters={datetime.datetime: _MICRO_TIME, float: wire.Converter(lambda value: float(wire.WHOLE.decode(value)), int)},
    fields={
        (leader_election.Lease, "holder"): wire.Field(name="spec.holderIdentity", absent=""),
        (leader_election.Lease, "duration"): wire.Field(name="spec.leaseDurationSeconds", absent=1.0),
        (leader_election.Lease, "acquired"): wire.Field(name="spec.acquireTime", absent=_EPOCH),
        (leader_election.Lease, "renewed"): wire.Field(name="spec.renewTime", absent=_EPOCH),
        (leader_election.Lease, "transitions"): wire.Field(name="spec.leaseTransitions"),
        (leader_election.Lease, "version"): wire.Field(name="metadata.resourceVersion"),
    },
)


class ApiLease:
    """The ``core.ports.LeaseStore`` of one lease, by namespace and name."""

    def __init__(self, api: transport.Transport, *, namespace: str, name: str, timeout: float) -> None:
        """Make the store. ``timeout`` (seconds) bounds every request, because a late renewal is worse than a failed one."""
        self._api = api
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/leases"
        self._metadata: records.Record = {"name": name, "namespace": namespace}
        self._name = name
        self._timeout = timeout

    def read(self) -> leader_election.Lease | None:
        """Return the lease, None where there is none. Raise ApiError."""
        try:
            return _decode(self._api.request("GET", f"{self._path}/{self._name}", timeout=self._timeout))
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def write(self, lease: leader_election.Lease) -> leader_election.Lease:
        """Create the lease, or replace the version that was read. Raise ApiError, with status 409 if another candidate wrote first."""
        metadata = {**self._metadata, **({"resourceVersion": lease.version} if lease.version else {})}
        body: records.Record = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": _FORMAT.encode(lease)["spec"]}
        method, path = ("PUT", f"{self._path}/{self._name}") if lease.version else ("POST", self._path)
        return _decode(self._api.request(method, path, body=body, timeout=self._timeout))


def _decode(stored: transport.Object) -> leader_election.Lease:
    """Return a stored lease. Raise ApiError for an unreadable one."""
    try:
        return _FORMAT.decode(leader_election.Lease, stored)
    except api_objects.UNREADABLE as error:
        raise errors.ApiError(f"the API server sent a lease that cannot be read: {error}") from error
