"""Scripts with ``#STROM`` lines: options in the script, as with Slurm's ``#SBATCH``. Pure.

::

    #!/bin/bash
    #STROM --gpus 8 --time 4h
    #STROM --array 0-99%10     # ten at a time
    python train.py --seed $STROM_ARRAY_INDEX

A ``#STROM`` line is read anywhere before the first command; a later one is an error, because it
would otherwise be ignored silently. The script is stored in the job, as an argument of its
interpreter.
"""

import re
import shlex
from pathlib import PurePath

import msgspec

MARK = "#STROM"
LONGEST_BYTES = 100 * 1024
"""Linux takes 128 KiB in one argument of a program."""
_SHELL = re.compile(r"^(ba|da|a|z|k)?sh$")
_PYTHON = re.compile(r"^python[0-9.]*$")


class ScriptError(ValueError):
    """A script that cannot be run: where, why, and what would be right."""

    def __init__(self, line: int, why: str, next_step: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why
        self.next_step = next_step


class DirectiveLine(msgspec.Struct, frozen=True):
    """The words of one ``#STROM`` line."""

    number: int
    words: tuple[str, ...]


class Script(msgspec.Struct, frozen=True):
    """A script, its options, and the command that starts its interpreter."""

    name: str
    text: str
    interpreter: tuple[str, ...]
    lines: tuple[DirectiveLine, ...]

    def command(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """The container's command. Kubernetes expands ``$(NAME)`` in it and turns ``$$`` into
        ``$``; both are escaped, so that the script is unchanged.
        """
        text = re.sub(r"\$(?=[$(])", "$$", self.text)
        own_name = (self.name,) if _SHELL.match(_program_words(self.interpreter)) else ()
        return (*self.interpreter, "-c", text, *own_name, *arguments)


def is_script(argument: str) -> bool:
    """Whether the argument in place of a job's name is a file: names contain no dot or slash."""
    return "." in argument or "/" in argument


def stem(path: str) -> str:
    """What a job is called after its script."""
    return PurePath(path).stem


def parse(path: str, text: str) -> Script:
    """The script in a file. Raises ScriptError with the line."""
    if len(text.encode()) > LONGEST_BYTES:
        raise ScriptError(
            1,
            f"it has more than {LONGEST_BYTES // 1024} KiB",
            "put it into the image or on a volume, and run: strom job run -- COMMAND",
        )
    if "\0" in text:
        raise ScriptError(1, "it is not text", "name a script; a program goes into the image")
    rows = text.splitlines()
    return Script(
        name=PurePath(path).name,
        text=text,
        interpreter=_interpreter(rows[0] if rows else ""),
        lines=tuple(_lines(rows)),
    )


def _lines(rows: list[str]) -> list[DirectiveLine]:
    found: list[DirectiveLine] = []
    first_command = 0
    for number, row in enumerate(rows, 1):
        is_ours = row == MARK or (row.startswith(MARK) and row[len(MARK)].isspace())
        if is_ours and first_command:
            raise ScriptError(
                number,
                f"{MARK} behind the first command (line {first_command})",
                "move it to the top of the script",
            )
        if is_ours:
            found.append(DirectiveLine(number, _split_words(row.removeprefix(MARK), number)))
        elif row.strip() and not row.lstrip().startswith("#") and not first_command:
            first_command = number
    return found


def _split_words(row: str, number: int) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(row, comments=True))
    except ValueError as error:
        raise ScriptError(number, str(error).lower(), "close the quotation") from None


def _interpreter(first: str) -> tuple[str, ...]:
    """The command after ``#!``; a script without it uses the shell."""
    if not first.startswith("#!"):
        return ("/bin/sh",)
    words = tuple(first.removeprefix("#!").split())
    if words and PurePath(words[0]).name == "env":
        words = tuple(word for word in words[1:] if word != "-S")
    program = _program_words(words)
    if not _SHELL.match(program) and not _PYTHON.match(program):
        raise ScriptError(
            1,
            f"{program or 'nothing'} cannot run a script that is given as an argument",
            "write it for a shell or Python, or run: strom job run -- COMMAND",
        )
    return words


def _program_words(words: tuple[str, ...]) -> str:
    return PurePath(words[0]).name if words else ""
