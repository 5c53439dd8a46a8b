"""Validation of each kind: pure functions from the new object (and the stored one) to a list of failures.

``table`` says which rules a kind has when it is created, updated, or when its status is; one module per kind, or per part that several
kinds share. A rule is here only if Kubernetes 1.36 has it, or the text beside it says that it is ours. Failures carry Kubernetes' types
and field paths; the words are ours and say what to write instead.
"""
