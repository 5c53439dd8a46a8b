"""The reader of YAML and JSON text: documents one by one as in Kubernetes, each with the line of every field.

YAML is read with the types of JSON: a date stays text, and every key is text. A repeated key is an error, because one of its values
would be lost silently.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import yaml

from drakit.inputs import documents
from drakit_cluster.objects.json_types import Json

NODES_MAX = 1 << 20
"""Longer JSON is read without the line of each field, which takes a tenth of the time."""
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_ENDED = "did not find expected key"
_PAIR = 2
_TAB = "cannot start any token"


class ReadingError(Exception):
    """A text that cannot be read; the message names document (from the second on), line and column."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One document, or one item of a List in it. ``number`` counts documents from 1, ``line`` is its first line.

    ``inside`` is the path in ``body`` of what the text contains; it is empty for complete objects.
    """

    number: int
    line: int
    body: Json
    node: yaml.Node | None = field(default=None, repr=False)
    inside: str = ""

    def line_of(self, path: str) -> int:
        """Return the line of a field such as ``spec.devices[0].name``, or of its nearest parent if the field is missing."""
        line, node = self.line, self.node
        for name, index in _STEP.findall(path.removeprefix(self.inside)):
            line, node = _inside(node, name or index) or (line, None)
        return line

    def items(self) -> "list[Part]":
        """Return the items of a List, as parts of the same document."""
        bodies = self.body["items"] if isinstance(self.body, dict) else None
        if not isinstance(bodies, list):
            return []
        _, listed = _inside(self.node, "items") or (0, None)
        nodes: Sequence[yaml.Node | None] = listed.value if isinstance(listed, yaml.SequenceNode) else [None] * len(bodies)
        return [
            Part(number=self.number, line=_line(node) if node else self.line, body=body, node=node)
            for body, node in zip(bodies, nodes, strict=True)
        ]


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
        except ReadingError:
            raise
        else:
            if len(json_parts) > 1 or "\t" in text or len(text) > NODES_MAX:
                return json_parts
    return list(_yaml_parts(text))


def _json_parts(text: str) -> Iterator[Part]:
    decoder, position, number = json.JSONDecoder(object_pairs_hook=_unique), 0, 0
    while remaining := text[position:].lstrip():
        position = len(text) - len(remaining)
        number += 1
        body, end = decoder.raw_decode(text, position)
        yield Part(number=number, line=text.count("\n", 0, position) + 1, body=body)
        position = end


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
                yield Part(number=number, line=_line(node), body=body, node=node)
            number += 1
    except documents.LOADING_ERRORS as error:
        document = f"document {number}: " if number > 1 else ""
        raise ReadingError(f"{document}is not YAML: {_reason(error)}{_hint(error, text)}") from error


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
