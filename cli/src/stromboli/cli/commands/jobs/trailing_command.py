"""Commands that take another command after ``--``: ``strom job exec train -- nvidia-smi``."""

import typer
from typer.core import TyperCommand

from stromboli.cli import usage_errors

COMMAND = "stromboli.cli.command"
"""The key of the arguments after ``--`` in ``Context.meta``."""


class CommandWithTrailingArguments(TyperCommand):
    """A command that takes another one after ``--``, whose arguments are not parsed."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Store the arguments after ``--`` and parse the others."""
        before, after = args, list[str]()
        if "--" in args:
            at = args.index("--")
            before, after = args[:at], args[at + 1 :]
        ctx.meta[COMMAND] = tuple(after)
        try:
            return super().parse_args(ctx, before)
        except typer.TyperException as error:
            words = "" if after else usage_errors.extra_arguments(error.message)
            if words:
                error.message = f"the command comes after two dashes: -- {words}"
            raise

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Show the trailing command in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARG]...]"]


def trailing_arguments(ctx: typer.Context) -> tuple[str, ...]:
    """The arguments after ``--`` of a ``CommandWithTrailingArguments``."""
    words: tuple[str, ...] = ctx.meta[COMMAND]
    return words
