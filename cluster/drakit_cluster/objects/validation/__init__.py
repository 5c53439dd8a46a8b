"""Validation of each kind: pure functions from the new object (and the stored one) to a list of failures.

``table`` has the rules of each kind for creation, for updates, and for updates of the status. There is one module for each kind, and for
each part that several kinds share. Every rule is one of Kubernetes 1.36, unless a comment says that it is ours. Failures have Kubernetes'
types and field paths. Their messages are ours and say what to write instead.
"""
