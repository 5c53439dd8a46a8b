"""The parser of CEL: text to tree, macros expanded (language definition, "Syntax").

Operators are reduced with an explicit stack, so only brackets and calls nest Python frames. Nesting and chains are limited as in
Kubernetes: 250 levels of any one rule.
"""

import functools
from collections.abc import Callable
from typing import Final, NoReturn

from drakit_cluster.cel import errors
from drakit_cluster.cel.syntax import lexer, macros, syntax
from drakit_cluster.cel.syntax.lexer import Kind, Token
from drakit_cluster.cel.syntax.syntax import Expr

MAX_DEPTH: Final = 250
_PRECEDENCE: Final = {
    **dict.fromkeys(["||"], 1),
    **dict.fromkeys(["&&"], 2),
    **dict.fromkeys(["<", "<=", ">", ">=", "==", "!=", "in"], 3),
    **dict.fromkeys(["+", "-"], 4),
    **dict.fromkeys(["*", "/", "%"], 5),
}
_FUNCTIONS: Final = {operator: f"_{operator}_" for operator in _PRECEDENCE} | {"in": "@in"}
_CHAINED: Final = frozenset({"_&&_", "_||_"})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)


def parse(source: str) -> Expr:
    """The tree of an expression. Raises CompileError with the place of the first syntax error."""
    try:
        parser = _Parser(lexer.tokens(source))
        return parser.whole()
    except (lexer.LexError, _SyntaxError) as error:
        raise errors.CompileError(located(source, error.offset, f"Syntax error: {error}")) from error
    except macros.MacroError as error:
        raise errors.CompileError(located(source, error.offset, str(error))) from error


def located(source: str, offset: int, message: str) -> str:
    """The message with line and column (from 1) and the line of the source that it is about."""
    before = source[:offset]
    line = before.count("\n") + 1
    column = offset - (before.rfind("\n") + 1)
    shown = source.split("\n")[line - 1]
    return f"ERROR: <input>:{line}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^"


