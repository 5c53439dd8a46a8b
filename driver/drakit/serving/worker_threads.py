"""The threads of a gRPC server, all started before it serves.

gRPC starts a thread of its pool when a call arrives. Where the kernel has no thread to give then, its serving thread dies of the error, and no later
call is answered.
"""

import threading
from concurrent import futures

from drakit.core import errors

_START_SECONDS = 30.0


def started(threads: int, name: str) -> futures.ThreadPoolExecutor:
    """Return a pool whose threads all run. Raises SettingsError where they cannot be started, with nothing left behind."""
    pool = futures.ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
    all_run = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(all_run.wait, _START_SECONDS)
        all_run.wait(_START_SECONDS)
    except RuntimeError as error:  # BrokenBarrierError is one too.
        all_run.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise errors.SettingsError(
            f"cannot start {threads} threads for the server {name}: {error}; raise the limit of processes (pids.max, ulimit -u)",
            key="threads",
        ) from error
    return pool
