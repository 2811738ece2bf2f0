"""Scripts with ``#STROM`` lines: options in the script, as with Slurm's ``#SBATCH``. Pure.

::

    #!/bin/bash
    #STROM --gpus 8 --time 4h
    #STROM --array 0-99%10     # ten at a time
    python train.py --seed $STROM_ARRAY_INDEX

A ``#STROM`` line is read anywhere before the first command; a later one is an error, because it
would otherwise be ignored silently. ``#SBATCH`` lines are translated (``sbatch``); a later one is
ignored, as by ``sbatch``, with a warning. The script is stored in the job, as an argument of its
interpreter.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from stromboli.cli.job_specs import sbatch

MARK = "#STROM"
SLURM_MARK = "#SBATCH"
LONGEST_BYTES = 100 * 1024
"""Maximum size of a script: Linux limits an argument of a program to 128 KiB."""
_SHELL = re.compile(r"^(ba|da|a|z|k)?sh$")
_MANIFESTS = (".yaml", ".yml", ".json")
_PYTHON = re.compile(r"^python[0-9.]*$")


class ScriptError(ValueError):
    """A script cannot be run. Contains the line, the reason and the correction."""

    def __init__(self, line: int, why: str, next_step: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why
        self.next_step = next_step


class DirectiveLine(msgspec.Struct, frozen=True):
    """The options in one ``#STROM`` or ``#SBATCH`` line."""

    number: int
    words: tuple[str, ...]


class Script(msgspec.Struct, frozen=True):
    """A script, its options, and the command that starts its interpreter. ``title``: the stem of
    its jobs' names. ``slurm_name``: the name of its jobs in Slurm; empty without ``#SBATCH`` lines.
    ``warnings``: differences from ``sbatch``, with line numbers.
    """

    name: str
    text: str
    interpreter: tuple[str, ...]
    lines: tuple[DirectiveLine, ...]
    title: str = ""
    warnings: tuple[tuple[int, str], ...] = ()
    slurm_name: str = ""

    @property
    def is_of_slurm(self) -> bool:
        """Whether the script has ``#SBATCH`` lines, so that it may use variables of Slurm."""
        return bool(self.slurm_name)

    def command(self, arguments: tuple[str, ...], *, array: str = "") -> tuple[str, ...]:
        """The container's command, with the script unchanged. ``array``: the name of an array
        job."""
        text = sbatch.escaped(self.text)
        own_name = (self.name,) if _SHELL.match(_program_words(self.interpreter)) else ()
        index = ("env", *sbatch.array_variables(array)) if self.is_of_slurm and array else ()
        return (*index, *self.interpreter, "-c", text, *own_name, *arguments)


def is_script(argument: str) -> bool:
    """Whether the argument in place of a job's name is a file: names contain no dot or slash."""
    return "." in argument or "/" in argument


def stem(path: str) -> str:
    """The stem of a job's name, from the file name of its script."""
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
        raise ScriptError(
            1, "the file is binary", "specify a text file; a program belongs in the image"
        )
    rows = text.splitlines()
    first = next(
        (n for n, row in enumerate(rows, 1) if row.strip() and not row.lstrip().startswith("#")),
        len(rows) + 1,
    )
    own = tuple(_lines(rows, first))
    translated = dict(_slurm_lines(rows, first))
    titles = [each.title for each in translated.values() if each.title]
    warnings = [(n, text) for n, each in translated.items() for text in each.warnings]
    if translated:
        warnings += [(n, f"{name} is not set") for n, name in sbatch.unset_variables(text)]
    warnings += [(n, sbatch.SRUN) for n in sbatch.srun_lines(text)]
    file_name = PurePath(path).name
    return Script(
        name=file_name,
        text=text,
        interpreter=_interpreter(file_name, rows[0] if rows else ""),
        lines=(*(DirectiveLine(n, it.words) for n, it in translated.items() if it.words), *own),
        title=titles[-1] if titles else stem(path),
        warnings=tuple(warnings),
        slurm_name=(titles[-1] if titles else file_name) if translated else "",
    )


def _has_mark(row: str, mark: str) -> bool:
    return row == mark or (row.startswith(mark) and row[len(mark)].isspace())


def _lines(rows: list[str], first_command: int) -> Iterator[DirectiveLine]:
    for number, row in enumerate(rows, 1):
        if not _has_mark(row, MARK):
            continue
        if number > first_command:
            raise ScriptError(
                number,
                f"{MARK} after the first command (line {first_command})",
                "move it to the top of the script",
            )
        yield DirectiveLine(number, _split_words(row.removeprefix(MARK), number))


def _slurm_lines(rows: list[str], first_command: int) -> Iterator[tuple[int, sbatch.Translation]]:
    for number, row in enumerate(rows, 1):
        if not _has_mark(row, SLURM_MARK):
            continue
        if number > first_command:
            why = f"{SLURM_MARK} after the first command (line {first_command}) is ignored"
            yield number, sbatch.Translation(warnings=(why,))
            continue
        words = _split_words(row.removeprefix(SLURM_MARK), number)
        try:
            yield number, sbatch.translate(words)
        except ValueError as error:
            raise ScriptError(number, str(error), "correct it, or write a #STROM line") from None


def _split_words(row: str, number: int) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(row, comments=True))
    except ValueError as error:
        raise ScriptError(number, str(error).lower(), "close the quotation") from None


def _interpreter(name: str, first: str) -> tuple[str, ...]:
    """The command after ``#!``. Raises ScriptError without it, as ``sbatch`` does: a shell would
    run a program in Python line by line."""
    if not first.startswith("#!"):
        if PurePath(name).suffix in _MANIFESTS:
            raise ScriptError(
                1,
                "this is a manifest: a script begins with #! and an interpreter",
                f"submit the Job in it: strom job run -f {name}",
            )
        python = PurePath(name).suffix == ".py"
        program = "/usr/bin/env python3" if python else "/bin/sh"
        run = f"python {name}" if python else f"sh {name}"
        raise ScriptError(
            1,
            "this is not a batch script: it does not begin with #! and an interpreter",
            f"begin it with #!{program}, or run a file of the image: strom job run -- {run}",
        )
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