class _SyntaxError(ValueError):
    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class _Parser:
    def __init__(self, words: list[Token]) -> None:
        self._words = words
        self._position = 0
        self._depth = 0
        self._make = macros.Maker()

    def whole(self) -> Expr:
        result = self._expression()
        if self._next.kind is not Kind.END:
            self._fail()
        return result

    @property
    def _next(self) -> Token:
        return self._words[self._position]

    def _take(self) -> Token:
        token = self._words[self._position]
        self._position += 1
        return token

    def _at(self, *signs: str) -> bool:
        token = self._next
        return token.kind is Kind.SIGN and token.text in signs

    def _accept(self, sign: str) -> bool:
        if self._at(sign):
            self._position += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._fail(f", expecting '{sign}'")

    def _fail(self, more: str = "") -> NoReturn:
        raise _SyntaxError(f"mismatched input '{self._next.text}'{more}", self._next.offset)

    def _deepen(self, levels: int) -> None:
        """Refuse what is nested or chained beyond the limit."""
        if levels > MAX_DEPTH:
            raise _SyntaxError(f"expression recursion limit exceeded: {MAX_DEPTH}", self._next.offset)

    def _expression(self, *, conditional: bool = True) -> Expr:
        """Operands joined by operators, reduced by precedence, left to right; then `?:`, where it may stand."""
        self._depth += 1
        self._deepen(self._depth)
        operands = [self._operand()]
        pending: list[Token] = []
        chain = 0
        while (operator := self._operator()) is not None:
            chain += operator.text not in ("&&", "||")
            self._deepen(chain + 2)
            while pending and _PRECEDENCE[pending[-1].text] >= _PRECEDENCE[operator.text]:
                self._reduce(operands, pending.pop())
            pending.append(operator)
            operands.append(self._operand())
        while pending:
            self._reduce(operands, pending.pop())
        if conditional and self._at("?"):
            operands.append(self._conditional(operands.pop()))
        self._depth -= 1
        return operands[0]

    def _conditional(self, condition: Expr) -> Expr:
        offset = self._take().offset
        chosen = self._expression(conditional=False)
        self._expect(":")
        otherwise = self._expression()
        return syntax.Call(**self._make.place(offset), function="_?_:_", args=(condition, chosen, otherwise))

    def _operator(self) -> Token | None:
        token = self._next
        if token.text in _PRECEDENCE and token.kind in (Kind.SIGN, Kind.NAME):
            return self._take()
        return None

    def _reduce(self, operands: list[Expr], operator: Token) -> None:
        right, left = operands.pop(), operands.pop()
        function = _FUNCTIONS[operator.text]
        args: tuple[Expr, ...] = (left, right)
        if function in _CHAINED and isinstance(left, syntax.Call) and left.function == function:
            args = (*left.args, right)
        operands.append(syntax.Call(**self._make.place(operator.offset), function=function, args=args))

    def _operand(self) -> Expr:
        """A primary expression with its prefix and what follows it."""
        prefix = self._next
        count = self._prefixes()
        token = self._take()
        start = self._start_of(token)
        result = start(token)
        links = 2
        while (suffix := self._suffix_after(result)) is not None:
            result = suffix(result)
            links += 1
            self._deepen(links)
        if count % 2 == 0:
            return result
        return syntax.Call(**self._make.place(prefix.offset), function=f"{prefix.text}_", args=(result,))

    def _prefixes(self) -> int:
        """How many `!` or `-` stand here; a minus before a number belongs to the number."""
        sign = self._next.text
        if not self._at("!", "-") or self._signed_number():
            return 0
        first = self._position
        while self._at(sign):
            self._position += 1
        return self._position - first

    def _signed_number(self) -> bool:
        following = self._words[self._position + 1]
        return self._at("-") and following.kind in (Kind.INT, Kind.FLOAT)

    def _start_of(self, token: Token) -> Callable[[Token], Expr]:
        if token.kind is Kind.SIGN:
            return {"(": self._group, "[": self._list, "{": self._map, "-": self._negative, ".": self._dotted}.get(
                token.text, self._unexpected
            )
        if token.kind is Kind.NAME:
            return self._call if self._at("(") and token.text not in _RESERVED else self._name
        return self._unexpected if token.kind is Kind.END else self._constant

    def _suffix_after(self, operand: Expr) -> Callable[[Expr], Expr] | None:
        if self._at("."):
            return functools.partial(self._call, self._method()) if self._calls_member() else self._select
        if self._at("["):
            return self._index
        if self._at("{") and syntax.qualified_name(operand) is not None:
            return self._struct
        return None

    def _calls_member(self) -> bool:
        following = self._words[self._position + 1 : self._position + 3]
        return len(following) > 1 and following[0].kind is Kind.NAME and following[1].text == "("

    def _method(self) -> Token:
        self._position += 1
        return self._field()

    def _select(self, operand: Expr) -> Expr:
        offset = self._take().offset
        optional = self._accept("?")
        name = self._field()
        if not optional:
            return syntax.Select(**self._make.place(offset), operand=operand, field=name.text)
        field = syntax.Literal(**self._make.place(name.offset), value=name.text)
        return syntax.Call(**self._make.place(offset), function="_?._", args=(operand, field))

    def _field(self) -> Token:
        name = self._take()
        if name.kind is not Kind.NAME or name.text in ("in", *_CONSTANTS):
            self._unexpected(name)
        return name

    def _unexpected(self, _: Token) -> NoReturn:
        self._position -= 1
        self._fail()

    def _index(self, operand: Expr) -> Expr:
        offset = self._take().offset
        function = "_[?_]" if self._accept("?") else "_[_]"
        index = self._expression()
        self._expect("]")
        return syntax.Call(**self._make.place(offset), function=function, args=(operand, index))

    def _struct(self, operand: Expr) -> Expr:
        offset = self._take().offset
        while not self._at("}"):
            self._accept("?")
            if self._take().kind is not Kind.NAME:
                self._position -= 1
                self._fail()
            self._expect(":")
            self._expression()
            if not self._accept(","):
                break
        self._expect("}")
        return syntax.StructExpr(**self._make.place(offset), name=syntax.qualified_name(operand) or "")

    def _call(self, name: Token, target: Expr | None = None) -> Expr:
        offset = self._take().offset
        args: list[Expr] = []
        if not self._at(")"):
            args.append(self._expression())
            while self._accept(","):
                args.append(self._expression())
        self._expect(")")
        self._make.offset = offset
        expanded = macros.expand(self._make, name.text, target, tuple(args))
        if expanded is not None:
            return expanded
        return syntax.Call(**self._make.place(offset), function=name.text, args=tuple(args), target=target)

    def _group(self, _: Token) -> Expr:
        inner = self._expression()
        self._expect(")")
        return inner

    def _negative(self, token: Token) -> Expr:
        if self._next.kind not in (Kind.INT, Kind.FLOAT):
            self._unexpected(token)
        return syntax.Literal(**self._make.place(token.offset), value=lexer.number(self._take(), negative=True))

    def _constant(self, token: Token) -> Expr:
        value = lexer.text(token) if token.kind is Kind.TEXT else lexer.number(token, negative=False)
        return syntax.Literal(**self._make.place(token.offset), value=value)

    def _dotted(self, token: Token) -> Expr:
        name = self._next
        if name.kind is not Kind.NAME:
            self._unexpected(token)
        self._position += 1
        return self._call(name) if self._at("(") else self._name(name, dot=".")

    def _name(self, token: Token, dot: str = "") -> Expr:
        if token.text in _CONSTANTS:
            return syntax.Literal(**self._make.place(token.offset), value=_CONSTANTS[token.text])
        if token.text in _RESERVED:
            raise _SyntaxError(f"reserved identifier: {token.text}", token.offset)
        return syntax.Ident(**self._make.place(token.offset), name=dot + token.text)

    def _list(self, token: Token) -> Expr:
        elements: list[Expr] = []
        optional: set[int] = set()
        while not self._at("]"):
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self._expression())
            if not self._accept(","):
                break
        self._expect("]")
        return syntax.ListExpr(**self._make.place(token.offset), elements=tuple(elements), optional=frozenset(optional))

    def _map(self, token: Token) -> Expr:
        entries: list[syntax.Entry] = []
        while not self._at("}"):
            optional = self._accept("?")
            key = self._expression()
            self._expect(":")
            entries.append(syntax.Entry(key=key, value=self._expression(), optional=optional))
            if not self._accept(","):
                break
        self._expect("}")
        return syntax.MapExpr(**self._make.place(token.offset), entries=tuple(entries))
