"""The conformance suite for any DRA driver, in any language: it checks the driver's answers on its sockets, as the kubelet does.

It shares no code with drakit's own drivers. Its other parts come from the local cluster (``drakit[tools]``).
"""

from drakit_tools.conformance.suite import Subject, check_plugin

__all__ = ["Subject", "check_plugin"]
