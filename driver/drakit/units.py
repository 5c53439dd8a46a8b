"""What a quantity with a unit means, such as 5Gbit or 40GB: quantities of Kubernetes have none."""

import decimal
import re

_WITH_UNIT = re.compile(
    r"(?=.*[a-zA-Z])(?P<number>[0-9]+(?:\.[0-9]+)?) *(?P<prefix>[kKmMgGtTpP]?)(?P<binary>[iI]?)"
    r"(?:(?P<bytes>B|(?i:bytes?))|b|(?i:bits?))?(?P<rate>/[sS]|[pP][sS])?"
)
_BITS = 8
_LONGEST = 128


def without_unit(text: str) -> str:
    """Return the fix for a number with a unit, such as 5Gbit, which means 5G; "" for any other text. Bytes per second are made bits."""
    match = _WITH_UNIT.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        return ""
    prefix = match["prefix"]
    suffix = f"{prefix.upper()}i" if match["binary"] else "k" if prefix in {"k", "K"} else prefix.upper()
    if match["bytes"] and match["rate"]:
        bits = f"{(decimal.Decimal(match['number']) * _BITS).normalize():f}"
        return f"write {bits}{suffix}: bandwidth is in bits per second, and a byte has {_BITS}"
    return f"write {match['number']}{suffix}: a quantity has no unit; bandwidth is in bits per second, memory in bytes"
