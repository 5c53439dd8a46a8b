"""Turn an error of pydantic into a readable reason."""

import pydantic_core

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "path": "a path",
    "tuple": "a list, such as [a, b]",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping of settings",
    "dataclass": "a mapping of settings",
}
"""The expected value by the word before the first underscore of a pydantic error type."""


def reason(error: pydantic_core.ErrorDetails) -> str:
    """Return value and expectation in one line: "'abc' is not a whole number"."""
    kind, context = error["type"], error.get("ctx", {})
    given = repr(error["input"])[:80]
    if kind in ("literal_error", "enum"):
        return f"{given} is not one of {str(context['expected']).replace(' or ', ', ').replace(chr(39), '')}"
    if kind.startswith(("greater_than", "less_than")):
        bound = next(iter(context.values()))
        return f"{given} is {'below' if kind.startswith('greater') else 'above'} the limit {bound}"
    expected = _EXPECTED.get(kind.partition("_")[0])
    return f"{given} is not {expected}" if expected else error["msg"].removeprefix("Value error, ")
