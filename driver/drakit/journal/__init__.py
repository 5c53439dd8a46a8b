"""The crash-safe journal of a driver's claims, in one SQLite file, and the file locks on claims and physical devices.

``journal.Journal`` implements the port ``core.ports.Journal``, ``locks.FileLocks`` the port ``core.ports.Locks``.
"""
