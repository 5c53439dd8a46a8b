"""Load YAML (and so JSON) with the values that Kubernetes reads, and with limits on nesting and on the expansion of aliases.

Dates stay text and keys are text, as after a conversion to JSON. A duplicate key is an error, because one of its values would be lost.
"""

import functools
import json
import re
from collections.abc import Hashable, Iterable
from typing import Any

import yaml

DEPTH_MAX = 100
"""The limit of nesting levels; Kubernetes' own objects have fewer than 30."""
ALIASED_MAX = 100_000
"""The limit of values that all aliases of a text expand to."""

VALUES_MAX = 2_000_000
"""The limit of values in one text, so that a small text cannot cost gigabytes and minutes."""

_FastLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser of both the check of limits and the load, because another parser might accept a text that this one rejects."""

_FastDumper: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

LOADING_ERRORS = (yaml.YAMLError, ValueError, ArithmeticError, RecursionError)
"""The errors that a loader raises for a text; numbers may be too large for a float."""
_COLUMNS = 20
"""A block of most texts begins before this column."""
_INDENTED = re.compile(rf"[-?: \t]{{{_COLUMNS}}}")
_ALIAS = re.compile(r"[&*][0-9A-Za-z_-]")
_TEXT, _LIST, _MAPPING = "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"
_NUMBERS = {
    "tag:yaml.org,2002:int": r"[-+]?(0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)",
    "tag:yaml.org,2002:float": r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
}
"""Numbers as Kubernetes reads them: without YAML 1.1's base 60, in which 1:30 is 90."""


class DocumentError(ValueError):
    """A text that cannot be read; the message has line, column and reason."""


def load(text: str) -> Any:
    """Return the only document of a text, None for an empty text. Raises DocumentError."""
    check_limits(text)
    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - a SafeLoader, made stricter
    except LOADING_ERRORS as error:
        raise DocumentError(reason(error)) from error


def load_all(text: str) -> list[Any]:
    """Return all documents of a text. Raises DocumentError."""
    check_limits(text)
    try:
        return list(yaml.load_all(text, Loader=Loader))
    except LOADING_ERRORS as error:
        raise DocumentError(reason(error)) from error


def dump(value: object) -> str:
    """Return a value as a YAML document."""
    return _dump([value], explicit_start=False)


def dump_all(values: Iterable[object]) -> str:
    """Return values as YAML documents, each after a separator."""
    return _dump(values, explicit_start=True)


def _dump(values: Iterable[object], *, explicit_start: bool) -> str:
    documents = list(values)
    dump = functools.partial(yaml.dump_all, documents, sort_keys=False, width=120, explicit_start=explicit_start)
    try:
        return str(dump(Dumper=_FastDumper))
    except UnicodeEncodeError:  # the C writer refuses bytes that are not UTF-8, as in the name of a file
        return str(dump(Dumper=yaml.SafeDumper))


def check_limits(text: str) -> None:
    """Raise DocumentError for YAML that is nested too deeply, or whose aliases multiply or lead back to themselves.

    Reads events one by one up to the first that is refused: no recursion, and memory for the open levels only. A syntax error is left to
    whoever loads the text. Does not parse a text that cannot exceed a limit, as most cannot.
    """
    if _is_within_limits(text):
        return
    sizes = _Sizes()
    try:
        for event in yaml.parse(text, Loader=_FastLoader):
            sizes.add(event)
    except _LimitError as error:
        raise DocumentError(reason(error)) from error
    except (yaml.YAMLError, ValueError):
        return


def _is_within_limits(text: str) -> bool:
    """Return whether a text is certainly within the limits."""
    return values_max(text) <= VALUES_MAX and levels_max(text) <= DEPTH_MAX and not _ALIAS.search(text)


def values_max(text: str) -> int:
    """Return a number of values that a text cannot exceed without aliases: ``?`` is the start, a key, its value and the end of a mapping."""
    return 3 * len(text) + 5


def levels_max(text: str) -> int:
    """Return a number of nesting levels that a text cannot exceed.

    A bracket opens two levels at most: a list, and a mapping of one key in it. A block begins behind spaces and indicators only, at a column
    greater than that of the block around it; only a list may begin at the column of its mapping.
    """
    columns = _COLUMNS if not _INDENTED.search(text) else len(text) + 1
    return 2 * (text.count("[") + text.count("{") + columns)


def check_depth(value: object) -> None:
    """Raise DocumentError for a value read from JSON that is nested too deeply; without recursion."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [
            inside for node in level if isinstance(node, dict | list) for inside in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise DocumentError(f"is nested more than {DEPTH_MAX} levels deep")


def reason(error: Exception) -> str:
    """Return line, column and problem of a YAML error in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())[:200]


