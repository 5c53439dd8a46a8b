"""The tokens of CEL (language definition, "Syntax"), and the values of its literals."""

import dataclasses
import enum
import re
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values

_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TOKEN: Final = re.compile(
    rf"""
    (?P<space>[ \t\r\n\f]+ | //[^\n]*)
  | (?P<text>[bB]? (?:
        [rR] (?: \"\"\".*?\"\"\" | '''.*?''' | "[^"\r\n]*" | '[^'\r\n]*' )
      | \"\"\" (?: {_ESCAPE} | [^\\] )*? \"\"\"  |  ''' (?: {_ESCAPE} | [^\\] )*? '''
      | " (?: {_ESCAPE} | [^\\"\r\n] )* "  |  ' (?: {_ESCAPE} | [^\\'\r\n] )* ' ))
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ | \.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_SIMPLE: Final = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ESCAPES: Final = re.compile(_ESCAPE)
_SURROGATES: Final = range(0xD800, 0xE000)
_CODE_POINTS: Final = 0x110000


class Kind(enum.Enum):
    """The kind of a token."""

    TEXT = "text"
    FLOAT = "float"
    UINT = "uint"
    INT = "int"
    NAME = "name"
    SIGN = "sign"
    END = "end"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token at an offset, in characters."""

    kind: Kind
    text: str
    offset: int


def tokens(source: str) -> list[Token]:
    """Return the tokens of the source, ending with an END token. Raises SourceError for a character that starts no token."""
    result: list[Token] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None or match.lastgroup is None:
            raise errors.SourceError(f"Syntax error: token recognition error at: '{source[position]}'", position)
        if match.lastgroup != "space":
            result.append(Token(kind=Kind(match.lastgroup), text=match.group(), offset=position))
        position = match.end()
    result.append(Token(kind=Kind.END, text="<EOF>", offset=len(source)))
    return result


def number(token: Token, *, negative: bool) -> values.Value:
    """Return the value of a numeric token, with its minus if `negative`. Raises SourceError if it does not fit into 64 bits."""
    sign = "-" if negative else ""
    if token.kind is Kind.FLOAT:
        value = float(sign + token.text)
        if value in (float("inf"), float("-inf")):
            raise errors.SourceError("Syntax error: invalid double literal", token.offset)
        return value
    digits = token.text.rstrip("uU") if token.kind is Kind.UINT else token.text
    integer = int(sign + digits, 16 if digits.startswith("0x") else 10)
    if token.kind is Kind.UINT:
        if integer > values.UINT_MAX:
            raise errors.SourceError("Syntax error: invalid uint literal", token.offset)
        return values.Uint(integer)
    if not values.INT_MIN <= integer <= values.INT_MAX:
        raise errors.SourceError("Syntax error: invalid int literal", token.offset)
    return integer


def text(token: Token) -> str | bytes:
    """Return the value of a string or bytes token. Raises SourceError for an escape that is not a character."""
    body = token.text
    binary = body[0] in "bB"
    body = body[1:] if binary else body
    raw = body[0] in "rR"
    body = body[1:] if raw else body
    width = 3 if body.startswith(('"""', "'''")) else 1
    body = body[width:-width].replace("\r\n", "\n").replace("\r", "\n")
    if binary:
        return body.encode() if raw else _bytes(body, token.offset)
    return body if raw else _ESCAPES.sub(lambda match: _character(match.group(), token.offset), body)


def _bytes(body: str, offset: int) -> bytes:
    pieces = _ESCAPES.split(body)
    escapes = [match.group() for match in _ESCAPES.finditer(body)]
    if any(escape[1] in "uU" for escape in escapes):
        raise errors.SourceError("Syntax error: unable to unescape string", offset)
    return pieces[0].encode() + b"".join(bytes([_code(escape)]) + text.encode() for escape, text in zip(escapes, pieces[1:], strict=True))


def _character(escape: str, offset: int) -> str:
    code = _code(escape)
    if code in _SURROGATES or code >= _CODE_POINTS:
        raise errors.SourceError("Syntax error: unable to unescape string", offset)
    return chr(code)


def _code(escape: str) -> int:
    mark = escape[1]
    if mark in _SIMPLE:
        return _SIMPLE[mark]
    if mark in "xXuU":
        return int(escape[2:], 16)  # noqa: FURB166 - \u is no prefix of Python's
    if mark in "0123":
        return int(escape[1:], 8)
    return ord(mark)
