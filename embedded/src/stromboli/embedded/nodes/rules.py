"""Run time and exit code of a simulated pod, from its annotations or a rule file.

The file keeps such values out of manifests that also run elsewhere::

    rules:
    - match: {job: train-*, task: worker, image: busybox}
      runSeconds: 2
      exitCode: 0
    default: {runSeconds: 1}

The first rule whose patterns (shell style) all match applies.
"""

import fnmatch
from datetime import timedelta
from pathlib import Path

import msgspec

from stromboli.shared import decoding, keys
from stromboli.shared.api import core
from stromboli.shared.api.meta import Part
from stromboli.shared.formats import documents


class Match(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Patterns over the pod's job, task and first image; an empty pattern matches everything."""

    job: str = "*"
    task: str = "*"
    image: str = "*"


class Outcome(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run time and exit code of a pod. ``starts_with``: the number of the job's pods that must be
    running before its run time begins.
    """

    run_seconds: float = 1.0
    exit_code: int = 0
    starts_with: int = 0


_SERVER = Outcome(run_seconds=timedelta(days=365).total_seconds())


class Rule(Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An outcome for matching pods."""

    match: Match = Match()


class Rules(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule file."""

    rules: tuple[Rule, ...] = ()
    default: Outcome = Outcome()


def read_rules(path: Path) -> Rules:
    """Read a rule file. Raises ValueError with file, line and reason."""
    try:
        parsed_documents = [document for document, _ in documents.read(path.read_text())]
        return decoding.convert(parsed_documents[0] if parsed_documents else {}, Rules)
    except documents.DocumentError as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise ValueError(f"{place}: {error.problem}") from None
    except (OSError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from None


def outcome(pod: core.Pod, rules: Rules) -> Outcome:
    """Return the outcome of a pod. A non-numeric annotation counts as absent. A debug tool runs
    until it is deleted, unless a rule matches it."""
    meta = pod.metadata
    image = pod.spec.containers[0].image if pod.spec.containers else ""
    defaults = rules.default if meta.label(keys.TOOL) is None else _SERVER
    for rule in rules.rules:
        if (
            fnmatch.fnmatchcase(meta.annotation(keys.JOB_NAME) or "", rule.match.job)
            and fnmatch.fnmatchcase(meta.annotation(keys.TASK_SPEC) or "", rule.match.task)
            and fnmatch.fnmatchcase(image, rule.match.image)
        ):
            defaults = rule
            break
    return Outcome(
        run_seconds=max(_number(meta.annotation(keys.RUN_SECONDS), defaults.run_seconds), 0.0),
        exit_code=int(_number(meta.annotation(keys.EXIT_CODE), defaults.exit_code)),
        starts_with=int(_number(meta.annotation(keys.STARTS_WITH), defaults.starts_with)),
    )


def _number(text: str | None, otherwise: float) -> float:
    try:
        return float(text) if text is not None else otherwise
    except ValueError:
        return otherwise
