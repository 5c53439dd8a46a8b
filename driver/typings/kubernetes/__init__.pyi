# The part of the kubernetes client that drakit uses; the package itself takes minutes to check. Everything else is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
