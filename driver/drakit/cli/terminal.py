"""Safe text for terminals: the output of commands is escaped here, because API objects, files and devices may contain control characters.

Standard output and standard error escape all control characters except line ends and tabs. Consoles of ``output.console`` write to the stream below
them, because colours are control characters too; they escape each piece of text before they add its colours.
"""

import contextlib
import contextvars
import io
import sys
import textwrap
from collections.abc import Iterator
from typing import TextIO

import rich.console
import rich.segment

from drakit.telemetry import escaping

_KEPT = "\n\t"
QUIET: contextvars.ContextVar[bool] = contextvars.ContextVar("QUIET", default=False)
"""Whether the command was given --quiet."""

_EXAMPLE = "  "
_NARROWEST = 20


class EscapedStream(io.TextIOBase):
    """A text stream that escapes what is written to it. It is not a terminal, so libraries write no colours to it.

    rich's own consoles write to ``rich_proxied_file``: the stream below, for the colours of ``--help``, which has only text of drakit.
    """

    def __init__(self, below: TextIO, *, has_colours: bool = False) -> None:
        self.below = below
        self.rich_proxied_file = below if has_colours else self

    def write(self, text: str) -> int:
        self.below.write(escaping.escaped(text, keep=_KEPT))
        return len(text)

    def flush(self) -> None:
        self.below.flush()

    def fileno(self) -> int:
        return self.below.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override] # a plain attribute of the class it is taken from
        """Return the encoding of the stream below."""
        return self.below.encoding


class EscapingHook(rich.console.RenderHook):
    """Escapes the text that a console is about to write."""

    def process_renderables(self, renderables: list[rich.console.ConsoleRenderable]) -> list[rich.console.ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    def __init__(self, renderable: rich.console.ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: rich.console.Console, options: rich.console.ConsoleOptions) -> rich.console.RenderResult:
        for segment in console.render(self._renderable, options):
            text, style, control = segment
            yield segment if control else rich.segment.Segment(escaping.escaped(text, keep=_KEPT), style)


def console(*, width: int | None = None, quiet: bool = False, stderr: bool = False) -> rich.console.Console:
    """Return a console on standard output or standard error whose text is escaped and whose colours are not; a quiet one writes nothing."""
    below = getattr(sys.stderr if stderr else sys.stdout, "below", None)
    made = rich.console.Console(file=below, stderr=stderr, width=width, quiet=quiet, highlight=False, emoji=False)
    made.push_render_hook(EscapingHook())
    return made


def is_terminal(out: rich.console.Console) -> bool:
    """Return whether the console writes to a terminal. Rich also reports a terminal for a pipe with FORCE_COLOR, which only asks for colours."""
    return out.file.isatty()


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is written to standard output and standard error inside the block."""
    with contextlib.ExitStack() as stack:
        # A stream is None if the caller closed it.
        if sys.stdout is not None:
            stack.enter_context(contextlib.redirect_stdout(EscapedStream(sys.stdout, has_colours=True)))
        if sys.stderr is not None:
            stack.enter_context(contextlib.redirect_stderr(EscapedStream(sys.stderr)))
        yield


def wrapped(text: str, width: int | None, *, indent: int = 0, hang: int = 0) -> list[str]:
    """Return one paragraph as lines of at most ``width`` characters, broken between words; None means any width.

    All lines are indented, those after the first by ``hang`` more. A word that is wider than a line is not broken.
    """
    plain = escaping.escaped(text)
    if width is None:
        return [f"{'':{indent}}{plain}".rstrip()]
    wrapper = textwrap.TextWrapper(
        width=max(width, indent + hang + _NARROWEST),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.wrap(plain) or [""]


def complain(program: str, text: str) -> None:
    """Write a message on standard error: one line in a pipe, wrapped between words on a terminal."""
    out = console(stderr=True)
    print("\n".join(wrapped(f"{program}: {text}", out.width if is_terminal(out) else None)), file=sys.stderr)


def flowed(text: str) -> str:
    """Join the lines of every paragraph, except indented ones, which are commands."""
    paragraphs = [paragraph.strip("\n") for paragraph in text.split("\n\n")]
    return "\n\n".join(paragraph if paragraph.startswith(_EXAMPLE) else " ".join(paragraph.split()) for paragraph in paragraphs)
