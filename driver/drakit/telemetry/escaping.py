"""Escape untrusted text for a terminal: control characters and characters that change the displayed text become JSON escapes."""


def escaped(text: str, *, keep: str = "") -> str:
    """Return the text with every non-printable character (by Unicode) escaped as in JSON, except those in ``keep``.

    Control characters, ANSI sequences, bidirectional overrides, zero-width characters and broken surrogates are not printable.
    """
    rest = text
    for char in keep:
        rest = rest.replace(char, "")
    if rest.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _code(ord(char)) for char in text)


def _code(number: int) -> str:
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
