"""Mistakes in slices, classes, claims and templates, before a cluster sees them.

An *error* is what the API server refuses, and what can never work, regardless of other objects in the cluster. A *warning* is
accepted by the server, but most likely a mistake, judged by the other objects in the same files. This package has the rules that read
several objects, and the texts of fixes. Rules of one object belong to ``validation``.
"""

from drakit_cluster.lint.findings import Finding, Severity
from drakit_cluster.lint.linter import lint, skipped

__all__ = ["Finding", "Severity", "lint", "skipped"]
