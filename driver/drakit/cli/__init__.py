"""The command line: ``drakit`` and ``python -m drakit``.

What belongs here: reading what a person typed, choosing adapters (``composition``), and showing results. What does not: decisions about devices,
claims or slices. Errors that a person can fix are one line on standard error and exit status 1; a mistake in the command itself is status 2.
"""
