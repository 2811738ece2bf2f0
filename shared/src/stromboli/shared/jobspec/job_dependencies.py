"""Dependencies between jobs, in Slurm's syntax: ``afterok:prepare:clean,afterany:backup``.

They are an annotation of the job (``keys.AFTER``), so that CRDs installed by another system accept
them. All conditions must hold; the jobs are in the same namespace.
"""

import re
from typing import Literal, get_args

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import batch

Condition = Literal["after", "afterany", "afterok", "afternotok"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
FORM = "CONDITION:JOB[:JOB...], separated by commas; CONDITION is afterok, afternotok, afterany \
(the job has ended) or after (it has begun)"


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class JobDependency(msgspec.Struct, frozen=True):
    """A job to wait for, and the condition that it must meet."""

    condition: Condition
    job: str


def parse(text: str) -> tuple[JobDependency, ...]:
    """The dependencies in a text; empty for an empty text. Raises ValueError, which names the
    error."""
    waits: dict[JobDependency, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, *names = (piece.strip() for piece in part.split(":"))
        known_condition = next((known for known in CONDITIONS if known == word), None)
        if known_condition is None:
            raise ValueError(f"{word!r} is not a condition; write {FORM}")
        if not names or not all(names):
            raise ValueError(f"{part!r} names no job; write {FORM}")
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid job name; write {FORM}")
        waits |= dict.fromkeys(JobDependency(known_condition, name) for name in names)
    return tuple(waits)


def of(job: batch.Job) -> tuple[JobDependency, ...]:
    """The dependencies of a job. Raises ValueError as ``parse`` does."""
    return parse(job.metadata.annotation(keys.AFTER) or "")


def job_names(job: batch.Job) -> tuple[str, ...]:
    """Names of the jobs that a job depends on; empty if the annotation is invalid."""
    try:
        return tuple(dict.fromkeys(wait.job for wait in of(job)))
    except ValueError:
        return ()
