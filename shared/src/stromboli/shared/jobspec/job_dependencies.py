"""Jobs that wait for others: ``afterok:prepare:clean,afterany:backup``, in the words of Slurm.

It stands in an annotation of the job (``keys.AFTER``), so that definitions which another system
brought take it as they are. All conditions have to hold; jobs are of the same namespace.
"""

import re
from typing import Literal, get_args

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import batch

Condition = Literal["after", "afterany", "afterok", "afternotok"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
FORM = "afterok:JOB[:JOB...], afternotok, afterany (it has ended) or after (it has begun); several \
with commas"


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class JobDependency(msgspec.Struct, frozen=True):
    """A job, and what must have become of it."""

    condition: Condition
    job: str


def parse(text: str) -> tuple[JobDependency, ...]:
    """What is waited for; nothing in an empty text. Raises ValueError, which says what is wrong."""
    waits: dict[JobDependency, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, *names = (piece.strip() for piece in part.split(":"))
        found = next((known for known in CONDITIONS if known == word), None)
        if found is None:
            raise ValueError(f"{word!r} is no condition; write {FORM}")
        if not names or not all(names):
            raise ValueError(f"{part!r} names no job; write {FORM}")
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no job's name; write {FORM}")
        waits |= dict.fromkeys(JobDependency(found, name) for name in names)
    return tuple(waits)


def of(job: batch.Job) -> tuple[JobDependency, ...]:
    """What a job waits for. Raises ValueError as ``parse`` does."""
    return parse(job.metadata.annotation(keys.AFTER) or "")


def job_names(job: batch.Job) -> tuple[str, ...]:
    """Names of jobs that it waits for; none if that cannot be read."""
    try:
        return tuple(dict.fromkeys(wait.job for wait in of(job)))
    except ValueError:
        return ()
