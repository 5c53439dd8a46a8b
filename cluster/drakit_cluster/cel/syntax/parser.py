"""The parser of CEL: text to tree, macros expanded (language definition, "Syntax").

Operators are reduced with an explicit stack, so only brackets and calls nest Python frames. Nesting and chains are limited as in
Kubernetes: 250 levels of any one rule.
"""

from collections.abc import Callable
from typing import Final, NoReturn

from drakit_cluster.cel import errors
from drakit_cluster.cel.syntax import lexer, macros, tree
from drakit_cluster.cel.syntax.lexer import Kind, Token
from drakit_cluster.cel.syntax.tree import Call, Expr, Literal

MAX_DEPTH: Final = 250
_PRECEDENCE: Final = {
    operator: level
    for level, operators in enumerate(("||", "&&", "< <= > >= == != in", "+ -", "* / %"), 1)
    for operator in operators.split()
}
_FUNCTIONS: Final = {operator: f"_{operator}_" for operator in _PRECEDENCE} | {"in": "@in"}
_CHAINED: Final = frozenset({"_&&_", "_||_"})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop", "package"),
        *("namespace", "null", "return", "true", "var", "void", "while"),
    )
)


def parse(source: str) -> Expr:
    """Return the tree of an expression. Raises CompileError with the position of the first syntax error."""
    try:
        return _Parser(lexer.tokens(source)).parse()
    except errors.SourceError as error:
        raise errors.at_places(source, [(error.offset, str(error))]) from error


