"""Commands that take another command after ``--``: ``strom job exec train -- nvidia-smi``."""

import shlex

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
            return super().parse_args(ctx, list(before))  # the parser empties the list
        except typer.TyperException as error:
            words = "" if "--" in args else self._command_words(ctx, args, error)
            if words:
                ctx.fail(f"the command comes after two dashes: -- {words}")
            raise

    def _command_words(
        self, ctx: typer.Context, args: list[str], error: typer.TyperException
    ) -> str:
        """The command that was written without ``--``: arguments that this command does not take,
        with the options among them. Empty if there is none."""
        if words := usage_errors.extra_arguments(error.message):
            return words
        option = getattr(error, "option_name", None) or " "
        at = next((at for at, it in enumerate(args) if it.startswith(option)), 0)
        try:
            super().parse_args(ctx, args[:at])
        except typer.TyperException as before:
            if words := usage_errors.extra_arguments(before.message):
                return f"{words} {shlex.join(args[at:])}"
        return ""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Show the trailing command in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARG]...]"]


def trailing_arguments(ctx: typer.Context) -> tuple[str, ...]:
    """The arguments after ``--`` of a ``CommandWithTrailingArguments``."""
    words: tuple[str, ...] = ctx.meta[COMMAND]
    return words
