"""Estimates when pending gangs will start: simulates the cluster forward with the real scheduler.

Steps of one draw:

1. All objects are put into a new cache. A pod on a node ends after its remaining run time; all pods
   of a gang use the same quantile. Pods without a gang never end.
2. Sessions run until none is due. A decision is executed when it is made: an admitted gang gets its
   pods, a bound pod runs, an evicted pod is replaced by a pending one.
3. Time jumps to the next end of a pod, or to the next time for which a plugin requested a session.
   A gang whose pods have all ended is deleted. With ``Options.tolerance``, ends that are close
   together share a session.

A gang has started when its minimum is on nodes. Several draws of run times give the distribution of
its start. A job's own ``runningEstimate`` replaces the draw, and ``activeDeadlineSeconds`` limits
it; a task that exceeds its estimate by t is expected to run for another t.

Approximations: no job is submitted later; a gang without pods gets the minimum number of pods of
each task, each with an equal part of its minimum resources; nothing fails; a gang that lost members
to an eviction keeps the others; nodes' hardware reports are not used. Cost: O(objects) for each
draw, and two sessions for each gang that starts.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from stromboli.scheduler.core import policy
from stromboli.scheduler.core.cache import unschedulable
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.forecast import gang_pods, run_times, virtual_scheduler
from stromboli.scheduler.core.framework import opening
from stromboli.scheduler.core.model import job_builder
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.api.views.expected_start import StartAnswer
from stromboli.shared.messages import scheduling as messages

HORIZON = timedelta(days=7)
MOST_SESSIONS_AT_ONCE = 200
_ENDED = ("Succeeded", "Failed")
_QUOTA = ("enqueue", "share", "queue-closed")


class Draw(Protocol):
    """Draws a total run time in seconds from a job, the seconds that it has run, and a quantile."""

    def __call__(self, job: run_times.JobTraits, elapsed_s: float, part: float) -> float:
        """Return the run time."""


def _no_pause() -> None:
    """Continue immediately."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a simulation.

    ``only``: the gangs to forecast; None: all waiting gangs. ``first``: a draw ends after this
    many starts; None: after all. ``tolerance``: ends of pods within this fraction of the simulated
    time so far share a session; 0: exact. ``pause`` is called before each step of time, to limit
    the use of CPU. ``scheduler_names``: the scheduler names of the pods. ``members``: PodGroup ->
    the pods that it gets once it is admitted; pods of other gangs get equal parts of the minimum
    resources.
    """

    configured: configuration.Configuration
    find: opening.FindPlugin
    scheduler_names: tuple[str, ...] = policy.Policy().scheduler_names
    only: frozenset[str] | None = None
    first: int | None = None
    tolerance: float = 0.0
    pause: Callable[[], None] = _no_pause
    members: Mapping[str, tuple[core.Pod, ...]] = {}


class ExpectedStart(msgspec.Struct, frozen=True):
    """When a gang starts, in seconds from the present: 80 % of the draws are between ``p10_s`` and
    ``p90_s``. None: later than the horizon, or never. ``reason``: why it waits at present.
    """

    pod_group: str
    queue: str
    answer: StartAnswer
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    reason: str


class DrawnStarts(msgspec.Struct, frozen=True):
    """The result of one draw.

    ``queues``: gang that waits at present -> its queue. ``reasons``: gang -> tier and text of the
    reason. ``starts_s``: gang -> its start. ``left``: gang that is still blocked at the end -> tier
    of the reason. ``is_cut``: the draw ended after ``Options.first`` starts, so the starts of the
    other gangs are not known.
    """

    queues: dict[str, str]
    reasons: dict[str, tuple[str, str]]
    starts_s: dict[str, float]
    left: dict[str, str]
    is_cut: bool = False


class PresentDecisions(msgspec.Struct, frozen=True):
    """The decisions at present. ``waiting``: gang that still waits -> tier and text of the
    reason."""

    statements: tuple[messages.StatementDecided, ...]
    waiting: dict[str, tuple[str, str]]


def expected_starts(
    present: cluster_objects.Cluster,
    options: Options,
    draw: Draw,
    parts: Iterable[Sequence[float]],
) -> list[ExpectedStart]:
    """The expected start of each pending gang, by key.

    ``parts``: for each draw uniform random numbers, one for each PodGroup in the order of keys; at
    least one draw. With ``Options.first``, a gang is left out if fewer than 90 % of the draws
    reached its start.
    """
    drawn = [Forecast(present, options, draw, numbers).run() for numbers in parts]
    starts = (summarize(key, drawn) for key in sorted(drawn[0].queues))
    return [each for each in starts if each is not None]


def summarize(key: str, drawn: Sequence[DrawnStarts]) -> ExpectedStart | None:
    """The expected start of a gang; None if draws that were cut do not determine it."""
    starts = sorted(each.starts_s.get(key, float("inf")) for each in drawn)
    p10, p50, p90 = (_quantile(starts, part) for part in (0.1, 0.5, 0.9))
    tiers = [each.left[key] for each in drawn if key in each.left]
    tier, reason = drawn[0].reasons[key]
    answer: StartAnswer = "starts" if p50 is not None else "not-within-7-days"
    if tier == "never-fits":
        answer = "can-never-fit"
    elif p90 is None and any(each.is_cut for each in drawn):
        return None
    elif p50 is None and tiers and all(each in _QUOTA for each in tiers):
        answer = "blocked-by-quota"
    return ExpectedStart(key, drawn[0].queues[key], answer, p10, p50, p90, reason)


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    """The smallest value that at least this fraction of the draws does not exceed; None if it is
    infinite."""
    at = max(0, -int(-part * len(ordered) // 1) - 1)
    return ordered[at] if ordered[at] < float("inf") else None


class Forecast:
    """One draw. ``run`` it once."""

    def __init__(
        self,
        present: cluster_objects.Cluster,
        options: Options,
        draw: Draw,
        parts: Sequence[float],
    ) -> None:
        self._options = options
        self._scheduler = virtual_scheduler.Scheduler(
            options.configured, options.find, scheduler_names=options.scheduler_names
        )
        self._begin = self._now = present.now
        self._until = present.now + HORIZON
        self._draw = draw
        is_timeless = unschedulable.depends_on_nodes_only(options.configured)
        self._skips_wakes = is_timeless and not present.advance_reservations
        self._groups: dict[str, scheduling.PodGroup] = {}
        self._pods: dict[str, dict[str, core.Pod]] = {}
        self._parts: dict[str, float] = {}
        self._ends: list[tuple[datetime, int, str, str]] = []
        self._made = 0
        self._starts_s: dict[str, float] = {}
        self._put_present(present, parts)
        self._watched = {
            key: group.spec.queue or self._scheduler.cache.model.default_queue
            for key, group in self._groups.items()
            if (options.only is None or key in options.only)
            and group.status.phase != "Completed"
            and not self._has_started(key)
        }

    def run(self) -> DrawnStarts:
        """Simulate until all watched gangs, or ``Options.first`` of them, have started, nothing
        more can happen, or the horizon is reached."""
        self._run_sessions()
        reasons = {key: self._scheduler.reason(key) for key in self._watched}
        left: dict[str, str] = {}
        while not self._is_cut and len(self._starts_s) < len(self._watched):
            self._options.pause()
            at = self._next_time()
            if at is None or at > self._until:
                left = self._reasons_left(is_over=at is None)
                break
            self._now = max(self._now, at)
            if self._ends and self._ends[0][0] <= self._now:
                self._end_pods()
            else:
                self._scheduler.request_session()
            self._run_sessions()
        return DrawnStarts(self._watched, reasons, self._starts_s, left, self._is_cut)

    def decide_now(self) -> PresentDecisions:
        """Run sessions until nothing more is decided at present; time does not pass."""
        statements = tuple(self._executed())
        waiting = [key for key in self._watched if not self._has_started(key)]
        return PresentDecisions(statements, {key: self._scheduler.reason(key) for key in waiting})

    @property
    def _is_cut(self) -> bool:
        first = self._options.first
        return first is not None and first <= len(self._starts_s) < len(self._watched)

    def _reasons_left(self, *, is_over: bool) -> dict[str, str]:
        """Gang -> tier of its reason. At the horizon, gangs that only wait behind other gangs are
        left out."""
        waiting = self._watched.keys() - self._starts_s.keys()
        tiers = {key: self._scheduler.reason(key)[0] for key in waiting}
        return {key: tier for key, tier in tiers.items() if is_over or tier == "queue-closed"}

    def _next_time(self) -> datetime | None:
        """The time of the next event, moved to the last end within the tolerance."""
        end = self._ends[0][0] if self._ends else None
        if end is not None and self._options.tolerance:
            end = durations.after(end, (end - self._begin) * self._options.tolerance)
        wake = None if self._skips_wakes else self._scheduler.wake_at
        return min((at for at in (end, wake) if at is not None), default=None)

    # The present

    def _put_present(self, present: cluster_objects.Cluster, parts: Sequence[float]) -> None:
        cache = self._scheduler.cache
        for name, labels in present.namespace_labels.items():
            cache.model.label_namespace(name, labels)
        for field in present.__struct_fields__:
            value = getattr(present, field)
            if field not in ("pods", "pod_groups") and isinstance(value, tuple):
                self._put(*(each for each in value if isinstance(each, meta.Object)))
        for number, group in enumerate(sorted(present.pod_groups, key=_key)):
            self._groups[group.metadata.key] = group
            self._parts[group.metadata.key] = parts[number]
            self._put(group)
        for pod in sorted(present.pods, key=_key):
            self._put(pod)
            self._pods.setdefault(job_builder.job_key_of(pod), {})[pod.metadata.key] = pod
        if not self._scheduler.enqueues:
            for key in self._options.members.keys() & self._groups.keys():
                self._create_pods(key)
        for key in self._groups:
            for pod in self._pods_of(key).values():
                if pod.spec.node_name and pod.status.phase not in _ENDED:
                    self._expect_end(key, pod)

    def _put(self, *objs: meta.Object) -> None:
        for each in objs:
            if virtual_scheduler.is_read(each):
                self._scheduler.put(each, self._now)

    def _pods_of(self, key: str) -> dict[str, core.Pod]:
        return self._pods.setdefault(key, {})

    def _has_started(self, key: str) -> bool:
        least = max(1, self._groups[key].spec.min_member)
        placed = (
            pod.status.phase == "Succeeded" or (pod.spec.node_name and pod.status.phase != "Failed")
            for pod in self._pods_of(key).values()
        )
        return sum(map(bool, placed)) >= least

    # Ends

    def _expect_end(self, key: str, pod: core.Pod) -> None:
        began = pod.status.start_time or self._now
        elapsed_s = max(0.0, (self._now - began).total_seconds())
        total_s = self._run_time(key, pod, elapsed_s)
        left_s = max(total_s - elapsed_s, elapsed_s - total_s, 1.0)
        self._made += 1
        end = durations.after(self._now, timedelta(seconds=left_s))
        heapq.heappush(self._ends, (end, self._made, key, pod.metadata.uid))

    def _run_time(self, key: str, pod: core.Pod, elapsed_s: float) -> float:
        group = self._groups[key]
        limit = pod.spec.active_deadline_seconds
        text = group.metadata.annotation(keys.RUNNING_ESTIMATE)
        try:
            total_s = durations.duration(text).total_seconds() if text else 0.0
        except ValueError:
            total_s = 0.0
        if total_s <= 0:
            size = max(len(self._pods_of(key)), group.spec.min_member)
            user = group.metadata.annotation(keys.USER) or ""
            name = run_times.job_name(group.metadata.name)
            traits = run_times.JobTraits(user, name, group.spec.queue, size)
            total_s = self._draw(traits, elapsed_s, self._parts[key])
        return total_s if limit is None else min(total_s, float(limit))

    def _end_pods(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            _, _, key, uid = heapq.heappop(self._ends)
            pods = self._pods_of(key)
            ended = next((pod for pod in pods.values() if pod.metadata.uid == uid), None)
            if ended is None:
                continue  # it was evicted
            done = gang_pods.succeeded(ended, self._now)
            pods[done.metadata.key] = done
            self._put(done)
            if all(pod.status.phase in _ENDED for pod in pods.values()):
                self._remove_group(key)

    def _remove_group(self, key: str) -> None:
        for pod in self._pods.pop(key).values():
            self._scheduler.remove(pod, self._now)
        self._scheduler.remove(self._groups.pop(key), self._now)

    # Decisions

    def _run_sessions(self) -> None:
        for _ in self._executed():
            pass

    def _executed(self) -> Iterator[messages.StatementDecided]:
        """Run sessions until none is due. Yields each statement once it is executed."""
        for _ in range(MOST_SESSIONS_AT_ONCE):
            if not self._scheduler.is_due:
                return
            for statement in self._scheduler.decide(self._now):
                self._execute(statement)
                yield statement

    def _execute(self, statement: messages.StatementDecided) -> None:
        key = statement.pod_group
        if statement.enqueue:
            self._set_phase(key, "Inqueue")
            self._create_pods(key)
        for each in statement.evictions:
            self._replace(f"{each.namespace}/{each.pod}")
        for bind in statement.binds:
            pods = self._pods_of(key)
            pending = pods[f"{bind.namespace}/{bind.pod}"]
            pod = gang_pods.running(pending, bind.node, self._now)
            pods[pod.metadata.key] = pod
            self._put(pod)
            self._expect_end(key, pod)
        if statement.binds and self._has_started(key):
            self._set_phase(key, "Running")
            if key in self._watched:
                self._starts_s.setdefault(key, (self._now - self._begin).total_seconds())

    def _set_phase(self, key: str, phase: str) -> None:
        group = self._groups[key]
        status = msgspec.structs.replace(group.status, phase=phase)
        self._groups[key] = msgspec.structs.replace(group, status=status)
        self._put(self._groups[key])

    def _create_pods(self, key: str) -> None:
        """Create the pods of an admitted gang; none if its minimum resources are invalid."""
        if self._pods_of(key):
            return
        for pod in self._options.members.get(key, ()):
            self._add_pod(key, pod)
        if self._pods_of(key):
            return
        group = self._groups[key]
        tasks = gang_pods.tasks_of(group)
        name = self._options.scheduler_names[0]
        for number, task in enumerate(tasks):
            self._made += 1
            uid = f"forecast-{self._made:012}"
            try:
                pod = gang_pods.member(group, number, uid, name, task=task, members=len(tasks))
            except ValueError:
                return
            self._add_pod(key, pod)

    def _add_pod(self, key: str, pod: core.Pod) -> None:
        self._pods_of(key)[pod.metadata.key] = pod
        self._put(pod)

    def _replace(self, name: str) -> None:
        """Delete an evicted pod and create a pending one."""
        task = self._scheduler.cache.model.tasks[name]
        pod = task.pod
        self._scheduler.remove(pod, self._now)
        pods = self._pods_of(task.job)
        if pods.pop(name, None) is None:
            return  # its group does not wait and is not simulated
        self._made += 1
        metadata = msgspec.structs.replace(pod.metadata, uid=f"forecast-{self._made:012}")
        spec = msgspec.structs.replace(pod.spec, node_name="")
        status = core.PodStatus(phase="Pending")
        pods[name] = msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)
        self._put(pods[name])


def _key(obj: meta.Object) -> str:
    return obj.metadata.key
