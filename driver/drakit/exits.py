"""The exit statuses of all commands, by one table: docs/reference/exit-status.md."""

import enum


class Exit(enum.IntEnum):
    """How a command ended. A second signal during a stop ends a process with 128 plus the signal's number instead."""

    OK = 0
    """The command did its work; the answer is yes."""
    NEGATIVE = 1
    """The answer is no (a check found an error, a claim does not fit, nothing is free), or the work failed."""
    BAD_INPUT = 2
    """There is no answer: an option, a setting, a file or the cluster that an option names cannot be used."""
    INTERRUPTED = 130
    """Ctrl-C ended the command."""