class _LimitError(yaml.MarkedYAMLError):
    """An event that exceeds a limit."""


class _Sizes:
    """The number of values of each anchor, counted event by event."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, int]] = []
        self._of: dict[str, int | None] = {}
        self._aliased = 0
        self._values = 0

    def add(self, event: yaml.Event) -> None:
        self._values += 1
        if self._values > VALUES_MAX:
            raise _refused(event, f"has more than {VALUES_MAX} values")
        if isinstance(event, yaml.DocumentStartEvent):
            self._of = {}
        elif isinstance(event, yaml.AliasEvent):
            self._count(self._behind(event))
        elif isinstance(event, yaml.ScalarEvent):
            self._anchor(event.anchor, 1)
            self._count(1)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) == DEPTH_MAX:
                raise _refused(event, f"is nested more than {DEPTH_MAX} levels deep")
            self._anchor(event.anchor, None)
            self._open.append((event.anchor, 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = self._open.pop()
            self._anchor(anchor, size)
            self._count(size)

    def _behind(self, event: yaml.AliasEvent) -> int:
        if event.anchor not in self._of:
            raise _refused(event, f"the alias *{event.anchor} has no anchor before it")
        size = self._of[event.anchor]
        if size is None:
            raise _refused(event, f"the alias *{event.anchor} leads back to itself; write the values out")
        self._aliased += size
        if self._aliased > ALIASED_MAX:
            raise _refused(event, f"aliases stand for more than {ALIASED_MAX} values; write them out")
        return size

    def _anchor(self, name: str | None, size: int | None) -> None:
        if name is not None:
            self._of[name] = size

    def _count(self, size: int) -> None:
        if self._open:
            anchor, inside = self._open[-1]
            self._open[-1] = (anchor, inside + size)


def _refused(event: yaml.Event, problem: str) -> _LimitError:
    return _LimitError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type] # the stubs know one of two kinds of marks


class Loader(_FastLoader):  # type: ignore[misc] # either loader is a class
    """YAML by way of JSON, for callers that need the nodes too; ``load`` and ``load_all`` check limits before.

    The base class makes any value by generators that it keeps in lists. Here values of JSON are made directly, in a quarter of the time.
    """

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: tuple[bool, bool] | bool) -> str:  # noqa: FBT001 - as in yaml
        """Return the tag of a node that has none."""
        if kind is yaml.ScalarNode:
            return _plain_tag(value or "") if isinstance(implicit, tuple) and implicit[0] else _TEXT
        return _LIST if kind is yaml.SequenceNode else _MAPPING

    def construct_document(self, node: yaml.Node) -> Any:
        """Return the value of a document."""
        return self._value(node)

    def _value(self, node: yaml.Node) -> Any:
        tag = node.tag
        if isinstance(node, yaml.ScalarNode):
            if tag == _TEXT:
                return node.value
        elif isinstance(node, yaml.MappingNode):
            if tag == _MAPPING and all(key.tag == _TEXT and isinstance(key, yaml.ScalarNode) for key, _ in node.value):
                return self._mapping(node)
        elif tag == _LIST:
            return [self._value(item) for item in node.value]
        try:
            return self.construct_object(node, deep=True)
        except (LookupError, TypeError, AttributeError) as error:
            raise yaml.constructor.ConstructorError(None, None, f"a value does not fit its tag ({tag})", node.start_mark) from error

    def _mapping(self, node: yaml.MappingNode) -> dict[str, object]:
        """Return a mapping whose keys are text."""
        made: dict[str, object] = {}
        for key, value in node.value:
            name = key.value
            if name in made:
                raise _given_twice(key)
            made[name] = self._value(value)
        return made

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002 - as in yaml
        """Return the mapping with text as keys; raises ConstructorError for a key that is given twice or that JSON has not."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _given_twice(key)
            seen.add(str(key.value))
        made = super().construct_mapping(node, deep=deep)
        if odd := [key for key in made if not isinstance(key, str | int | float | None)]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {odd[0]!r} is nothing that JSON has", node.start_mark)
        return {key if isinstance(key, str) else json.dumps(key): value for key, value in made.items()}


def _given_twice(key: yaml.ScalarNode) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, f"the key {key.value} is given twice", key.start_mark)


Loader.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile(rf"^({_NUMBERS[tag]})$") if tag in _NUMBERS else pattern)
        for tag, pattern in known
        if tag != "tag:yaml.org,2002:timestamp"
    ]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@functools.lru_cache(maxsize=4096)
def _plain_tag(text: str) -> str:
    """Return the tag of a scalar without quotes. The same few texts recur in a file: names of fields, units, numbers."""
    patterns = Loader.yaml_implicit_resolvers.get(text[:1], ())
    return next((tag for tag, pattern in patterns if pattern.match(text)), _TEXT)
