"""Redact the secrets of this process from logs, errors and events, because other programs may echo them.

Code that uses a secret calls ``hide``. Code that writes untrusted text calls ``redacted``; every log line goes through it. Only the last few secrets
are kept, because tokens are renewed for as long as the process lives.
"""

import re

_SECRETS_MAX = 8
_SHORTEST = 8
_LINE_MAX = 500
_MARK = "[redacted]"
# Bearer tokens and JSON Web Tokens in general, because a server may also echo foreign tokens or parts of ours.
_SHAPES = re.compile(r"(?i:\bbearer\s+)[-\w.~+/]{8,}=*|\beyJ[-\w.]{8,}")
_known: tuple[str, ...] = ()


def hide(secret: str) -> None:
    """Let ``redacted`` remove this text from now on; text as short as a word is ignored."""
    global _known  # noqa: PLW0603 - replaced whole, so that readers need no lock
    if len(secret) >= _SHORTEST and secret not in _known:
        _known = (*_known[1 - _SECRETS_MAX :], secret)


def redacted(text: str) -> str:
    """Return the text without secrets."""
    for secret in _known:
        text = text.replace(secret, _MARK)
    return _SHAPES.sub(_MARK, text) if "earer" in text.lower() or "eyJ" in text else text


def one_line(text: str) -> str:
    """Return the text without secrets, in one line of at most 500 characters."""
    line = " ".join(redacted(text).split())
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 3]}..."
