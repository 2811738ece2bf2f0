"""``JOB[3,7-9]``: a job and some of its indexes. Pure."""

import re

import typer

from stromboli.shared.formats import indexes

_FORM = re.compile(r"(?P<job>[^\[\]]+)\[(?P<indexes>[^\[\]]*)\]")


def names_indexes(text: str) -> bool:
    """Whether the text has the form of a job and some of its indexes."""
    return _FORM.fullmatch(text) is not None


def split(text: str, index: int | None = None) -> tuple[str, indexes.Indexes | None]:
    """The job and the selected indexes, None for all of them; ``index`` is the value of
    ``--index``. Raises BadParameter for invalid indexes, for a bracket without the other one, and
    for both forms together."""
    match = _FORM.fullmatch(text)
    if match is None and ("[" in text or "]" in text):
        raise typer.BadParameter(
            f"{text!r} is neither a job nor JOB[INDEXES], such as 'train[3,7-9]'", param_hint="JOB"
        )
    if match is None:
        return text, None if index is None else indexes.of([index])
    if index is not None:
        raise typer.BadParameter(f"{text} names indexes, too", param_hint="--index")
    if problem := indexes.problem(match["indexes"]):
        raise typer.BadParameter(f"{problem}; write {indexes.FORM}", param_hint="JOB")
    return match["job"], indexes.parse(match["indexes"])
