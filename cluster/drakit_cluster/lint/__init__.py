"""Mistakes in slices, classes, claims and templates, before a cluster sees them.

An *error* is what the API server refuses, and what can never work whatever else the cluster holds. A *warning* is what it accepts and is
most likely a mistake, judged by the other objects in the same files. Belongs here: rules that read several objects, and fixes in words;
rules of one object belong to ``validation``.
"""

from drakit_cluster.lint.findings import Finding, Severity
from drakit_cluster.lint.linter import lint, skipped

__all__ = ["Finding", "Severity", "lint", "skipped"]
