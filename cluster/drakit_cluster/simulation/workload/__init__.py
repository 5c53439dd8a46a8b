"""Workloads: pod templates, and tasks that arrive and end."""
