"""Deep expressions: Kubernetes allows 250 levels, for which Python's usual limit of 1000 frames is too low.

The limit is raised for the whole process, and only once such an expression turns up: Python functions that call each other take no
room on the C stack, so a higher limit costs other code nothing.
"""

import sys
from collections.abc import Callable
from typing import Final, TypeVar

_FRAMES: Final = 6000
"""Enough for 250 levels of the deepest construct, twice over."""
_T = TypeVar("_T")


def call(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises, with enough room for a deep expression. Raises RecursionError if that is not enough either."""
    try:
        return work()
    except RecursionError:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))
        return work()
