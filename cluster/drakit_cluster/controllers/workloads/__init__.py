"""The controllers of the kinds that make pods, and of CronJobs, which make Jobs."""

from drakit_cluster.controllers.workloads.kinds import Workloads

__all__ = ["Workloads"]
