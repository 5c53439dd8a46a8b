"""The conformance suite for any DRA driver, in any language: it judges what the driver answers on its sockets, as the kubelet sees it.

It shares no code with the drivers that drakit makes: what it needs beyond the wire it has from the local cluster (``drakit[cluster]``).
"""

from drakit.testing.conformance.suite import Subject, check_plugin

__all__ = ["Subject", "check_plugin"]
