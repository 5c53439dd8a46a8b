"""CEL device selectors with Kubernetes' semantics: compiled once per expression, evaluated for every device.

`Selectors` is what the scheduler asks; `Selectors.compile` is what validation asks. Expressions are parsed, checked, priced and
turned into closures here. Safe to use from many threads.
"""

from drakit_cluster.selectors.compiled import COST_LIMIT, LENGTH_LIMIT, Compiled, Gates, Selectors, conformance
from drakit_cluster.selectors.declarations import EnvType
from drakit_cluster.selectors.errors import CompileError, RunError

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
