"""Write the reference pages that are made from the program itself: author.md, cli.md and settings.md.

Run it as ``.venv/bin/python docs/reference/generate.py [FOLDER]``. FOLDER, by default the folder of this script, gets the pages.
``make docs`` runs it. The pages are not committed.
"""  # noqa: INP001 - a script beside the files it writes, not a package

import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import json
import pathlib
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import typer.main

import drakit
from drakit import families, settings, testing
from drakit.inputs import documents
from drakit_nic import options as nic_options

HERE = pathlib.Path(__file__).resolve().parent
NOTE = "<!-- Written by docs/reference/generate.py. -->"

AUTHORS: Mapping[str, Callable[[], Sequence[str]]] = {
    "drakit": lambda: drakit.__all__,
    "drakit.testing": lambda: testing.__all__,
}

CONTRACT: Mapping[str, str] = {
    "The contract, page one: what most drivers need": "drakit.core.driver",
    "The contract, page two: optional protocols": "drakit.core.advanced",
}

# Types of the standard library, of drakit-cluster and of drakit.machines in public signatures.
FOREIGN = frozenset(
    {
        *("abc.ABC", "enum.Enum", "pathlib.Path", "datetime.datetime", "contextlib.AbstractContextManager"),
        *("clusters.LocalCluster", "machines.Choice"),
    }
)

LINE = 80
"""Width from which the flag of an example gets a line of its own."""

_STYLE = re.compile(r"(?<!\\)\[/?[a-z ]+\]")
# In help texts a remark stands in a second column, some spaces after the command.
_REMARK = re.compile(r" {3,}(\S.*)$")


def pages() -> Mapping[str, str]:
    """The generated pages, by file name."""
    author = _joined(_author())
    if hidden := hidden_types(author):
        raise SystemExit(f"public signatures use types that neither drakit nor drakit.testing exports: {', '.join(hidden)}")
    return {"author.md": author, "cli.md": _joined(_cli()), "settings.md": _joined(_settings())}


def _author() -> Iterator[str]:
    yield from ["# Public API for driver authors", "", NOTE, ""]
    yield "`import drakit` has the names for a driver, `from drakit import testing` those for its tests. Start with"
    yield "[the tutorial](../tutorial/write-a-driver.md). [context.md](context.md) describes each call of `DriverContext`,"
    yield "[errors.md](errors.md) the errors."
    for title, module in CONTRACT.items():
        yield from ["", f"## {title}", "", *_doc(ast.get_docstring(_parsed(module)) or "")]
    for package, exported in AUTHORS.items():
        module = importlib.import_module(package)
        public = {name for one in AUTHORS.values() for name in one()}
        yield from ["", f"## {package}", "", *_doc(inspect.getdoc(module) or "")]
        for name in exported():
            yield from _public(package, name, public)


def _public(package: str, name: str, public: Collection[str]) -> Iterator[str]:
    """A section for one public name, read from its source so that every Python writes the same."""
    yield from ["", f"### {name}", ""]
    node = _definition(package, name)
    if isinstance(node, ast.ClassDef):
        yield from _class(node, public)
    elif isinstance(node, ast.FunctionDef):
        overloads = _overloads(package, name) or [node]
        yield from [*_code([_signature(one, public) for one in overloads]), "", *_doc(ast.get_docstring(node) or "")]
    else:
        yield from _code([_bare(ast.unparse(node), public)])


def _class(node: ast.ClassDef, public: Collection[str]) -> Iterator[str]:
    is_value = any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    given = _given(node)
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign | ast.Assign) and not ast.unparse(one).startswith("_")]
    for field in fields:
        if isinstance(field, ast.AnnAssign):
            field.annotation = given.get(ast.unparse(field.target), field.annotation)
    head = f"class {node.name}{f'({_bare(bases, public)})' if bases else ''}"
    yield from _code([head, *(f"    {_default_of(_bare(ast.unparse(one), public))}" for one in fields)])
    yield from ["", *_doc(ast.get_docstring(node) or "")]
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and (not member.name.startswith("_") or (member.name == "__init__" and not is_value)):
            text = " ".join((ast.get_docstring(member) or "").split())
            yield from ["", f"- `{_signature(member, public)}`{f': {_spans(text)}' if text else ''}"]


