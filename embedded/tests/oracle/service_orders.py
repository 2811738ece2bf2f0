"""Reference model of three orders: by age, by remaining service, by attained service.

Rigid gangs on nodes of one core each, by brute force: everything is decided again in each second.
So thresholds must be reached in whole seconds: multiples of 12 core-seconds are, by up to four
tasks. It shares no code with the scheduler and the simulation.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec


class Gang(msgspec.Struct, frozen=True):
    """A job. ``estimate_s``: what its user states, None if nothing."""

    name: str
    submit_s: int
    run_s: int
    tasks: int
    estimate_s: int | None = None


class Rules(msgspec.Struct, frozen=True):
    """``thresholds_s``: in core-seconds, of ``attained``. ``evicts``: a gang may evict others of a
    higher level. ``keeps``: an evicted gang continues where it was, else it starts over.
    """

    order: Literal["age", "remaining", "attained"]
    longest_wait_s: int
    default_run_s: int = 0
    thresholds_s: tuple[int, ...] = ()
    evicts: bool = False
    keeps: bool = False


class _Job:
    def __init__(self, gang: Gang, number: int) -> None:
        self.gang = gang
        self.left = gang.run_s
        self.created = (gang.submit_s, number)
        """When its PodGroup was created: again after each eviction."""
        self.since = gang.submit_s
        """Since when it waits, or waited before its present start."""
        self.started = -1
        self.nodes: list[int] = []
        self.attained_before = 0
        """Core-seconds before the present start."""

    def attained(self, now: int) -> int:
        """Core-seconds."""
        held = (now - self.started) * self.gang.tasks if self.nodes else 0
        return self.attained_before + held


class Model:
    """One run. ``ends_s``: gang -> end. ``evictions``: how many gangs were evicted."""

    def __init__(self, gangs: Sequence[Gang], nodes: int, rules: Rules) -> None:
        self._rules = rules
        self._free = set(range(nodes))
        self._coming = sorted(gangs, key=lambda each: each.submit_s)
        self._jobs: list[_Job] = []
        self._created = 0
        self.ends_s: dict[str, float] = {}
        self.starts_s: dict[str, float] = {}
        self.evictions = 0
        now = 0
        while self._coming or self._jobs:
            self._end(now)
            while self._coming and self._coming[0].submit_s <= now:
                self._jobs.append(_Job(self._coming.pop(0), self._number()))
            while self._session(now):
                pass
            now += 1

    def _number(self) -> int:
        self._created += 1
        return self._created

    def _end(self, now: int) -> None:
        for job in [each for each in self._jobs if each.nodes]:
            if job.started + job.left == now:
                self._free.update(job.nodes)
                self._jobs.remove(job)
                self.ends_s[job.gang.name] = now

    def _session(self, now: int) -> bool:
        """Allocate, then preempt; return whether anything was decided."""
        ranks = {job.gang.name: self._rank(job, now) for job in self._jobs}
        waiting = [job for job in self._jobs if not job.nodes]
        waiting.sort(key=lambda job: (*ranks[job.gang.name], job.created))
        starting: list[_Job] = []
        for job in waiting:
            if job.gang.tasks <= len(self._free):
                job.nodes = sorted(self._free)[: job.gang.tasks]
                job.started = now
                self._free.difference_update(job.nodes)
                self.starts_s.setdefault(job.gang.name, now)
                starting.append(job)
        victims: list[_Job] = []
        nominated: set[int] = set()
        for job in waiting if self._rules.evicts else []:
            if not job.nodes:
                self._preempt(job, ranks, starting, nominated, victims)
        for job in victims:
            self._evict(job, now)
        return bool(starting or victims)

    def _preempt(
        self,
        job: _Job,
        ranks: dict[str, tuple[int, ...]],
        starting: list[_Job],
        nominated: set[int],
        victims: list[_Job],
    ) -> None:
        """Idle nodes first, then nodes of gangs of a higher level, in the order of nodes."""
        level = ranks[job.gang.name][0]
        jobs = {
            node: other
            for other in self._jobs
            if other not in starting and ranks[other.gang.name][0] > level
            for node in other.nodes
        }
        found = [*sorted(self._free - nominated), *sorted(jobs.keys() - nominated)]
        chosen = found[: job.gang.tasks]
        if len(chosen) == job.gang.tasks:
            nominated.update(chosen)
            new = [jobs[node] for node in chosen if node in jobs]
            victims.extend(each for each in dict.fromkeys(new) if each not in victims)

    def _evict(self, job: _Job, now: int) -> None:
        self.evictions += 1
        job.attained_before = job.attained(now)
        ran = now - job.started
        job.left = job.left - ran if self._rules.keeps else job.gang.run_s
        self._free.update(job.nodes)
        job.nodes = []
        job.since = now
        job.created = (now, self._number())

    def _rank(self, job: _Job, now: int) -> tuple[int, ...]:
        rules = self._rules
        if rules.order == "age":
            return (0,)
        waited = (job.started if job.nodes else now) - job.since
        if waited >= rules.longest_wait_s:
            return (-1, job.created[0])
        if rules.order == "attained":
            return (sum(each <= job.attained(now) for each in rules.thresholds_s), 0)
        stated = job.gang.estimate_s
        return (0, job.gang.tasks * (rules.default_run_s if stated is None else stated))
