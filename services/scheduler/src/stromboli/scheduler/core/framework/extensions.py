"""Extension points: where plugins register and how their answers become one (spec 4).

Every ``add_`` belongs to the plugin that is being opened; its place among the tiers and its flags
decide whether and when it is heard.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points

_Tiers = list[list[Callable[..., Any]]]


class Extensions:
    """What plugins registered, by point, tier and place in the tier."""

    def __init__(self, tiers: Sequence[Sequence[configuration.PluginOptions]]) -> None:
        self._tiers = tiers
        self._functions: dict[tuple[str, int, int], list[Callable[..., Any]]] = {}
        self._asked: dict[tuple[str, str], _Tiers] = {}
        self._opening: tuple[int, int] = (0, 0)
        self._registered: list[tuple[str, tuple[int, int], Callable[..., Any]]] = []
        self.scopes: dict[Callable[..., Any], extension_points.Scope] = {}
        self._keys: dict[Callable[..., Any], extension_points.Key[Any]] = {}
        self._room: dict[Callable[..., Any], extension_points.Room] = {}
        self._lacking: dict[Callable[..., Any], extension_points.Lacking] = {}
        self.allocate_events: list[extension_points.TaskEvent] = []
        self.deallocate_events: list[extension_points.TaskEvent] = []
        self.preparations: list[extension_points.Preparation] = []
        self.annotations: list[extension_points.Annotation] = []
        self.distinctions: list[extension_points.ClassKey] = []

    @contextlib.contextmanager
    def opening(self, tier: int, place: int) -> Iterator[None]:
        """What is registered meanwhile belongs to the plugin at this place."""
        self._opening = (tier, place)
        yield

    # Registration ---------------------------------------------------------------------------

    def add_job_order(
        self,
        compare: extension_points.Order[entities.Job],
        key: extension_points.Key[entities.Job] | None = None,
    ) -> None:
        """Which job first. ``key`` sorts alike, and faster: it may change for a job only with what
        the job itself holds."""
        if key is not None:
            self._keys[compare] = key
        self._add("job_order", compare)

    def add_queue_share(self, tell: extension_points.QueueShares) -> None:
        """What a queue holds and may hold, for explanations."""
        self._add("standing", tell)

    def add_gauges(self, tell: Callable[[], Iterable[extension_points.Gauge]]) -> None:
        """Numbers for people's dashboards; asked for now and then, at a session's end."""
        self._add("gauges", tell)

    def add_queue_order(self, compare: extension_points.Order[entities.Queue]) -> None:
        """Which queue first."""
        self._add("queue_order", compare)

    def add_task_order(
        self,
        compare: extension_points.Order[entities.Task],
        key: extension_points.Key[entities.Task] | None = None,
    ) -> None:
        """Which task of a job first. ``key`` sorts alike, and faster."""
        if key is not None:
            self._note("task_order", key)
            self._keys[compare] = key
        self._add("task_order", compare)

    def add_subjob_order(self, compare: extension_points.Order[entities.SubJob]) -> None:
        """Which subjob first."""
        self._add("subjob_order", compare)

    def add_victim_queue_order(self, compare: extension_points.VictimOrder) -> None:
        """Of which queue victims go first."""
        self._add("victim_queue_order", compare)

    def add_pre_predicate(self, test: extension_points.PrePredicate) -> None:
        """A reason why a task fits nowhere."""
        self._add("pre_predicate", test)

    def add_predicate(
        self,
        test: extension_points.Predicate,
        scope: extension_points.Scope = extension_points.Scope.LOCAL,
    ) -> None:
        """Checks of nodes for a task's class: for one class always the same, in one order."""
        self.scopes[test] = scope
        self._add("predicate", test)

    def add_node_order(
        self,
        score: extension_points.NodeOrder,
        scope: extension_points.Scope = extension_points.Scope.LOCAL,
    ) -> None:
        """Scores of nodes for a task's class. GLOBAL functions are asked about candidates only, so
        they may compare candidates with each other."""
        self.scopes[score] = scope
        self._add("node_order", score)

    def add_domain_order(self, score: extension_points.DomainOrder) -> None:
        """Scores of network domains for tasks that are to be placed together."""
        self._add("domain_order", score)

    def add_soft_topology(self) -> None:
        """Gangs that ask for nearness without insisting are placed in the lowest tier that will
        do."""
        self._add(extension_points.SOFT_TOPOLOGY[0], _always)

    def add_class_key(self, tell: extension_points.ClassKey) -> None:
        """Predicates and scores of this plugin differ for tasks of one class by what it tells."""
        self._note("distinction", tell)
        self.distinctions.append(tell)

    def add_preemptable(self, choose: extension_points.VictimChoice) -> None:
        """Victims of the preemptor's queue."""
        self._add("preemptable", choose)

    def add_reclaimable(self, choose: extension_points.VictimChoice) -> None:
        """Victims of other queues."""
        self._add("reclaimable", choose)

    def add_unified_evictable(self, choose: extension_points.UnifiedChoice) -> None:
        """Victims for a whole gang."""
        self._add("unified_evictable", choose)

    def add_victim_tasks(self, choose: extension_points.VictimSource) -> None:
        """Running tasks to be moved elsewhere."""
        self._add("victim_tasks", choose)

    def add_overused(self, test: extension_points.QueueTest) -> None:
        """The queue has its share."""
        self._add("overused", test)

    def add_preemptive(self, test: extension_points.Preemptive) -> None:
        """The queue may reclaim for these tasks."""
        self._add("preemptive", test)

    def add_allocatable(
        self, test: extension_points.Allocatable, room: extension_points.Room | None = None
    ) -> None:
        """The queue may hold this task as well. Without ``room`` it is asked for task by task."""
        if room is not None:
            self._note("allocatable", room)
            self._room[test] = room
        self._add("allocatable", test)

    def add_job_ready(
        self, test: extension_points.JobTest, lacking: extension_points.Lacking | None = None
    ) -> None:
        """The job may be bound. Without ``lacking`` it is asked after every task."""
        if lacking is not None:
            self._note("job_ready", lacking)
            self._lacking[test] = lacking
        self._add("job_ready", test)

    def add_subjob_ready(self, test: extension_points.SubJobTest) -> None:
        """The subjob may be bound."""
        self._add("subjob_ready", test)

    def add_job_pipelined(self, vote: extension_points.JobVote) -> None:
        """The job's promises are worth keeping."""
        self._add("job_pipelined", vote)

    def add_subjob_pipelined(self, vote: extension_points.SubJobVote) -> None:
        """The subjob's promises are worth keeping."""
        self._add("subjob_pipelined", vote)

    def add_job_starving(self, test: extension_points.JobTest) -> None:
        """The job may evict others."""
        self._add("job_starving", test)

    def add_job_valid(self, test: extension_points.JobValidity) -> None:
        """Why the job cannot be tried."""
        self._add("job_valid", test)

    def add_job_enqueueable(self, vote: extension_points.JobVote) -> None:
        """The job may pass its queue's door."""
        self._add("job_enqueueable", vote)

    def add_job_enqueued(self, note: Callable[[entities.Job], None]) -> None:
        """The job has passed the door."""
        self._add("job_enqueued", note)

    def add_job_blocked(self, note: extension_points.JobBlocked) -> None:
        """Hear of jobs that were tried and cannot start now; say whether others may pass."""
        self._add("job_blocked", note)

    def add_job_moved(self, look: extension_points.JobMoved) -> None:
        """Say that a job has moved back in the order because others of its kind were served."""
        self._add("job_moved", look)

    def add_evictable(self, test: extension_points.Evictable) -> None:
        """A veto: what any plugin refuses is no candidate for any other, in whatever tier."""
        self._add("evictable", test)

    def add_reclaim_limit(self, leave: extension_points.VictimSource) -> None:
        """What of these victims their queues can lose together, whatever tier chose them."""
        self._add("reclaim_limit", leave)

    def add_eviction_notice(self, tell: extension_points.EvictionNotice) -> None:
        """How long before its end an evicted task is told; the longest holds."""
        self._add("eviction_notice", tell)

    def add_availability(self, test: extension_points.NodeAvailability) -> None:
        """Nodes that are open to a task from its start to its end."""
        self._add("openness", test)

    def add_event_handler(
        self,
        allocate: extension_points.TaskEvent | None = None,
        deallocate: extension_points.TaskEvent | None = None,
    ) -> None:
        """Hear of runs of tasks that were placed or promised, and of those evicted or taken back:
        together they are of one class and job."""
        if allocate:
            self._note("event", allocate)
            self.allocate_events.append(allocate)
        if deallocate:
            self._note("event", deallocate)
            self.deallocate_events.append(deallocate)

    def add_preparation(self, prepare: extension_points.Preparation) -> None:
        """Say what must be done before a task's bind."""
        self._note("preparation", prepare)
        self.preparations.append(prepare)

    def add_annotation(self, tell: extension_points.Annotation) -> None:
        """Say what is to stand on a task's pod once it is bound."""
        self._note("annotation", tell)
        self.annotations.append(tell)

    # Answers --------------------------------------------------------------------------------

    def victim_tasks(self, tasks: Sequence[entities.Task]) -> list[entities.Task]:
        """The union of a tier's choices; the first tier with any decides."""
        candidates = self.evictable(None, tasks)
        for tier in self.functions("victim_tasks", "enabledVictim"):
            found = {task.uid: task for choose in tier for task in choose(candidates)}
            if found:
                return list(found.values())
        return []

    def preemptable(
        self, preemptor: entities.Task, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        """Victims all plugins of the deciding tier agree on."""
        tiers = self.functions("preemptable", "enablePreemptable")
        return _agreed(tiers, candidates, preemptor)

    def reclaimable(
        self, reclaimer: entities.Task, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        """Victims all plugins of the deciding tier agree on, within the limits of any tier."""
        tiers = self.functions("reclaimable", "enableReclaimable")
        return self._within_reclaim_limits(_agreed(tiers, candidates, reclaimer))

    def _within_reclaim_limits(self, victims: list[entities.Task]) -> list[entities.Task]:
        for leave in self.flat("reclaim_limit", "enableReclaimable"):
            victims = list(leave(victims))
        return victims

    def evictable(
        self, job: entities.Job | None, candidates: Sequence[entities.Task]
    ) -> Sequence[entities.Task]:
        """The candidates that nobody refuses to have evicted for the job."""
        tests = list(self.flat("evictable", ""))
        if not tests:
            return candidates
        return [task for task in candidates if all(test(job, task) for test in tests)]

    def eviction_notice(self, task: entities.Task) -> timedelta:
        """How long before its end the evicted task is told."""
        told = (tell(task) for tell in self.flat("eviction_notice", ""))
        return max(told, default=timedelta())

    def is_open(
        self, start: datetime, run_time: timedelta | None, rows: node_views.Rows, size: int
    ) -> extension_points.Mask:
        """Nodes, ``size`` many asked for, where nothing disturbs a task from start to end."""
        mask = np.ones(size, np.bool_)
        for test in self.flat("openness", ""):
            mask &= test(start, run_time, rows)
        return mask

    def unified_evictable(
        self, action: str, job: entities.Job, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        """Victims all plugins of the deciding tier agree on; what is reclaimed, within the limits
        of any tier."""
        left = self.evictable(job, candidates)
        victims = _agreed(self.functions("unified_evictable", ""), left, action, job)
        return self._within_reclaim_limits(victims) if action == "gangreclaim" else victims

    def overused(self, queue: entities.Queue) -> bool:
        """Any plugin says so."""
        return any(test(queue) for test in self.flat("overused", "enabledOverused"))

    def preemptive(self, queue: entities.Queue, tasks: Sequence[entities.Task]) -> bool:
        """All plugins agree."""
        return all(test(queue, tasks) for test in self.flat("preemptive", "enablePreemptive"))

    def allocatable(self, queue: entities.Queue, task: entities.Task) -> bool:
        """All plugins agree."""
        return all(test(queue, task) for test in self.flat("allocatable", "enabledAllocatable"))

    def sort_keys(self, point: str, flag: str) -> list[extension_points.Key[Any]] | None:
        """Keys that sort as the plugins' orders do, the first decides; None if one has no key."""
        orders = list(self.flat(point, flag))
        keys = [self._keys[compare] for compare in orders if compare in self._keys]
        return keys if len(keys) == len(orders) else None

    def can_count_room(self) -> bool:
        """Whether every plugin can say how many tasks a queue may hold."""
        return all(test in self._room for test in self.flat("allocatable", "enabledAllocatable"))

    def room(self, queue: entities.Queue, task: entities.Task, most: int) -> int:
        """How many tasks like this one, up to ``most``, all plugins agree on; 1 at most where one
        of them cannot count."""
        for test in self.flat("allocatable", "enabledAllocatable"):
            count = self._room.get(test)
            most = min(most, int(test(queue, task)) if count is None else count(queue, task, most))
            if most <= 0:
                return 0
        return most

    def lacking(self, job: entities.Job, task: entities.Task) -> int:
        """How many tasks like this one must at least be placed before the job can be ready."""
        least = 1
        for test in self.flat("job_ready", "enableJobReady"):
            count = self._lacking.get(test)
            least = least if count is None else max(least, count(job, task))
        return least

    def job_ready(self, job: entities.Job) -> bool:
        """All plugins agree; without any, every job is ready."""
        return all(test(job) for test in self.flat("job_ready", "enableJobReady"))

    def subjob_ready(self, job: entities.Job, subjob: entities.SubJob) -> bool:
        """All plugins agree; a job that is not divided is asked as a whole."""
        if not job.sub_group_minimums:
            return self.job_ready(job)
        return all(test(job, subjob) for test in self.flat("subjob_ready", "enabledSubJobReady"))

    def job_pipelined(self, job: entities.Job) -> bool:
        """The plugins' vote."""
        return _voted(self.functions("job_pipelined", "enableJobPipelined"), job)

    def subjob_pipelined(self, job: entities.Job, subjob: entities.SubJob) -> bool:
        """The plugins' vote; a job that is not divided is asked as a whole."""
        if not job.sub_group_minimums:
            return self.job_pipelined(job)
        return _voted(self.functions("subjob_pipelined", "enabledSubJobPipelined"), job, subjob)

    def domain_scores(
        self, tasks: Sequence[entities.Task], asked: npt.NDArray[np.intp]
    ) -> extension_points.Scores:
        """The sum of what plugins say of network domains."""
        total: extension_points.Scores = np.zeros(len(asked), np.int64)
        for score in self.flat("domain_order", "enabledHyperNodeOrder"):
            total += score(tasks, asked)
        return total

    def job_enqueueable(self, job: entities.Job) -> bool:
        """The plugins' vote."""
        return _voted(self.functions("job_enqueueable", "enableJobEnqueued"), job)

    def job_enqueued(self, job: entities.Job) -> None:
        """All plugins are told."""
        for note in self.flat("job_enqueued", "enableJobEnqueued"):
            note(job)

    def job_starving(self, job: entities.Job) -> bool:
        """All plugins of the first tier that has any agree; without any, no job starves."""
        for tier in self.functions("job_starving", "enableJobStarving"):
            if tier:
                return all(test(job) for test in tier)
        return False

    def job_valid(self, job: entities.Job) -> extension_points.JobInvalid | None:
        """The first objection."""
        answers = (test(job) for test in self.flat("job_valid", ""))
        return next((answer for answer in answers if answer is not None), None)

    def gauges(self) -> tuple[extension_points.Gauge, ...]:
        """All that plugins tell."""
        return tuple(gauge for tell in self.flat("gauges", "") for gauge in tell())

    def standing(self, queue: entities.Queue) -> extension_points.QueueShare | None:
        """What the queue holds and may hold; None if nobody keeps books."""
        answers = (tell(queue) for tell in self.flat("standing", ""))
        return next((answer for answer in answers if answer is not None), None)

    # Inside ---------------------------------------------------------------------------------

    def functions(self, point: str, flag: str) -> _Tiers:
        """What is registered and enabled, by tiers; fixed once all plugins are open."""
        kept = self._asked.get((point, flag))
        if kept is None:
            kept = self._asked[point, flag] = [
                [
                    function
                    for place, options in enumerate(plugins)
                    if options.is_enabled(flag)
                    for function in self._functions.get((point, tier, place), ())
                ]
                for tier, plugins in enumerate(self._tiers)
            ]
        return kept

    def flat(self, point: str, flag: str) -> Iterator[Callable[..., Any]]:
        """The same without regard to tiers."""
        return (function for tier in self.functions(point, flag) for function in tier)

    def registered(self) -> Iterator[tuple[Callable[..., Any], str]]:
        """Every function that plugins registered, with the plugin's name."""
        for _, (tier, place), function in self._registered:
            yield function, self._tiers[tier][place].name

    def points_of(self, plugin: str) -> frozenset[str]:
        """The extension points at which a plugin registered."""
        return frozenset(
            point
            for point, (tier, place), _ in self._registered
            if self._tiers[tier][place].name == plugin
        )

    def _note(self, point: str, function: Callable[..., Any]) -> None:
        self._registered.append((point, self._opening, function))

    def _add(self, point: str, function: Callable[..., Any]) -> None:
        self._note(point, function)
        self._functions.setdefault((point, *self._opening), []).append(function)


def _always() -> None:
    """Stands for a wish that is fulfilled elsewhere."""


def _voted(tiers: _Tiers, *subject: Any) -> bool:
    """A reject ends it; a tier with a permit ends it; silence is consent."""
    for tier in tiers:
        has_permit = False
        for vote in tier:
            answer = vote(*subject)
            if answer < 0:
                return False
            has_permit = has_permit or answer > 0
        if has_permit:
            return True
    return True


def _agreed(
    tiers: _Tiers, candidates: Sequence[entities.Task], *subject: Any
) -> list[entities.Task]:
    """The first tier that is left with a choice decides; spec 4, *tiered intersection*.

    Plugins that agree on nobody end their tier, as one that chooses nobody does. The field's
    scheduler asks the rest of the tier as if nothing had been said, and so takes what is protected.
    """
    for tier in tiers:
        agreed: list[entities.Task] | None = None
        for choose in tier:
            chosen: extension_points.Victims = choose(*subject, candidates)
            if chosen.vote == extension_points.ABSTAIN:
                continue
            kept = None if agreed is None else {task.uid for task in agreed}
            agreed = [task for task in chosen.tasks if kept is None or task.uid in kept]
            if not agreed:
                break
        if agreed:
            return agreed
    return []
