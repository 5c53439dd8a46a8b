"""CEL device selectors with Kubernetes' semantics: compiled once per expression, evaluated for every device.

`Selectors` is what the scheduler asks; `Selectors.compile` is what validation asks. Expressions are parsed, checked, priced and
turned into closures here. Safe to use from many threads.
"""

from drakit_cluster.cel.errors import CompileError, RunError
from drakit_cluster.cel.selectors import COST_LIMIT, LENGTH_LIMIT, Compiled, Gates, Selectors, conformance
from drakit_cluster.cel.types.declarations import EnvType

__all__ = [
    "COST_LIMIT",
    "LENGTH_LIMIT",
    "CompileError",
    "Compiled",
    "EnvType",
    "Gates",
    "RunError",
    "Selectors",
    "conformance",
]
