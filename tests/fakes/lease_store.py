"""``ports.LeaseStore`` in memory, with the API server's rule for versions; ``failures`` are raised by the next calls, one each."""

import dataclasses
import itertools

from drakit.core import errors
from drakit.core.slices import leader_election


class FakeLeaseStore:
    """One lease."""

    def __init__(self) -> None:
        self.lease: leader_election.Lease | None = None
        self.failures: list[errors.ApiError] = []
        self._versions = itertools.count(1)

    def read(self) -> leader_election.Lease | None:
        self._fail()
        return self.lease

    def write(self, lease: leader_election.Lease) -> leader_election.Lease:
        self._fail()
        if lease.version != (self.lease.version if self.lease else ""):
            raise errors.ApiError("the API server answered 409: the lease is another by now", status=409, reason="Conflict")
        self.lease = dataclasses.replace(lease, version=str(next(self._versions)))
        return self.lease

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
