"""Kubernetes' named string formats (`format.dns1123Label()` and its like)."""

import datetime
import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import NONE, NamedFormat, Optional, Value
from drakit_cluster.cel.functions import network, strings

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_PART: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID: Final = r"(?i)([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32})"
_BASE64: Final = r"(?:[A-Za-z0-9+\\/]{4})*(?:[A-Za-z0-9+\\/]{2}==|[A-Za-z0-9+\\/]{3}=|[A-Za-z0-9+\\/]{4})"
_DATE_TIME: Final = r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})"

Check = Callable[[str], list[str]]


def _pattern(expression: str, complaint: str, most: int = 2**31) -> Check:
    compiled = strings.pattern(expression)

    def check(text: str) -> list[str]:
        complaints = [f"must be no more than {most} bytes"] if len(text.encode()) > most else []
        return complaints if compiled.fullmatch(text) else [*complaints, complaint]

    return check


_label: Final = _pattern(_LABEL, "must be a lowercase RFC 1123 label", 63)
_subdomain: Final = _pattern(rf"{_LABEL}(\.{_LABEL})*", "must be a lowercase RFC 1123 subdomain", 253)
_label_1035: Final = _pattern(r"[a-z]([-a-z0-9]*[a-z0-9])?", "must be a DNS-1035 label", 63)
_name_part: Final = _pattern(_NAME_PART, "name part must consist of alphanumeric characters, '-', '_' or '.'", 63)


def _prefix(check: Check) -> Check:
    """Return the check of a prefix of a name, which may end with a dash."""
    return lambda text: check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return ["a qualified name must have at most one '/'"]
    return [*(_subdomain(prefix) if slash else []), *_name_part(name)]


def _uri(text: str) -> list[str]:
    return [] if values.is_accepted(network.parse_url, text) else [f'parse "{text}": invalid URI for request']


def _date(text: str) -> list[str]:
    try:
        datetime.date.fromisoformat(text if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) else "")
    except ValueError:
        return ["invalid date"]
    return []


def _date_time(text: str) -> list[str]:
    match = re.fullmatch(_DATE_TIME, text, re.ASCII)
    if match is None or _date(match.group(1)):
        return ["invalid datetime"]
    hour, minute, second = (int(match.group(part)) for part in (2, 3, 4))
    return [] if hour <= 23 and minute <= 59 and second <= 59 else ["invalid datetime"]


NAMED: Final = {
    name: NamedFormat(shown, check)
    for name, shown, check in (
        ("dns1123Label", "DNS1123Label", _label),
        ("dns1123Subdomain", "DNS1123Subdomain", _subdomain),
        ("dns1035Label", "DNS1035Label", _label_1035),
        ("qualifiedName", "QualifiedName", _qualified),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", _prefix(_label)),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", _prefix(_subdomain)),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", _prefix(_label_1035)),
        ("labelValue", "LabelValue", lambda text: _name_part(text) if text else []),
        ("uri", "URI", _uri),
        ("uuid", "uuid", _pattern(_UUID, "does not match the UUID format")),
        ("byte", "byte", _pattern(_BASE64, "invalid base64")),
        ("date", "date", _date),
        ("datetime", "datetime", _date_time),
    )
}


def validate(form: NamedFormat, text: str) -> Optional:
    """Return `format.validate(text)`: the complaints; optional.none() if the text is valid."""
    complaints = form.validate(text)
    return Optional.of(complaints) if complaints else NONE


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "format.named": lambda name: Optional.of(NAMED[name]) if name in NAMED else NONE,
    "validate": validate,
    **{f"format.{name}": lambda form=form: form for name, form in NAMED.items()},
}
