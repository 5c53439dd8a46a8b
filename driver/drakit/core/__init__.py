"""The values and decisions of a DRA node driver.

``driver`` is the basic contract of an author, ``advanced`` the optional one, ``context`` has the calls for background work. ``device``,
``inventory``, ``claim`` and ``edits`` are values; ``config``, ``lifecycle`` and ``slices`` decide; ``encoding`` reads and writes JSON; ``ports`` are
the protocols that adapters implement. No module here does input or output, reads a clock, starts a thread or imports more than the standard library.
"""
