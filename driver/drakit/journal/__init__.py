"""Crash-safe memory of claims and of every hardware step, in one SQLite file a driver, and the locks on physical devices.

``journal.Journal`` is the port ``core.ports.Journal``, ``locks.FileLocks`` the port ``core.ports.DeviceLocks``.
"""