class _Parser:
    def __init__(self, words: list[Token]) -> None:
        self._words = words
        self._position = 0
        self._depth = 0

    def parse(self) -> Expr:
        result = self._expression()
        if self._next.kind is not Kind.END:
            self._fail()
        return result

    @property
    def _next(self) -> Token:
        return self._words[self._position]

    def _take(self) -> Token:
        self._position += 1
        return self._words[self._position - 1]

    def _at(self, *signs: str) -> bool:
        return self._next.kind is Kind.SIGN and self._next.text in signs

    def _accept(self, sign: str) -> bool:
        accepted = self._at(sign)
        self._position += accepted
        return accepted

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._fail(f", expecting '{sign}'")

    def _fail(self, more: str = "") -> NoReturn:
        raise errors.SourceError(f"Syntax error: mismatched input '{self._next.text}'{more}", self._next.offset)

    def _unexpected(self) -> NoReturn:
        """Raise SourceError for the word that was taken last."""
        self._position -= 1
        self._fail()

    def _deepen(self, levels: int) -> None:
        """Raise SourceError for an expression nested or chained beyond the limit."""
        if levels > MAX_DEPTH:
            raise errors.SourceError(f"Syntax error: expression recursion limit exceeded: {MAX_DEPTH}", self._next.offset)

    def _expression(self, *, conditional: bool = True) -> Expr:
        """Read operands joined by operators, reduced by precedence, left to right; then `?:`, if `conditional` allows it."""
        self._depth += 1
        self._deepen(self._depth)
        operands = [self._operand()]
        pending: list[Token] = []
        chain = 0
        while self._next.text in _PRECEDENCE and self._next.kind in (Kind.SIGN, Kind.NAME):
            operator = self._take()
            chain += operator.text not in ("&&", "||")
            self._deepen(chain + 2)
            while pending and _PRECEDENCE[pending[-1].text] >= _PRECEDENCE[operator.text]:
                _reduce(operands, pending.pop())
            pending.append(operator)
            operands.append(self._operand())
        while pending:
            _reduce(operands, pending.pop())
        if conditional and self._at("?"):
            operands.append(self._conditional(operands.pop()))
        self._depth -= 1
        return operands[0]

    def _conditional(self, condition: Expr) -> Expr:
        offset = self._take().offset
        chosen = self._expression(conditional=False)
        self._expect(":")
        return Call(offset, "_?_:_", (condition, chosen, self._expression()))

    def _operand(self) -> Expr:
        """Read a primary expression with its prefix and suffixes."""
        prefix = self._next
        count = self._prefixes()
        result = self._primary(self._take())
        links = 2
        while (suffix := self._suffix_after(result)) is not None:
            result = suffix(result)
            links += 1
            self._deepen(links)
        return Call(prefix.offset, f"{prefix.text}_", (result,)) if count % 2 else result

    def _prefixes(self) -> int:
        """Return the number of `!` or `-` at the current position. A minus before a number belongs to the number."""
        sign, first = self._next.text, self._position
        if not self._at("!", "-") or (sign == "-" and self._words[first + 1].kind in (Kind.INT, Kind.FLOAT)):
            return 0
        while self._at(sign):
            self._position += 1
        return self._position - first

    def _primary(self, token: Token) -> Expr:
        if token.kind is Kind.SIGN:
            start = {"(": self._group, "[": self._list, "{": self._map, "-": self._negative, ".": self._dotted}.get(token.text)
            return start(token) if start is not None else self._unexpected()
        if token.kind is Kind.NAME:
            return self._call(token) if self._at("(") and token.text not in _RESERVED else self._name(token)
        if token.kind is Kind.END:
            self._unexpected()
        return Literal(token.offset, lexer.text(token) if token.kind is Kind.TEXT else lexer.number(token, negative=False))

    def _suffix_after(self, operand: Expr) -> Callable[[Expr], Expr] | None:
        if self._at("."):
            following = self._words[self._position + 1 : self._position + 3]
            calls = len(following) > 1 and following[0].kind is Kind.NAME and following[1].text == "("
            return self._method if calls else self._select
        if self._at("["):
            return self._index
        return self._struct if self._at("{") and tree.qualified_name(operand) is not None else None

    def _method(self, operand: Expr) -> Expr:
        self._position += 1
        return self._call(self._field(), operand)

    def _select(self, operand: Expr) -> Expr:
        offset = self._take().offset
        optional = self._accept("?")
        name = self._field()
        if not optional:
            return tree.Select(offset, operand, name.text)
        return Call(offset, "_?._", (operand, Literal(name.offset, name.text)))

    def _field(self) -> Token:
        name = self._take()
        if name.kind is not Kind.NAME or name.text in ("in", *_CONSTANTS):
            self._unexpected()
        return name

    def _index(self, operand: Expr) -> Expr:
        offset = self._take().offset
        function = "_[?_]" if self._accept("?") else "_[_]"
        index = self._expression()
        self._expect("]")
        return Call(offset, function, (operand, index))

    def _struct(self, operand: Expr) -> Expr:
        offset = self._take().offset

        def field() -> None:
            self._accept("?")
            if self._take().kind is not Kind.NAME:
                self._unexpected()
            self._expect(":")
            self._expression()

        self._until("}", field)
        return tree.StructExpr(offset, tree.qualified_name(operand) or "")

    def _until(self, closing: str, item: Callable[[], None]) -> None:
        """Read items with commas between them; a trailing comma is allowed."""
        while not self._at(closing):
            item()
            if not self._accept(","):
                break
        self._expect(closing)

    def _call(self, name: Token, target: Expr | None = None) -> Expr:
        offset = self._take().offset
        args: list[Expr] = []
        if not self._at(")"):
            args.append(self._expression())
            while self._accept(","):
                args.append(self._expression())
        self._expect(")")
        expanded = macros.expand(offset, name.text, target, tuple(args))
        return expanded if expanded is not None else Call(offset, name.text, tuple(args), target)

    def _group(self, _: Token) -> Expr:
        inner = self._expression()
        self._expect(")")
        return inner

    def _negative(self, token: Token) -> Expr:
        if self._next.kind not in (Kind.INT, Kind.FLOAT):
            self._unexpected()
        return Literal(token.offset, lexer.number(self._take(), negative=True))

    def _dotted(self, _: Token) -> Expr:
        if self._next.kind is not Kind.NAME:
            self._unexpected()
        name = self._take()
        return self._call(name) if self._at("(") else self._name(name, dot=".")

    def _name(self, token: Token, dot: str = "") -> Expr:
        if token.text in _CONSTANTS:
            return Literal(token.offset, _CONSTANTS[token.text])
        if token.text in _RESERVED:
            raise errors.SourceError(f"Syntax error: reserved identifier: {token.text}", token.offset)
        return tree.Ident(token.offset, dot + token.text)

    def _list(self, token: Token) -> Expr:
        elements: list[Expr] = []
        optional: set[int] = set()

        def element() -> None:
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self._expression())

        self._until("]", element)
        return tree.ListExpr(token.offset, tuple(elements), frozenset(optional))

    def _map(self, token: Token) -> Expr:
        keys: list[Expr] = []
        values: list[Expr] = []
        optional: set[int] = set()

        def entry() -> None:
            if self._accept("?"):
                optional.add(len(keys))
            keys.append(self._expression())
            self._expect(":")
            values.append(self._expression())

        self._until("}", entry)
        return tree.MapExpr(token.offset, tuple(keys), tuple(values), frozenset(optional))


def _reduce(operands: list[Expr], operator: Token) -> None:
    right, left = operands.pop(), operands.pop()
    function = _FUNCTIONS[operator.text]
    args: tuple[Expr, ...] = (left, right)
    if isinstance(left, Call) and left.function == function and function in _CHAINED:
        args = (*left.args, right)
    operands.append(Call(operator.offset, function, args))
