"""The controllers of the kinds that make pods, found by kind and by what a pod or ReplicaSet says of its owner."""

from collections.abc import Callable

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import key_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.controllers.workloads.cron_jobs import CronJobs
from drakit_cluster.controllers.workloads.daemon_sets import DaemonSets
from drakit_cluster.controllers.workloads.deployments import Deployments
from drakit_cluster.controllers.workloads.jobs import Jobs
from drakit_cluster.controllers.workloads.replica_sets import ReplicaSets
from drakit_cluster.controllers.workloads.stateful_sets import StatefulSets
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

Check = Callable[[Key], float | None]
"""Reconciles one object; returns the seconds until it wants to be called again, None for never."""


class Workloads:
    """DaemonSets, Deployments, ReplicaSets, StatefulSets, Jobs and CronJobs."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        kinds: tuple[type[Controller], ...] = (DaemonSets, Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs)
        self._checks: dict[Resource, Check] = {kind.resource: kind(api, recorder).check for kind in kinds}
        self._by_kind = {(resource.api_version, resource.kind): check for resource, check in self._checks.items()}

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """The kinds that have a controller."""
        return tuple(self._checks)

    def check_of(self, resource: Resource) -> Check:
        """Return the check of a kind, always the same function."""
        return self._checks[resource]

    def check_of_owner(self, obj: Object) -> tuple[Check, Key] | None:
        """Return the check of the workload that controls an object, and its key; None without one."""
        owner = pod_claims.owner(obj)
        check = self._by_kind.get((json_types.text(owner, "apiVersion"), json_types.text(owner, "kind")))
        return (check, Key(key_of(obj).namespace, json_types.text(owner, "name"))) if check is not None else None
