"""The reader of YAML and JSON text: documents one by one as in Kubernetes, each with the line of every field.

YAML is read with the types of JSON: a date stays text, and every key is text. A repeated key is an error, because one of its values
would be lost silently.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import yaml

from drakit.inputs import documents
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json

NODES_MAX = 1 << 20
"""The lines of fields are not known in longer JSON: to find them takes ten times as long as to read it."""
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_ENDED = "did not find expected key"
_PAIR = 2
_TAB = "cannot start any token"


class ReadingError(Exception):
    """A text that cannot be read; the message names document (from the second on), line and column."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One document, or one item of a List in it. ``number`` counts documents from 1, ``first_line`` is that of the document.

    ``find`` returns the node of the text from which lines of fields are known; None if they are not.
    ``inside`` is the path in ``body`` of what the text contains; it is empty for complete objects.
    """

    number: int
    first_line: int
    body: Json
    find: Callable[[], yaml.Node | None] = field(default=lambda: None, repr=False)
    inside: str = ""

    @functools.cached_property
    def _node(self) -> yaml.Node | None:
        return self.find()

    @property
    def line(self) -> int:
        """The first line."""
        return _line(self._node) if self._node is not None else self.first_line

    def line_of(self, path: str) -> int:
        """Return the line of a field such as ``spec.devices[0].name``, or of its nearest parent if the field is missing."""
        line, node = self.line, self._node
        for name, index in _STEP.findall(path.removeprefix(self.inside)):
            line, node = _inside(node, name or index) or (line, None)
        return line

    def items(self) -> "list[Part]":
        """Return the items of a List, as parts of the same document."""
        bodies = self.body["items"] if isinstance(self.body, dict) else None
        if not isinstance(bodies, list):
            return []
        finds = [functools.partial(self._find_item, place) for place in range(len(bodies))]
        return [
            Part(number=self.number, first_line=self.first_line, body=body, find=find) for body, find in zip(bodies, finds, strict=True)
        ]

    def _find_item(self, place: int) -> yaml.Node | None:
        _, listed = _inside(self._node, "items") or (0, None)
        _, node = _inside(listed, str(place)) or (0, None)
        return node


def parts(text: str, *, must_be_json: bool = False) -> list[Part]:
    """Return the documents of a text in order, without empty ones. Raises ReadingError."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            json_parts = list(_json_parts(text))
            documents.check_depth([part.body for part in json_parts])
        except (RecursionError, documents.DocumentError) as error:
            raise ReadingError(f"is nested more than {documents.DEPTH_MAX} levels deep") from error
        except json.JSONDecodeError as error:
            if must_be_json:
                raise ReadingError(f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
        except ValueError as error:
            raise ReadingError(f"is not JSON: {' '.join(str(error).split())}") from error
        else:
            return [replace(part, find=functools.partial(_node_of, text)) for part in json_parts] if len(json_parts) == 1 else json_parts
    return list(_yaml_parts(text))


def _json_parts(text: str) -> Iterator[Part]:
    decoder, position, number = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=str), 0, 0
    while remaining := text[position:].lstrip():
        position = len(text) - len(remaining)
        number += 1
        body, end = decoder.raw_decode(text, position)
        if "\\u" in text:
            body = json_types.without_unpaired_surrogates(body)
        yield Part(number=number, first_line=text.count("\n", 0, position) + 1, body=body)
        position = end


def _node_of(text: str) -> yaml.Node | None:
    """Return the node of a text of JSON, which is YAML too; None if it is long, or has what only JSON may have, such as tabs."""
    if len(text) > NODES_MAX:
        return None
    try:
        documents.check_limits(text)
        node: yaml.Node | None = documents.Loader(text).get_single_node()
    except documents.LOADING_ERRORS:
        return None
    return node


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    mapping: dict[str, Json] = {}
    for key, value in pairs:
        if key in mapping:
            raise ReadingError(f"is not JSON: key {key} occurs twice")
        mapping[key] = value
    return mapping


def _yaml_parts(text: str) -> Iterator[Part]:
    number = 1
    try:
        documents.check_limits(text)
        loader = documents.Loader(text)
        while loader.check_node():
            node = loader.get_node()
            body = loader.construct_document(node)
            if "!!" in text:
                _check(body)
            if body is not None:
                yield Part(number=number, first_line=_line(node), body=body, find=functools.partial(_same, node))
            number += 1
    except documents.LOADING_ERRORS as error:
        document = f"document {number}: " if number > 1 else ""
        raise ReadingError(f"{document}is not YAML: {_reason(error)}{_hint(error, text)}") from error


def _same(node: yaml.Node) -> yaml.Node:
    return node


def _check(body: Json) -> None:
    """Raise ValueError for a value that JSON cannot hold: a tag may produce bytes or a set."""
    try:
        json.dumps(body)
    except TypeError as error:
        raise ValueError("a tag produces a value that JSON cannot hold; write plain values") from error


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        # The C reader reports the character as a number.
        code = error.character if isinstance(error.character, int) else ord(error.character or "\0")
        return f"character {error.position + 1} is #x{code:04x}, which text may not contain" if code else error.reason
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    where = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    problem = f"{error.problem} (a tab? YAML is indented by spaces)" if _TAB in str(error.problem) else error.problem
    context = f", {error.context}" if error.context else ""
    begun = f" that begins in line {error.context_mark.line + 1}" if context and error.context_mark is not None else ""
    return f"{where}: {problem}{context}{begun}"


def _hint(error: Exception, text: str) -> str:
    """Return the likely cause, with the field and a fix, where a mapping ends too early."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None or _ENDED not in str(error.problem):
        return ""
    *earlier_lines, line = text.splitlines()[: error.problem_mark.line + 1]
    name = line.partition(":")[0].strip(" -")
    if max(line.count('"'), line.count("'")) > _PAIR:
        return f" ({name}: a quote within quotes? write the text on lines of its own, after {name}: |-)"
    indent, known_indents = _indent(line), {_indent(earlier_line) for earlier_line in earlier_lines if earlier_line.strip()}
    # The deeper of two indentations that are equally near.
    nearest = min(known_indents, key=lambda known_indent: (abs(known_indent - indent), -known_indent), default=0)
    return "" if indent in known_indents else f" ({name}: nothing above is indented by {indent}: write {nearest})"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _inside(node: yaml.Node | None, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((_line(key), value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        return _line(node.value[int(step)]), node.value[int(step)]
    return None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