def _given(node: ast.ClassDef) -> Mapping[str, ast.expr]:
    """The types that a dataclass takes where they are wider than those of its fields, by field: those of an ``__init__`` for type checkers."""
    inits = [one for check in node.body if isinstance(check, ast.If) for one in check.body if isinstance(one, ast.FunctionDef)]
    return {argument.arg: argument.annotation for init in inits for argument in init.args.kwonlyargs if argument.annotation}


def hidden_types(text: str) -> Collection[str]:
    """Return the names in a page of drakit's public API that belong to an internal module, such as ``claims.OpaqueConfig``."""
    code = re.findall(r"```text\n(?:class|def|\w+ =|\w+\()(.*?)```|^- `([^`]*)`", text, flags=re.DOTALL | re.MULTILINE)
    written = "\n".join(part for pair in code for part in pair)
    return sorted({name for name in re.findall(r"\b[a-z_]+\.[A-Z]\w*", written) if name not in FOREIGN})


def _definition(package: str, name: str) -> ast.stmt:
    """Where a public name is defined: in the package itself, or in the module it is imported from."""
    tree = _parsed(package)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _definition(node.module, alias.name)
        if isinstance(node, ast.FunctionDef) and _is_overload(node):
            continue
        named = [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef) else []
        named += [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
        named += [ast.unparse(node.target)] if isinstance(node, ast.AnnAssign) else []
        if name in named:
            return node
    raise KeyError(f"{package}.{name}")


def _is_overload(node: ast.FunctionDef) -> bool:
    return any("overload" in ast.unparse(mark) for mark in node.decorator_list)


def _overloads(package: str, name: str) -> list[ast.FunctionDef]:
    """The overloads of a function that the package itself defines."""
    return [node for node in _parsed(package).body if isinstance(node, ast.FunctionDef) and node.name == name and _is_overload(node)]


def _parsed(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _signature(node: ast.FunctionDef, public: Collection[str]) -> str:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if "property" in marks:
        return _bare(f"{node.name}: {ast.unparse(node.returns) if node.returns else ''}", public)
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("cls, ").removeprefix("self").removeprefix("cls")
    return _bare(f"{'classmethod ' if 'classmethod' in marks else ''}{node.name}({arguments}){returned}", public)


def _bare(text: str, public: Collection[str]) -> str:
    """Code with public names as an author knows them: ``claims.ClaimRef`` is ``ClaimRef``."""
    names = re.sub(r"\b[a-z_]+\.([A-Z]\w+)", lambda match: match[1] if match[1] in public else match[0], text)
    return re.sub(r"'([\w.\[\], |]+)'", lambda match: match[1] if match[1].split("[")[0].split(".")[-1] in public else match[0], names)


def _default_of(text: str) -> str:
    """A field of a dataclass, its default as one would write it."""
    return re.sub(r"dataclasses\.field\(default_factory=[\w.]*?(\w+)\)", r"\1()", text)


def _doc(text: str) -> Iterator[str]:
    """A docstring as Markdown; indented lines are code, and lists of names with two columns are left as they are written."""
    for number, paragraph in enumerate(text.split("\n\n")):
        lines = paragraph.splitlines()
        yield from [""] if number else []
        if all(line.startswith("    ") for line in lines):
            yield from _code(line.removeprefix("    ") for line in lines)
        elif all(line.startswith(("``", " ")) for line in lines) and len(lines) > 1:
            yield from _code(line.replace("``", "") for line in lines)
        else:
            yield from (_spans(line) for line in lines)


def _spans(text: str) -> str:
    return text.replace("``", "`")


def _code(lines: Iterable[str]) -> Iterator[str]:
    yield from ["```text", *lines, "```"]


def _cli() -> Iterator[str]:
    app = importlib.import_module("drakit.cli.app").app
    yield from ["# Command line", "", NOTE, "", *_prose(typer.main.get_command(app).help or ""), ""]
    yield "An error that a person can fix is one line on standard error. [Exit status](exit-status.md) has the statuses of all commands."
    yield ""
    yield "For scripts, `--quiet` leaves only the result of a command, and its exit status: no progress, explanation or remark."
    yield "Errors are still written to standard error. `cluster` and `demo --keep` write the path of the kubeconfig, `dashboard` and"
    yield "`demo --web` the address of the page."
    yield "`run`, `publish` and `webhook` write nothing but logs, so they have `--log-level` instead."
    yield ""
    yield "Colours are for terminals only. `NO_COLOR=1` turns them off, `FORCE_COLOR=1` turns them on in a pipe too."
    yield from _commands(typer.main.get_command(app), "drakit")


def _commands(group: typing.Any, path: str) -> Iterator[str]:
    """A section for each command of a group, groups within it included."""
    for name, command in group.commands.items():
        here = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from ["", f"## {here}", "", *_prose(command.help or "")]
            yield from _commands(command, here)
        elif not command.hidden:
            yield from _command(command, here)


def _command(command: typing.Any, path: str) -> Iterator[str]:
    hints = typing.get_type_hints(inspect.unwrap(command.callback))
    arguments = [item for item in command.params if not item.opts[0].startswith("-")]
    options = [item for item in command.params if item.opts[0].startswith("-") and not item.hidden]
    usage = " ".join([path, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    yield from ["", f"## {path}", "", *_fenced([usage]), "", *_prose(command.help or "")]
    if arguments:
        meanings = [(f"`{item.metavar or item.name.upper()}`", _plain(item.help or "")) for item in arguments]
        yield from ["", *_table(("Argument", "Meaning"), meanings)]
    if options:
        yield from ["", *_table(("Option", "Value", "Default", "Meaning"), [_option(item, hints.get(item.name)) for item in options])]


def _argument(item: typing.Any) -> str:
    """An argument as a usage line has it."""
    name = f"{item.metavar or item.name.upper()}{'...' if item.nargs == -1 else ''}"
    return name if item.required else f"[{name}]"


def _option(item: typing.Any, hint: object) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (*item.opts, *item.secondary_opts))
    default = item.default.value if isinstance(item.default, enum.Enum) else item.default
    shown = "" if default is None or default is False or default == () else f"`{default}`"
    return (names, _value(item, hint), shown, _plain(item.help or ""))


def _value(item: typing.Any, hint: object) -> str:
    """What an option takes: its choices, its own word for it, or its type."""
    if item.is_flag:
        return ""
    choices = _choices(hint)
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    return f"`{item.metavar or _kind(hint).upper()}`"


def _choices(hint: object) -> Sequence[str]:
    """The values a Literal or an enum allows, also inside Optional or a list."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    if typing.get_origin(hint) is typing.Literal:
        return [str(value) for value in typing.get_args(hint)]
    return [choice for part in typing.get_args(hint) for choice in _choices(part)]


def _kind(hint: object) -> str:
    """A type in words: the type itself, or that in Optional or a list."""
    inner = [part for part in typing.get_args(hint) if part not in {types.NoneType, Ellipsis}]
    if inner:
        return _kind(inner[0])
    return {"str": "text", "int": "number", "float": "number", "bool": "true or false"}.get(
        getattr(hint, "__name__", ""), getattr(hint, "__name__", str(hint)).lower()
    )


def _prose(help_text: str) -> Iterator[str]:
    """Help text as Markdown: bold words are headings of examples, and indented lines are commands."""
    commands: list[str] = []
    paragraphs = inspect.cleandoc(help_text).split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith("  "):
            commands += [_plain(_REMARK.sub(r"  # \1", line.strip())) for line in paragraph.splitlines()]
        if commands and (number + 1 == len(paragraphs) or not paragraphs[number + 1].startswith("  ")):
            yield from [*([""] if number else []), *_fenced(commands)]
            commands = []
        elif not paragraph.startswith("  "):
            yield from [*([""] if number else []), _plain(" ".join(paragraph.split()))]


def _plain(text: str) -> str:
    """Text without the marks that colour it on a terminal."""
    return _STYLE.sub("", text).replace("\\[", "[")


def _settings() -> Iterator[str]:
    yield from ["# Settings", "", NOTE, ""]
    yield "A setting can come from four sources. Later ones win: the default, a YAML file (`--config FILE`), the environment, and flags."
    yield "Every setting has the flag `--set KEY=VALUE`, with the value as in YAML; some have an option of their own. A key or a `DRAKIT_`"
    yield "variable that is not on this page is an error."
    yield ""
    yield "Each group has its settings as they stand in the file, then as environment variables with the flag behind. The values are examples,"
    yield "all different from the default. [settings.yaml](settings.yaml) has them in one file; tests read every one of them from each source."
    known, examples = list(settings.known_keys()), (HERE / "settings.yaml").read_text("utf-8")
    values, options = documents.load(examples), own_options()
    for group in dict.fromkeys(key.partition(".")[0] for key, _ in known):
        model = _model(group)
        keys = [key for key, _ in known if key.startswith(f"{group}.")]
        yield from ["", f"## {group}", "", model.__doc__ or "", ""]
        meanings = _meanings(model)
        rows = [(f"`{key}`", _takes(model, key), _default(value), meanings[key.partition(".")[2]]) for key, value in known if key in keys]
        yield from _table(("Key", "Takes", "Default", "Meaning"), rows)
        written = re.search(rf"^{group}:\n(?:[ ].*\n)+", examples, re.MULTILINE)
        yield from ["", "```yaml", *(written[0].splitlines() if written else ()), "```", "", "```sh"]
        yield from (_sources(key, values[group][key.partition(".")[2]], options) for key in keys)
        yield "```"
    yield from ["", "## Entries of nic.rules", "", nic_options.NicRule.__doc__ or "", ""]
    meanings = _meanings(nic_options.NicRule)
    yield from _table(("Key", "Meaning"), ((f"`{name}`", meanings[name]) for name in _fields(nic_options.NicRule)))


def _sources(key: str, value: object, options: Mapping[str, str]) -> str:
    """A setting as a variable of the environment, and as a flag."""
    text = shlex.quote(value if isinstance(value, str) else json.dumps(value))
    variable, flag = f"{_variable(key)}={text}", f"# {options.get(key, '--set')} {text if key in options else f'{key}={text}'}"
    return f"{variable:<44}  {flag}" if len(variable) < LINE else f"{variable}\n{flag}"


def own_options() -> Mapping[str, str]:
    """The option that stands for a setting, by key, read from the calls that hand a command's parameters to ``settings.load``."""
    group = typer.main.get_command(importlib.import_module("drakit.cli.app").app)
    found: dict[str, str] = {}
    for command in getattr(group, "commands", {}).values():
        names = {item.name: max(item.opts, key=len) for item in command.params} | {"node": "--node"}
        module = inspect.getmodule(inspect.unwrap(command.callback))
        trees = [ast.parse(inspect.getsource(one)) for one in (module, importlib.import_module("drakit.cli.options")) if one]
        pairs = [
            pair
            for tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.Dict)
            for pair in zip(node.keys, node.values, strict=True)
        ]
        for key, value in pairs:
            if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and value.id in names and "." in str(key.value):
                found.setdefault(str(key.value), names[value.id])
    return found


def _model(group: str) -> typing.Any:
    """Return the class of a group as its author wrote it."""
    own = {family.name: family.options for family in families.installed()}
    return own.get(group) or settings.Settings.model_fields[group].annotation


def _fields(model: typing.Any) -> Mapping[str, typing.Any]:
    """Return the annotation of each field of a group."""
    if dataclasses.is_dataclass(model):
        return {name: _unchecked(kind) for name, kind in typing.get_type_hints(model, include_extras=True).items()}
    return {name: field.annotation for name, field in model.model_fields.items()}


def _unchecked(kind: typing.Any) -> typing.Any:
    """Return an annotation without its checks."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def _meanings(model: typing.Any) -> Mapping[str, str]:
    """Return the string below each field of a group, by the field's name."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(model)).body if isinstance(node, ast.ClassDef))
    return {
        ast.unparse(field.target): inspect.cleandoc(below.value.value)
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _takes(model: typing.Any, key: str) -> str:
    annotation = _fields(model)[key.partition(".")[2]]
    choices = _choices(annotation)
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    kind = _kind(annotation)
    if kind == nic_options.NicRule.__name__.lower():
        return "list of entries as below"
    return f"list of {kind}" if typing.get_origin(annotation) is tuple else kind


def _default(value: object) -> str:
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`[{', '.join(map(str, value))}]`" if isinstance(value, tuple) else f"`{value}`"


def _variable(key: str) -> str:
    return settings.ENV_PREFIX + key.replace(".", settings.ENV_NESTING).upper()


def _fenced(lines: Iterable[str]) -> Iterator[str]:
    yield from ["```sh", *lines, "```"]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in [header, ["---"] * len(header), *rows]:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def main(folder: pathlib.Path) -> None:
    """Write the pages to a folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if sys.argv[1:] else HERE)
