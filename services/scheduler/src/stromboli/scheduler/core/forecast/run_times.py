"""Estimates how long a job's tasks run, from the run times of similar jobs.

An online estimator: each finished job is added to the groups that it belongs to, from the narrowest
to the widest: (user, queue, name), (user, queue, size), (queue, size), queue, all. A group keeps
the newest ``KEPT`` run times. An estimate is drawn from the empirical distribution of the narrowest
group with at least ``ENOUGH`` of them.

A job that runs already is compared with those that ran longer than it has (the distribution is
conditional on survival). If a group has too few of these, the next wider one is used. If no group
has enough, the tail is a Pareto distribution with exponent 1: the total is longer than x times the
elapsed time with probability 1 / x. Digits in names are ignored, so that numbered runs of one
program form a group.
"""

import bisect
import re
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

KEPT = 500
ENOUGH = 5
MOST_GROUPS = 5000
"""Limit of groups, because users choose names: the least recently updated one is dropped."""
UNKNOWN_S = 3600.0
"""Estimate for a job that has not started if no group has enough run times."""
LONGEST_FACTOR = 1000.0
_DIGITS = re.compile(r"[0-9]+")
_UID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class JobTraits(NamedTuple):
    """The properties of a job on which run times depend. ``size``: number of tasks."""

    user: str
    name: str
    queue: str
    size: int


class _Group:
    """The newest run times: in the order of their arrival, and sorted."""

    __slots__ = ("newest", "ordered")

    def __init__(self) -> None:
        self.newest: deque[float] = deque()
        self.ordered: list[float] = []

    def add(self, run_s: float) -> None:
        """Add a run time; beyond ``KEPT`` the oldest one is dropped. O(log n), and a shift."""
        if len(self.newest) == KEPT:
            del self.ordered[bisect.bisect_left(self.ordered, self.newest.popleft())]
        self.newest.append(run_s)
        bisect.insort(self.ordered, run_s)


class RunTimeEstimator:
    """Learns from finished jobs one by one. Memory: O(``MOST_GROUPS`` x ``KEPT``)."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[object, ...], _Group] = OrderedDict()

    def add(self, job: JobTraits, run_s: float) -> None:
        """Add the total run time of a finished job."""
        for group in _groups(job):
            self._groups.setdefault(group, _Group()).add(run_s)
            self._groups.move_to_end(group)
        while len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)

    def draw(self, job: JobTraits, elapsed_s: float, part: float) -> float:
        """Return a total run time for a job that has run for ``elapsed_s`` seconds.

        ``part``: in [0, 1), the quantile that is drawn; a uniform random number.
        """
        for name in _groups(job):
            group = self._groups.get(name)
            if group is None:
                continue
            first = bisect.bisect_right(group.ordered, elapsed_s) if elapsed_s > 0 else 0
            longer = len(group.ordered) - first
            if longer >= ENOUGH:
                return group.ordered[first + int(part * longer)]
        if elapsed_s <= 0:
            return UNKNOWN_S
        return elapsed_s * min(1 / (1 - part), LONGEST_FACTOR)


def job_name(pod_group: str) -> str:
    """The job's name from the name of its PodGroup, ``<job>-<uid>``."""
    return _UID.sub("", pod_group)


def _groups(job: JobTraits) -> Iterator[tuple[object, ...]]:
    """The groups of a job, the narrowest first."""
    yield "name", job.user, job.queue, _DIGITS.sub("", job.name)
    if job.user:
        yield "user", job.user, job.queue, job.size
    yield "size", job.queue, job.size
    yield "queue", job.queue
    yield ("all",)
