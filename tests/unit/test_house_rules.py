"""The rules of CONTRIBUTING.md that no linter holds."""

import ast
import functools
import pathlib
import re
import statistics
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).parents[2]
DRIVER = ROOT / "driver"
PACKAGES = (DRIVER / "drakit", DRIVER / "drakit_gpu", DRIVER / "drakit_nic", DRIVER / "drakit_tools", ROOT / "cluster" / "drakit_cluster")
MODULES = [ROOT / "driver" / "drakit_command.py"]
MODULES += sorted(path for package in PACKAGES for path in package.rglob("*.py") if "_proto" not in path.parts)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def length(node: Function) -> int:
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_modules_are_short_and_say_what_they_are_for() -> None:
    texts = {name_of(path): path.read_text("utf-8") for path in MODULES}
    assert {name for name, text in texts.items() if text.count("\n") > 500} == set()
    assert {name for name, text in texts.items() if not text.startswith('"""')} == set(), "a docstring states the job and the invariants"


def test_functions_are_short() -> None:
    lengths = {f"{name_of(path)}:{node.name}": length(node) for path in MODULES for node in functions(parsed(path))}
    assert {name: lines for name, lines in lengths.items() if lines > 60} == {}
    assert statistics.median(lengths.values()) < 10


@functools.cache
def log_calls(path: pathlib.Path) -> list[ast.Call]:
    if "_log." not in path.read_text("utf-8"):
        return []
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [call for call in calls if ast.unparse(call.func).startswith("_log.")]


def log_keys(call: ast.Call) -> set[str]:
    """The keys of a line, also where a function adds to those that it is given."""
    keys = {keyword.arg for keyword in call.keywords if keyword.arg}
    added = [keyword.value for keyword in call.keywords if keyword.arg is None and isinstance(keyword.value, ast.Call)]
    return keys.union(*map(log_keys, added))


PHRASE = re.compile(r"([a-z]|[A-Z]+[ A-Z]|gRPC|RAPL)[^.,;!?'\"]*")
"""A log message: starts in lower case or with an acronym, and has no punctuation but one colon."""


def messages(call: ast.Call, constants: Mapping[str, str]) -> list[str | None]:
    """The texts that a call can log; None for one that is put together while it runs."""
    first = call.args[0] if len(call.args) == 1 else None
    texts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    found = [constants.get(text.id) if isinstance(text, ast.Name) else getattr(text, "value", None) for text in texts]
    return [text if isinstance(text, str) else None for text in found]


def module_constants(tree: ast.Module) -> dict[str, str]:
    assigned = [(ast.unparse(node.targets[0]), node.value) for node in tree.body if isinstance(node, ast.Assign)]
    return {name: value.value for name, value in assigned if isinstance(value, ast.Constant) and isinstance(value.value, str)}


def test_log_messages_are_constant_phrases() -> None:
    found = {
        f"{name_of(path)}:{call.lineno}: {text}"
        for path in MODULES
        for call in log_calls(path)
        for text in messages(call, module_constants(parsed(path)))
        if text is None or not PHRASE.fullmatch(text) or text.count(":") > 1
    }
    assert found == set()


def test_every_module_logs_through_the_logger_of_drakit() -> None:
    named = {name_of(path) for path in MODULES if "logging.getLogger(" in path.read_text("utf-8")}
    assert named == {"driver/drakit/telemetry/logs.py"}


LOG_KEYS = frozenset(
    {
        *("driver", "node", "pool", "claim", "claim_uid", "device", "share_id", "pod", "error", "path", "interface", "gpu"),
        *("duration_ms", "retry_in_s"),
        # What only some lines are about.
        *(
            "address",
            "alias",
            "allowed",
            "caller_pid",
            "caller_uid",
            "claims",
            "client",
            "conditions",
            "count",
            "devices",
            "drivers",
        ),
        *(
            "effect",
            "fields",
            "fix",
            "fixed",
            "health",
            "holder",
            "identity",
            "index",
            "instance",
            "kept",
            "key",
            "lacks",
            "left",
            "line",
            "loop",
            "mac",
            "method",
            "metric",
        ),
        *(
            "lost",
            "message",
            "object",
            "pages",
            "part",
            "paths",
            "pools",
            "port",
            "property",
            "quarantine",
            "question",
            "reason",
            "removed",
            "resource",
            "restored",
        ),
        *(
            "failed",
            "route",
            "rule",
            "settings",
            "signal",
            "slice",
            "slot",
            "state",
            "threads",
            "tls",
            "version",
            "warning",
            "was",
            "what",
            "writes",
            "xid",
        ),
    }
)
"""Every key of a log line. The first fourteen are those of docs/howto/log.md; use one of them where it fits before you add another."""


def test_log_keys_come_from_one_set() -> None:
    found = {
        f"{name_of(path)}:{call.lineno}: {key}"
        for path in MODULES
        for call in log_calls(path)
        for key in log_keys(call) - LOG_KEYS - {"exc_info"}
    }
    assert found == set()


def test_the_main_log_keys_are_documented() -> None:
    result = (ROOT / "docs" / "howto" / "log.md").read_text("utf-8")
    main = {
        "driver",
        "node",
        "pool",
        "claim",
        "claim_uid",
        "device",
        "share_id",
        "pod",
        "error",
        "path",
        "interface",
        "gpu",
        "duration_ms",
        "retry_in_s",
    }
    assert {key for key in main if f"`{key}`" not in result} == set()
    assert main <= LOG_KEYS


def test_no_comment_is_a_banner_or_code() -> None:
    for path in MODULES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert not re.match(r"\s*#\s*[-=*#]{4,}", line), f"{name_of(path)}:{number} is a banner"


def test_test_names_have_at_most_80_characters() -> None:
    files = [path for folder in ("tests", "examples") for path in (ROOT / folder).rglob("test_*.py") if ".venv" not in path.parts]
    names = {(name_of(path), name) for path in files for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    assert {(path, name) for path, name in names if len(name) > 80} == set()
