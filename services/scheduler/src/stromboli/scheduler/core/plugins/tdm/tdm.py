"""The plugin ``tdm``: time division multiplexing of nodes between preemptable and other pods.

Nodes of a *revocable zone* take preemptable pods during the zone's hours only. Outside the hours
these pods are evicted, a few of each job at a time. On other nodes, pods that are not preemptable
may preempt them.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import numpy as np

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.tdm import revocable_zones
from stromboli.shared import keys

NAME = "tdm"
ELIGIBLE_POINTS = 100
PERIOD = timedelta(minutes=1)
NOT_ALLOWED = "node(s) in a revocable zone, which takes only revocable pods"


class Plugin:
    """Filters and scores nodes, orders jobs and chooses victims by time of day. Stores when it last
    chose victims."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._complaints: list[str] = []
        self._zones = revocable_zones.zones(options.arguments, self._complaints)
        self._period = self._read_period()
        self._last = ""

    def open(self, ssn: session.Session) -> None:
        """Assign nodes to zones, and register."""
        self._session = ssn
        self._last = ssn.cluster.memory.get(NAME, "")
        ssn.complaints.extend([*self._arguments.complaints, *self._complaints])
        labels = [node.metadata.label(keys.REVOCABLE_ZONE) or "" for node in ssn.nodes.objects]
        self._zone_of = np.array(labels, dtype=object)
        self._active = {name for name, zone in self._zones.items() if zone.is_active(ssn.now)}
        self._found = sorted(set(labels) - {""})
        for name in self._zones.keys() & set(self._found):
            ssn.request_session_at(self._zones[name].changes_at(ssn.now))
        ssn.add_class_key(_zone_of)
        ssn.add_predicate(self._check, extension_points.Scope.STATIC)
        ssn.add_node_order(self._score, extension_points.Scope.STATIC)
        ssn.add_preemptable(self._choose_preemptable)
        ssn.add_victim_tasks(self._victims_outside_hours)
        ssn.add_job_order(_compare_jobs)
        ssn.add_job_pipelined(_vote_pipelined)
        ssn.add_job_starving(_is_starving)

    def close(self, ssn: session.Session) -> None:
        """Store when victims were last chosen."""
        if self._last:
            ssn.remember[NAME] = self._last

    def _read_period(self) -> timedelta:
        text = self._arguments.text("tdm.evict.period", "1m")
        try:
            return durations.duration(text)
        except ValueError as error:
            self._arguments.complain("tdm.evict.period", str(error))
            return PERIOD

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        zone_of = self._zone_of[view.rows]
        checks = [
            extension_points.Check(
                reason, extension_points.Code.UNRESOLVABLE, zone_of != name, is_lasting=True
            )
            for name in self._found
            if (reason := self._closed(name))
        ]
        if not task.revocable_zone:
            checks.append(
                extension_points.Check(
                    NOT_ALLOWED,
                    extension_points.Code.UNRESOLVABLE,
                    zone_of == "",
                    is_lasting=True,
                )
            )
        return checks

    def _closed(self, name: str) -> str:
        """Return why the zone takes no tasks now; empty if it is open."""
        if name not in self._zones:
            return f"node(s) in revocable zone {name}, which has no configured hours"
        if name not in self._active:
            return f"node(s) in revocable zone {name} outside its hours {self._zones[name].text}"
        return ""

    def _score(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        if not task.revocable_zone:
            return None
        is_open = np.isin(self._zone_of[view.rows], sorted(self._active))
        scores: extension_points.Scores = is_open.astype(np.int64) * (
            ELIGIBLE_POINTS * extension_points.SCORE_UNIT
        )
        return scores

    def _choose_preemptable(
        self, preemptor: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Return preemptable tasks on nodes outside zones, for preemptors that are not
        preemptable."""
        if preemptor.preemptable or preemptor.revocable_zone:
            return extension_points.Victims([], extension_points.REJECT)
        return extension_points.Victims(self._within_budgets(candidates, {""}))

    def _victims_outside_hours(self, tasks: Sequence[entities.Task]) -> Sequence[entities.Task]:
        """Return tasks that remain in a zone outside its hours, once per period."""
        victims = self._within_budgets(tasks, self._zones.keys() - self._active)
        if not victims:
            return []
        now, last = self._session.now, self._last_time()
        if last is not None and not self._session.reached(last + self._period):
            return []
        self._last = now.isoformat()
        self._session.request_session_at(now + self._period)  # tasks beyond the budgets may remain
        return victims

    def _last_time(self) -> datetime | None:
        """Return when victims were last chosen. A time in the future counts as now: the clock was
        set back since then."""
        return min(datetime.fromisoformat(self._last), self._session.now) if self._last else None

    def _within_budgets(
        self, tasks: Iterable[entities.Task], wanted: Iterable[str]
    ) -> list[entities.Task]:
        """Return running preemptable tasks in these zones, of each job no more than its budget."""
        names = set(wanted)
        spare: dict[str, int] = {}
        victims = []
        for task in tasks:
            job = self._session.job_of(task)
            row = self._session.nodes.rows.get(task.node)
            if job is None or row is None or self._zone_of[row] not in names:
                continue
            if task.status is not entities.Status.RUNNING or not task.preemptable:
                continue
            left = spare.setdefault(job.key, _budget(job))
            if left > 0:
                spare[job.key] = left - 1
                victims.append(task)
        return victims


LONGEST_COUNT = 10
"""Counts with this many digits or more are ignored: annotations may contain any text, and integers
with thousands of digits are costly."""


def _budget(job: entities.Job) -> int:
    """Return how many running tasks of the job may be evicted: as annotated, else one."""
    total, running = len(job.tasks), job.count(entities.Status.RUNNING)
    least = _number(job.budget_min_available, total)
    if least is not None:
        return running - least if running >= least else 1
    most = _number(job.budget_max_unavailable, total)
    if most is not None:
        return max(0, most - (total - job.count_in(entities.COMPLETED) - running))
    return 1


def _number(text: str, total: int) -> int | None:
    """Return a count, or a percentage of ``total`` rounded up; None if the text is neither."""
    digits = text.removesuffix("%")
    if not digits.isdecimal() or len(digits) >= LONGEST_COUNT:
        return None
    return math.ceil(int(digits) * total / 100) if text.endswith("%") else int(digits)


def _zone_of(task: entities.Task) -> str:
    return task.revocable_zone


def _compare_jobs(left: entities.Job, right: entities.Job) -> int:
    """Order jobs that cannot be preempted first."""
    return int(left.preemptable) - int(right.preemptable)


def _vote_pipelined(job: entities.Job) -> int:
    return extension_points.PERMIT if job.is_pipelined else extension_points.REJECT


def _is_starving(job: entities.Job) -> bool:
    return not job.preemptable and job.count(entities.Status.PENDING) > 0
