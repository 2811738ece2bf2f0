"""Validation of CronJobs. Schedules are validated by ``shared.formats.cron``."""

import re
import zoneinfo
from collections.abc import Iterator

import msgspec

from stromboli.shared.api.flow import CronJob
from stromboli.shared.formats import cron
from stromboli.shared.jobspec.validation import naming
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import Violation

MAX_NAME_LENGTH = 52
"""Maximum length of a CronJob's name: its jobs are named ``<name>-<minute>``, which has up to
eleven characters more, and pod names are longer still.
"""
SOME_TIME = "-29345775"
"""A typical suffix of the names of a CronJob's jobs; a schedule with times within a minute has two
more digits."""
_ZONE_PART = re.compile(r"[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}")
SCHEDULE_EXPECTED = 'five fields such as "*/5 * * * *", or one of @hourly, @daily, @every 1h30m'
ZONE_EXPECTED = "use a name of the time zone database such as Europe/Berlin, or leave it out"


def violations(cron_job: CronJob) -> Iterator[Violation]:
    """All violations of a CronJob, except those of its job template."""
    yield from _of_name(cron_job)
    if reason := cron.problem(cron_job.spec.schedule):
        yield Violation(path="spec.schedule", reason=reason, expected=SCHEDULE_EXPECTED)
    if cron_job.spec.time_zone is not None and (reason := zone_problem(cron_job.spec.time_zone)):
        yield Violation(path="spec.timeZone", reason=reason, expected=ZONE_EXPECTED)


def _of_name(cron_job: CronJob) -> Iterator[Violation]:
    name = cron_job.metadata.name
    if not naming.is_subdomain(name):
        yield Violation(
            path="metadata.name",
            reason=f"{name!r} is not a name",
            expected=naming.SUBDOMAIN_EXPECTED,
        )
    if len(name) > MAX_NAME_LENGTH:
        yield Violation(
            path="metadata.name",
            reason=f"has {len(name)} characters, and its jobs' names have eleven more",
            expected=f"at most {MAX_NAME_LENGTH} characters",
        )


def job_of(cron_job: CronJob) -> Document:
    """A job as the CronJob creates it, with a placeholder name if the CronJob's name is invalid."""
    template = cron_job.spec.job_template
    metadata = {
        "name": "job" if any(_of_name(cron_job)) else f"{cron_job.metadata.name}{SOME_TIME}",
        "namespace": cron_job.metadata.namespace,
        "annotations": template.metadata.annotations or {},
    }
    return {"metadata": metadata, "spec": msgspec.json.decode(template.spec) or {}}


def zone_problem(text: str) -> str | None:
    """Why a time zone is invalid; None if it is valid. Reads the time zone database."""
    if not text:
        return "is empty"
    if text.lower() == "local":
        return "Local differs between machines"
    if any(part in (".", "..") or not _ZONE_PART.fullmatch(part) for part in text.split("/")):
        return f"{text!r} is not a known time zone"
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"there is no time zone {text!r}"
    return None
