"""What an object of each kind must obey: pure functions from the new object (and the stored one) to a list of failures.

One module per kind; ``fields`` checks what the shapes state for single fields. A rule is here only if Kubernetes 1.36 has it, or the
module says that it is ours.
"""
