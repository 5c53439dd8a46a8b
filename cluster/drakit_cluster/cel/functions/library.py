"""Every function that expressions call, by name; each looks at the types of its arguments."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import conversions, formats, lists, moments, network, operators, optionals, ordered, strings, urls

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
