"""Parses phases, durations, amounts and changes of the command line. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.client.phases import PHASES
from stromboli.shared import decoding
from stromboli.shared.api.views.what_if import JobIf
from stromboli.shared.formats import durations, units

CHANGES = {
    "priority": "the name of a PriorityClass: priority=high",
    "queue": "the name of a queue: queue=research",
    "gpus": "GPUs of each pod: gpus=4, or of a task: gpus=worker:4",
    "nodes": "nodes that are added: nodes=+2",
    "minAvailable": "pods that must start together: minAvailable=4",
    "replicas": "pods: replicas=8, or of a task: replicas=worker:8",
}
"""Field of ``--if`` -> its meaning and an example."""
_FIELDS = {"priority": "priorityClassName"}

_DAYS = re.compile(r"([0-9]{1,6})d")
_CLOCK = re.compile(
    r"(?=.*-|.*:.*:)(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?", re.ASCII
)
"""Slurm's times with two colons or with days."""

SHORT_PHASES = {
    "pd": ("Pending",),
    "r": ("Running",),
    "s": ("Aborting", "Aborted"),
    "suspended": ("Aborting", "Aborted"),
    "rq": ("Restarting",),
    "cg": ("Completing", "Terminating"),
    "cd": ("Completed",),
    "f": ("Failed",),
    "ca": ("Terminated",),
}
"""Slurm's codes of job states -> phases."""


def phases(text: str) -> frozenset[str]:
    """``Completed,failed`` or ``CD,F`` as phases. Raises ValueError that names the known ones."""
    return frozenset(split_names(text, PHASES, SHORT_PHASES, "phase"))


def split_names(
    text: str, names: Sequence[str], codes: Mapping[str, tuple[str, ...]], what: str
) -> tuple[str, ...]:
    """The names in a list with commas, each once. ``codes``: short word, in lower case -> names.
    ``what``: what a name is called in the error. Raises ValueError that lists the names."""
    known = {name.lower(): (name,) for name in names} | dict(codes)
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [part for part in wanted if part.lower() not in known]:
        raise ValueError(f"{unknown[0]!r} is not a {what}; use one of {', '.join(names)}")
    return tuple(dict.fromkeys(name for part in wanted for name in known[part.lower()]))


def duration_s(text: str) -> float:
    """``30`` seconds, or a duration such as ``30s``, ``1.5h``, ``1h30m`` or ``7d``. Raises
    ValueError."""
    written = text.strip()
    if written.replace(".", "", 1).isdecimal():
        written += "s"
    try:
        found_s = _with_days(written).total_seconds()
    except ValueError:
        found_s = -1.0
    if found_s < 0:
        raise ValueError(f"{text!r} is not a duration; write 30s, 5m, 1h30m or 7d")
    return found_s


def time_limit(text: str) -> timedelta:
    """The time limit of a job: ``90m``, ``1h30m``, ``2d``, or, as in ``sbatch``, minutes without a
    unit, ``H:M:S``, ``D-H``, ``D-H:M`` or ``D-H:M:S``. ``M:S`` is not accepted, because it could be
    hours and minutes. Raises ValueError."""
    written = text.strip()
    parts = _CLOCK.fullmatch(written)
    if parts is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        written = f"{24 * days + hours}h{minutes}m{seconds}s"
    elif written.isascii() and written.isdecimal():
        written += "m"
    elif re.fullmatch(r"\d+:\d+", written):
        raise ValueError(f"{text!r} may be minutes or hours; write {written}:00, 90s or 1h30m")
    try:
        duration = _with_days(written)
    except ValueError:
        forms = "write 90m, 1h30m, 2d, 10:00:00 or 1-12:00:00"
        raise ValueError(f"{text!r} is not a duration; {forms}") from None
    if duration.total_seconds() <= 0:
        raise ValueError(f"{text} is not a positive duration")
    return duration


def _with_days(text: str) -> timedelta:
    """A duration that may begin with days: ``2d12h``. Raises ValueError."""
    match = _DAYS.match(text)
    if match is None:
        return durations.duration(text)
    return durations.duration(f"{24 * int(match[1])}h{text[match.end() :]}")


def amount(text: str) -> str:
    """A quantity that is not negative, unchanged: ``500m``. Raises ValueError."""
    if units.quantity(text) < 0:
        raise ValueError(f"{text} is negative")
    return text


def amounts(text: str) -> dict[str, str]:
    """``cpu=1,memory=1Gi`` as a resource list. Raises ValueError for any other shape."""
    resources: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not name or not equals:
            raise ValueError(f"{part.strip()!r} is not a resource; write cpu=1,memory=1Gi")
        if name in resources:
            raise ValueError(f"{name} is given twice")
        try:
            resources[name] = amount(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return resources


def timestamp(text: str) -> datetime:
    """An RFC 3339 time with its zone. Raises ValueError."""
    try:
        return decoding.instant(text)
    except msgspec.DecodeError:
        expected = "an RFC 3339 time with its zone: 2026-01-31T12:00:00Z"
        raise ValueError(f"{text!r} is not a time; write {expected}") from None


def changes(texts: Sequence[str]) -> JobIf:
    """``["queue=b", "nodes=+2"]`` as a hypothetical change. Raises ValueError."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in CHANGES or not equals or not value:
            raise ValueError(f"{text!r} is not a change; write {'; or '.join(CHANGES.values())}")
        task, of_task, number = value.rpartition(":")
        if name in ("gpus", "replicas"):
            known = fields.setdefault(name, {})
            if task in known:
                raise ValueError(f"{name} of {task or 'the job'} is given twice")
            if of_task and not task:
                raise ValueError(f"{text!r} names no task; {CHANGES[name]}")
            known[task] = _count(text, number, name)
            continue
        if name in fields:
            raise ValueError(f"{name} is given twice")
        if name == "nodes" and not value.startswith("+"):
            raise ValueError(f"{text!r}: nodes can only be added; {CHANGES[name]}")
        is_number = name in ("nodes", "minAvailable")
        fields[name] = _count(text, value.removeprefix("+"), name) if is_number else value
    try:
        return decoding.convert({_FIELDS.get(name, name): it for name, it in fields.items()}, JobIf)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _count(text: str, number: str, name: str) -> int:
    if not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{text!r}: {number!r} is not a number; {CHANGES[name]}")
    return int(number)
