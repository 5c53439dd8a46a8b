"""Values and decisions of a DRA node driver.

``driver`` is page one of the author's contract, ``advanced`` page two, ``context`` the calls for background work. ``device``, ``inventory``,
``claim`` and ``edits`` are the vocabulary; ``config``, ``lifecycle`` and ``slices`` decide; ``encoding`` reads and writes JSON; ``ports`` are the
protocols that adapters implement.
Nothing here does input or output, reads a clock, starts a thread or imports more than the standard library.
"""
