"""CEL device selectors with Kubernetes' semantics: compiled once per expression, evaluated for every device.

The scheduler uses `Selectors`; validation uses `Selectors.compile`. This package parses, checks and prices expressions, and turns them into
closures. It is safe to use from many threads.
"""

from drakit_cluster.cel.errors import CompileError, RunError
from drakit_cluster.cel.selectors import COST_LIMIT, LENGTH_LIMIT, Compiled, Purpose, Selectors
from drakit_cluster.cel.types.declarations import EnvType, Gates

__all__ = [
    "COST_LIMIT",
    "LENGTH_LIMIT",
    "CompileError",
    "Compiled",
    "EnvType",
    "Gates",
    "Purpose",
    "RunError",
    "Selectors",
]
