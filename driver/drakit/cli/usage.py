"""Commands whose errors in options and arguments all show how the command is used."""

import typer.core
import typer.exceptions

_LIBRARYS = "Value error, "
"""What pydantic, which typer uses, puts before the reason."""


class Command(typer.core.TyperCommand):
    """A command of typer. Its error for an option without a value shows no usage, and that for an invalid value names an internal class."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # the class of typer's own is private
        """Return the remaining arguments. Raises an error with the command's context and a reason in plain words."""
        try:
            return super().parse_args(ctx, args)
        except typer.exceptions.TyperException as error:
            error.message = error.message.removeprefix(_LIBRARYS)
            if getattr(error, "ctx", ctx) is None:
                error.ctx, error.cmd = ctx, self  # type: ignore[attr-defined] # of the private subclass
            raise
