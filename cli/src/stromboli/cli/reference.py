"""Generates the command-line reference, docs/cli.md, from the commands.

    python -m stromboli.cli.reference [--check]

With ``--check`` it writes nothing and exits with 1 if the file is out of date.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from stromboli.cli import installed_commands, lazy, main
from stromboli.cli.render import output

FILE = Path(__file__).parents[4] / "docs" / "cli.md"
OURS = "stromboli"
"""Prefix of the names of distributions whose commands the reference includes."""
_HEAD = """# The command line

Written from the code by `python -m stromboli.cli.reference`. [cli/README.md](../cli/README.md)
describes the choice of the server, the exit codes and scripts with `#STROM` lines.

These options precede the command: `--token-file FILE` (the user's token; else `STROM_TOKEN`,
`STROM_TOKEN_FILE`) and `--ca-file FILE` (the server's CA; else `STROM_CA_FILE`): see
[accounts](accounts.md).
"""


def render_reference() -> str:
    """The content of docs/cli.md."""
    root = typer.main.get_command(main.app)
    context = typer.Context(root, info_name="strom")
    entries = list(_commands(root, context))
    lines = [_HEAD, "| command | what it does |", "|---|---|"]
    lines += [f"| [`{path}`](#{_anchor(path)}) | {_first(one)} |" for path, one, _ in entries]
    for path, one, inner in entries:
        lines += ["", *_section(path, one, inner)]
    return "\n".join(lines) + "\n"


def _commands(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Path, command and context of every command that is not a group, in the order of
    ``--help``."""
    distributions = {entry.name: entry.dist for entry in installed_commands.entry_points()}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, installed_commands.InstalledCommand):
            distribution = distributions[name]
            if distribution is None or not distribution.name.startswith(OURS):
                continue
        if isinstance(command, lazy.LazyCommand):
            command = command.load(None)
        inner = typer.Context(command, info_name=name, parent=context)
        if isinstance(command, TyperGroup):
            yield from _commands(command, inner)
        else:
            yield inner.command_path, command, inner


def _section(path: str, command: Any, context: Any) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"## {path}"
    yield ""
    yield f"`{path} {pieces}`".replace("  ", " ")
    yield ""
    group = context.parent.command
    aliases = group.aliases_of(command.name) if isinstance(group, lazy.Group) else []
    if aliases:
        yield f"Also: {', '.join(f'`{context.parent.command_path} {name}`' for name in aliases)}."
        yield ""
    yield from _paragraphs(command.help or "")
    rows = [
        record
        for parameter in command.get_params(context)
        if parameter.name != "help" and (record := parameter.get_help_record(context)) is not None
    ]
    if rows:
        yield ""
        yield "| | |"
        yield "|---|---|"
        for names, text in rows:
            yield f"| `{_cell(names)}` | {_cell(text)} |"


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a docstring; a paragraph that is a command becomes a code block."""
    parts = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    for place, part in enumerate(parts):
        if place:
            yield ""
        yield f"    {part}" if part.startswith("strom ") else part


def _first(command: Any) -> str:
    return _cell(" ".join((command.help or "").strip().split("\n\n")[0].split()))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


if __name__ == "__main__":
    text = render_reference()
    if sys.argv[1:] == ["--check"]:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != text:
            sys.exit("docs/cli.md is not up to date; run python -m stromboli.cli.reference")
    else:
        FILE.write_text(text, encoding="utf-8")
        output.show_lines([f"wrote {FILE}"])
