"""Every text on the page of errors is printed by a command of the page, or is what a line of the code that raises the error can make."""

import ast
import re
from collections.abc import Iterator

from drakit_gpu import nvml_errors
from unit.docs import markdown

PAGE = markdown.ROOT / "docs" / "reference" / "errors.md"
SOURCES = sorted((markdown.ROOT / "driver").rglob("*.py"))
CALL = str(nvml_errors.CallError("nvmlDeviceGetMemoryInfo", nvml_errors.Code.GPU_IS_LOST))


def printed() -> str:
    """What the commands of the page print, which another test compares with the page."""
    return "\n".join(block.text for block in markdown.blocks(PAGE) if block.mark == "run")


def pattern(node: ast.expr) -> str:
    """The texts that an expression can make; anything but constants is any text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern(part) for part in node.values)
    return ".+"


def made_by_code() -> Iterator[tuple[str, str]]:
    """The names of errors and faults that the code raises, and a pattern of their texts."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and (name := getattr(node.func, "attr", getattr(node.func, "id", ""))).endswith("Error"):
                fault = node.args[0].attr if name == "ClaimError" and node.args and isinstance(node.args[0], ast.Attribute) else ""
                texts = node.args[1:2] if fault else node.args[:1]
                field = "".join(f"{pattern(word.value)}: " for word in node.keywords if word.arg == "field")
                yield from ((fault or name, field + found) for text in texts if (found := pattern(text)) != ".+")


def test_every_text_is_printed_or_can_be_made_by_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(?: [^|`]+ \|)? `(.+?)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {name for name, _ in rows} == markdown.table_names(PAGE.read_text("utf-8")) - {"ClaimFault"}
    patterns = set(made_by_code())
    unknown = [
        (name, text)
        for name, text in rows
        if text not in printed() and text != CALL and not any(of == name and re.fullmatch(found, text) for of, found in patterns)
    ]
    assert unknown == []
