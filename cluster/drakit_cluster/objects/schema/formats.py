"""String formats of the API: each function returns what is wrong with a string, or ``""``.

Sources: Kubernetes' name rules (RFC 1123 labels and subdomains), and the validation of resource.k8s.io/v1 in 1.36. Sizes are in bytes.
"""

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NUMERIC = r"(?:0|[1-9][0-9]*)"
_PRERELEASE = rf"(?:{_NUMERIC}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMERIC}\.{_NUMERIC}\.{_NUMERIC}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")

LABEL_BYTES = 63
SUBDOMAIN_BYTES = 253


def dns_label(value: str) -> str:
    """Check an RFC 1123 label."""
    if len(value.encode()) > LABEL_BYTES:
        return f"must be no more than {LABEL_BYTES} bytes"
    return "" if _LABEL.fullmatch(value) else "must be lower-case letters, digits and '-', with no '-' at either end"


def dns_subdomain(value: str) -> str:
    """Check an RFC 1123 subdomain: labels (of any length) joined by dots."""
    if len(value.encode()) > SUBDOMAIN_BYTES:
        return f"must be no more than {SUBDOMAIN_BYTES} bytes"
    reason = "must be lower-case letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
    return "" if all(_LABEL.fullmatch(part) for part in value.split(".")) else reason


def path_segment(value: str) -> str:
    """Check a name that only has to fit into a URL, such as that of a role."""
    invalid = value in (".", "..") or "/" in value or "%" in value
    return "must not be '.' or '..', nor contain '/' or '%'" if invalid else ""


def c_identifier(value: str) -> str:
    """Check the last part of an attribute's or capacity's name."""
    return "" if _C_IDENTIFIER.fullmatch(value) else "must be a C identifier: letters, digits and '_', no digit first"


def semver(value: str) -> str:
    """Check a strict semantic version 2.0.0."""
    return "" if _SEMVER.fullmatch(value) else "must be a version like 1.2.3 (semver.org 2.0.0): three numbers, no leading zeros"


def uuid(value: str) -> str:
    """Check a UUID in lower-case RFC 4122 form."""
    return "" if _UUID.fullmatch(value) else "must be a lower-case UUID of 36 characters"


def label_key(value: str) -> str:
    """Check a label's key, a taint's key or a condition type: ``name`` or ``subdomain/name``."""
    prefix, slash, name = value.rpartition("/")
    if slash and (reason := dns_subdomain(prefix)):
        return f"prefix {reason}"
    if len(name) > LABEL_BYTES:
        return f"name part must be no more than {LABEL_BYTES} bytes"
    return "" if _LABEL_NAME.fullmatch(name) else "name part must be letters, digits, '-', '_' or '.', and not empty"


def label_value(value: str) -> str:
    """Check a label's or taint's value."""
    if len(value) > LABEL_BYTES:
        return f"must be no more than {LABEL_BYTES} bytes"
    return (
        "" if not value or _LABEL_NAME.fullmatch(value) else "must be letters, digits, '-', '_' or '.', beginning and ending alphanumeric"
    )


def condition_reason(value: str) -> str:
    """Check the reason of a metav1 Condition."""
    return "" if _REASON.fullmatch(value) else "must be one CamelCase word"
