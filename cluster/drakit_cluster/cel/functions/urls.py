"""URLs, as Go's net/url reads a request URI: absolute, or a path from the root."""

import re
import urllib.parse
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation.values import Url, Value

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL | re.ASCII)
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:<>\"\[\]-]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])*")
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*", re.ASCII)
_ESCAPED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_.~!$&'()*+,;=:@/\[\]%-]*", re.ASCII)
_UNESCAPED: Final = "$&+,/:;=@-_.~"


def parse(text: Value) -> Url:
    """`url(text)`. Raises EvalError."""
    if not isinstance(text, str):
        raise errors.no_such_overload()
    _read(text)
    return _read(text.partition("#")[0])


def _read(text: str) -> Url:
    if not text or any(character < " " or character == "\x7f" for character in text):
        raise _invalid(text, "empty url" if not text else "invalid control character in URL")
    scheme, rest = _without_scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme and text != "*":
            raise _invalid(text, "invalid URI for request")
        return Url(text, scheme, "", "", "", "" if scheme else "*", query)
    authority = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    if _ESCAPED.search(rest):
        raise _invalid(text, "invalid URL escape")
    host = _host(text, authority)
    name, port = _split(host)
    return Url(text, scheme, host, name, port, _escaped_path(rest), query)


def _invalid(text: str, reason: str) -> errors.EvalError:
    return errors.EvalError(f'URL parse error during conversion from string: parse "{text}": {reason}')


def _without_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    if match is not None:
        return match.group(1).lower(), match.group(2)
    if text.startswith(":"):
        raise _invalid(text, "missing protocol scheme")
    first, colon, _ = text.partition(":")
    if colon and not set(first) & {*"/?#"}:
        raise _invalid(text, "first path segment in URL cannot contain colon")
    return "", text


def _host(text: str, authority: str) -> str:
    user, _, host = authority.rpartition("@")
    if not _USER.fullmatch(user):
        raise _invalid(text, "net/url: invalid userinfo")
    if host.startswith("["):
        closing = host.rfind("]")
        port = host[closing + 1 :]
        if closing < 0:
            raise _invalid(text, "missing ']' in host")
    else:
        port = host[host.rfind(":") :] if ":" in host else ""
    if not _PORT.fullmatch(port):
        raise _invalid(text, f'invalid port "{port}" after host')
    if not _HOST.fullmatch(host):
        raise _invalid(text, "invalid character in host name")
    return urllib.parse.unquote(host)


def _split(host: str) -> tuple[str, str]:
    """The name without brackets, and the port."""
    name, colon, port = host.rpartition(":")
    if not colon or (not port.isdigit() and port):
        name, port = host, ""
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name, port


def _escaped_path(path: str) -> str:
    if _PLAIN_PATH.fullmatch(path):
        return path
    return urllib.parse.quote(urllib.parse.unquote(path), safe=_UNESCAPED)


def is_url(text: Value) -> bool:
    """`isURL(text)`."""
    if not isinstance(text, str):
        raise errors.no_such_overload()
    try:
        _read(text)
    except errors.EvalError:
        return False
    return True


def query(value: Value) -> dict[str, list[str]]:
    """`url.getQuery()`: every key with its values, unescaped; what cannot be read is left out."""
    found: dict[str, list[str]] = {}
    for pair in _checked(value).query.split("&"):
        if not pair or ";" in pair or _ESCAPED.search(pair):
            continue
        key, _, text = pair.partition("=")
        found.setdefault(urllib.parse.unquote_plus(key), []).append(urllib.parse.unquote_plus(text))
    return found


def _checked(value: Value) -> Url:
    if not isinstance(value, Url):
        raise errors.no_such_overload()
    return value


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "url": parse,
    "isURL": is_url,
    "getScheme": lambda value: _checked(value).scheme,
    "getHost": lambda value: _checked(value).host,
    "getHostname": lambda value: _checked(value).hostname,
    "getPort": lambda value: _checked(value).port,
    "getEscapedPath": lambda value: _checked(value).path,
    "getQuery": query,
}
