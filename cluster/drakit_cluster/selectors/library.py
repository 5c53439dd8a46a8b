"""Every function that expressions call, by name; each looks at the types of its arguments."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.selectors import (
    conversions,
    formats,
    lists,
    moments,
    network,
    operators,
    optionals,
    ordered,
    strings,
    urls,
)
from drakit_cluster.selectors.values import Value

FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    **operators.FUNCTIONS,
    **conversions.FUNCTIONS,
    **moments.FUNCTIONS,
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **optionals.FUNCTIONS,
    **ordered.FUNCTIONS,
    **network.FUNCTIONS,
    **urls.FUNCTIONS,
    **formats.FUNCTIONS,
}
