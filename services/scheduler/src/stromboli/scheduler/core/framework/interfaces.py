"""The interface of plugins and actions: extension points and their contracts.

A **plugin** registers functions at extension points when it is opened (``Registry``). An **action**
calls the session, which combines the results of all plugins (``extensions``), and changes the
session through statements. ``session_interfaces`` lists what each may use of a session.

Contracts that hold for every function that a plugin registers:

1. It is a function of its arguments and of the session. It uses no clock, no random numbers and no
   I/O; ``ssn.now``, ``ssn.seed`` and ``ssn.outside`` replace these, so that a recorded session can
   be replayed.
2. It changes only the plugin's own state.
3. After an exception, or a call that exceeds the deadline, the session is repeated without the job
   that the call was for, or with a substitute for the plugin that rejects (``plugin_isolation``).
4. A flag of the configuration can disable each point of a plugin (``Point.flag``); an empty flag
   means that the point cannot be disabled.

Each point defines how the results of several plugins are combined (``Combine``). Plugins are called
tier by tier, in the order of the configuration.
"""

import contextlib
import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import ordering
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session

Tiers: TypeAlias = list[list[Callable[..., Any]]]


class Combine(enum.Enum):
    """How the answers of several plugins are combined."""

    FIRST_OPINION = "first opinion"
    """The first answer that is not zero (orders), None (objections) or empty decides."""
    ALL = "all agree"
    """False if any plugin answers False. Without plugins the answer is True."""
    ANY = "any"
    """True if any plugin answers True. Without plugins the answer is False."""
    ALL_OF_FIRST_TIER = "all of the first tier"
    """All plugins of the first tier that has one at this point agree."""
    VOTE = "vote"
    """The first tier with a PERMIT or REJECT decides; in it, a REJECT wins. Without one: True."""
    LEAST = "least"
    """The smallest number decides."""
    MOST = "most"
    """The largest number or the longest time decides."""
    SUM = "sum"
    """Scores are added."""
    UNION = "union"
    """All answers count."""
    TIERED_UNION = "union of a tier"
    """The union of the answers of the first tier that has any."""
    TIERED_INTERSECTION = "intersection of a tier"
    """The first tier whose plugins agree on at least one victim decides; ABSTAIN is ignored."""
    SUCCESSION = "in succession"
    """Each plugin narrows the result of the previous one."""
    NOTIFICATION = "notification"
    """All plugins are called; there is no result."""


class Point(NamedTuple):
    """An extension point. ``flag``: its configuration flag; empty if it cannot be disabled."""

    name: str
    flag: str
    combine: Combine


POINTS: dict[str, Point] = {}
"""Name -> point."""


def _point(name: str, flag: str, combine: Combine) -> Point:
    POINTS[name] = Point(name, flag, combine)
    return POINTS[name]


JOB_ORDER = _point("job_order", "enableJobOrder", Combine.FIRST_OPINION)
QUEUE_ORDER = _point("queue_order", "enableQueueOrder", Combine.FIRST_OPINION)
TASK_ORDER = _point("task_order", "enableTaskOrder", Combine.FIRST_OPINION)
SUBJOB_ORDER = _point("subjob_order", "enabledSubJobOrder", Combine.FIRST_OPINION)
VICTIM_QUEUE_ORDER = _point("victim_queue_order", "", Combine.FIRST_OPINION)
JOB_ORDER_CHANGED = _point("job_order_changed", "enableJobOrder", Combine.ANY)
PRE_PREDICATE = _point("pre_predicate", "enablePredicate", Combine.FIRST_OPINION)
PREDICATE = _point("predicate", "enablePredicate", Combine.ALL)
NODE_ORDER = _point("node_order", "enableNodeOrder", Combine.SUM)
DOMAIN_ORDER = _point("domain_order", "enabledHyperNodeOrder", Combine.SUM)
SOFT_TOPOLOGY = _point("soft_topology", "enabledHyperNodeGradient", Combine.ANY)
CLASS_KEY = _point("class_key", "", Combine.UNION)
AVAILABILITY = _point("availability", "", Combine.ALL)
PREEMPTABLE = _point("preemptable", "enablePreemptable", Combine.TIERED_INTERSECTION)
RECLAIMABLE = _point("reclaimable", "enableReclaimable", Combine.TIERED_INTERSECTION)
UNIFIED_EVICTABLE = _point("unified_evictable", "", Combine.TIERED_INTERSECTION)
RECLAIM_LIMIT = _point("reclaim_limit", "enableReclaimable", Combine.SUCCESSION)
EVICTABLE = _point("evictable", "", Combine.ALL)
EVICTION_NOTICE = _point("eviction_notice", "", Combine.MOST)
VICTIM_TASKS = _point("victim_tasks", "enabledVictim", Combine.TIERED_UNION)
OVERUSED = _point("overused", "enabledOverused", Combine.ANY)
PREEMPTIVE = _point("preemptive", "enablePreemptive", Combine.ALL)
ALLOCATABLE = _point("allocatable", "enabledAllocatable", Combine.LEAST)
JOB_READY = _point("job_ready", "enableJobReady", Combine.MOST)
SUBJOB_READY = _point("subjob_ready", "enabledSubJobReady", Combine.ALL)
JOB_PIPELINED = _point("job_pipelined", "enableJobPipelined", Combine.VOTE)
SUBJOB_PIPELINED = _point("subjob_pipelined", "enabledSubJobPipelined", Combine.VOTE)
JOB_STARVING = _point("job_starving", "enableJobStarving", Combine.ALL_OF_FIRST_TIER)
JOB_VALID = _point("job_valid", "", Combine.FIRST_OPINION)
JOB_ENQUEUEABLE = _point("job_enqueueable", "enableJobEnqueued", Combine.VOTE)
JOB_ENQUEUED = _point("job_enqueued", "enableJobEnqueued", Combine.NOTIFICATION)
JOB_BLOCKED = _point("job_blocked", "", Combine.FIRST_OPINION)
QUEUE_SHARE = _point("queue_share", "", Combine.FIRST_OPINION)
GAUGES = _point("gauges", "", Combine.UNION)
EVENT = _point("event", "", Combine.NOTIFICATION)
PREPARATION = _point("preparation", "", Combine.UNION)
ANNOTATION = _point("annotation", "", Combine.UNION)


# Plugins --------------------------------------------------------------------------------------


class Plugin(Protocol):
    """The class named ``Plugin`` in a plugin module. The scheduler creates one instance per
    session.
    """

    def __init__(self, options: configuration.PluginOptions) -> None: ...

    def open(self, ssn: "session.Session") -> None:
        """Read the session and register functions."""

    def close(self, ssn: "session.Session") -> None:
        """Called after all actions, to write conditions and ``ssn.remember``."""


PluginFactory: TypeAlias = Callable[[configuration.PluginOptions], Plugin]
Action: TypeAlias = "Callable[[session.Session], None]"
"""The function ``run(ssn)`` of an action; it places, nominates and evicts through statements."""


# Registration ---------------------------------------------------------------------------------


class Registry:
    """The functions that plugins register, each with the plugin that was opening at the time.

    Each ``add_`` method states the function's contract. ``scopes``: by predicate and node order."""

    def __init__(self, tiers: Sequence[Sequence[configuration.PluginOptions]]) -> None:
        self._tiers = tiers
        self._functions: dict[str, list[tuple[int, int, Callable[..., Any]]]] = {}
        """Point -> tier, position and function, in the order of the tiers."""
        self._enabled: dict[tuple[str, str], Tiers] = {}
        self._flat: dict[tuple[str, str | None], list[Callable[..., Any]]] = {}
        self._opening: tuple[int, int] = (0, 0)
        self._registered: list[tuple[str, tuple[int, int], Callable[..., Any]]] = []
        self._keys: dict[Callable[..., Any], extension_points.Key[Any]] = {}
        self._siblings: dict[Callable[..., Any], extension_points.Siblings] = {}
        self._victim_jobs: dict[Callable[..., Any], extension_points.VictimJob] = {}
        self.scopes: dict[Callable[..., Any], extension_points.Scope] = {}
        self.allocate_events: list[extension_points.TaskEvent] = []
        self.deallocate_events: list[extension_points.TaskEvent] = []
        self.admits_by_request = True
        """Whether all votes on admission are ``by_request``."""

    def opening(self, tier: int, place: int) -> contextlib.AbstractContextManager[None]:
        """In this context, functions are registered for the plugin at this tier and position."""
        self._opening = (tier, place)
        return contextlib.nullcontext()

    # Order --------------------------------------------------------------------------------------

    def add_job_order(
        self,
        compare: extension_points.Order[entities.Job] | None = None,
        *,
        key: extension_points.Key[entities.Job] | None = None,
    ) -> None:
        """Define which job is served first, by exactly one of the two arguments.

        ``key``: jobs are sorted in ascending order of its values. Within a session, a job's value
        may change only when the resources that the job holds change. Prefer it: lists are sorted
        with one call per job. ``compare``: for an order that no key expresses.
        """
        self._add_order(JOB_ORDER, compare, key)

    def add_queue_order(
        self,
        compare: extension_points.Order[entities.Queue] | None = None,
        *,
        key: extension_points.Key[entities.Queue] | None = None,
        siblings: extension_points.Siblings | None = None,
    ) -> None:
        """Define which queue is served first, as for jobs. Within a session, a queue's ``key`` may
        change only when the resources that its jobs hold change. With ``compare`` each turn
        compares all queues; with ``siblings``, whose keys sort a group as ``compare`` does, only
        the first of each group."""
        if compare is not None and siblings is not None:
            self._siblings[compare] = siblings
        self._add_order(QUEUE_ORDER, compare, key)

    def add_task_order(
        self,
        compare: extension_points.Order[entities.Task] | None = None,
        *,
        key: extension_points.Key[entities.Task] | None = None,
    ) -> None:
        """Define which task of a job is placed first, by exactly one of the arguments, as for
        jobs."""
        self._add_order(TASK_ORDER, compare, key)

    def add_subjob_order(self, compare: extension_points.Order[entities.SubJob]) -> None:
        """Define which subgroup of a job is placed first."""
        self._add(SUBJOB_ORDER, compare)

    def add_victim_queue_order(self, compare: extension_points.VictimOrder) -> None:
        """(left, right, preemptor's queue) -> negative if left's tasks are evicted first."""
        self._add(VICTIM_QUEUE_ORDER, compare)

    def add_job_order_changed(self, react: extension_points.JobMoved) -> None:
        """Whether the job comes later than at the last call, since other jobs were scheduled."""
        self._add(JOB_ORDER_CHANGED, react)

    # Filter and score ---------------------------------------------------------------------------

    def add_pre_predicate(self, test: extension_points.PrePredicate) -> None:
        """Why tasks of this class fit on no node, or None. Called before any predicate."""
        self._add(PRE_PREDICATE, test)

    def add_predicate(
        self,
        test: extension_points.Predicate,
        scope: extension_points.Scope = extension_points.Scope.LOCAL,
    ) -> None:
        """Which nodes are feasible for a task's class: checks in a fixed order, each with a reason.

        The result is cached by class, as long as ``scope`` permits. A LOCAL function answers for
        ``view.added`` further equal tasks.
        """
        self.scopes[test] = scope
        self._add(PREDICATE, test)

    def add_node_order(
        self,
        score: extension_points.NodeOrder,
        scope: extension_points.Scope = extension_points.Scope.LOCAL,
    ) -> None:
        """Scores of nodes for a task's class, in ``SCORE_UNIT``; None for zeros.

        Cached like predicates. A GLOBAL function receives candidates only, so that it may compare
        them with each other.
        """
        self.scopes[score] = scope
        self._add(NODE_ORDER, score)

    def add_domain_order(self, score: extension_points.DomainOrder) -> None:
        """Scores of topology domains for tasks of one job that are placed together."""
        self._add(DOMAIN_ORDER, score)

    def add_soft_topology(self) -> None:
        """Declare that gangs with a soft topology request are tried in the lowest tier first."""
        self._add(SOFT_TOPOLOGY, _always)

    def add_class_key(self, tell: extension_points.ClassKey) -> None:
        """The data of a task, besides its class, that the plugin's predicates and scores depend
        on."""
        self._add(CLASS_KEY, tell)

    def add_availability(self, test: extension_points.NodeAvailability) -> None:
        """(start, run time, rows) -> nodes that are available to a task from start to end."""
        self._add(AVAILABILITY, test)

    # Victims ------------------------------------------------------------------------------------

    def add_preemptable(
        self,
        choose: extension_points.VictimChoice,
        *,
        may_have: extension_points.VictimJob | None = None,
    ) -> None:
        """(preemptor, candidates) -> victims in the preemptor's queue.

        ``may_have``: False for a job if ``choose`` returns none of its tasks on any node, so that
        searches skip it. The answer changes within a session only when tasks are placed or evicted.
        """
        self._add_victims(PREEMPTABLE, choose, may_have)

    def add_reclaimable(
        self,
        choose: extension_points.VictimChoice,
        *,
        may_have: extension_points.VictimJob | None = None,
    ) -> None:
        """(reclaimer, candidates) -> victims in other queues. ``may_have``: as for preemption."""
        self._add_victims(RECLAIMABLE, choose, may_have)

    def add_unified_evictable(self, choose: extension_points.UnifiedChoice) -> None:
        """(action, preemptor's job, candidates) -> victims for a whole gang."""
        self._add(UNIFIED_EVICTABLE, choose)

    def add_reclaim_limit(self, leave: extension_points.VictimSource) -> None:
        """(victims of any tier) -> the victims that their queues can lose together."""
        self._add(RECLAIM_LIMIT, leave)

    def add_evictable(self, test: extension_points.Evictable) -> None:
        """(job that needs room or None, candidate) -> whether the candidate may be evicted."""
        self._add(EVICTABLE, test)

    def add_eviction_notice(self, tell: extension_points.EvictionNotice) -> None:
        """How long before its termination an evicted task is notified."""
        self._add(EVICTION_NOTICE, tell)

    def add_victim_tasks(self, choose: extension_points.VictimSource) -> None:
        """The running tasks that ``shuffle`` evicts."""
        self._add(VICTIM_TASKS, choose)

    # Queues and jobs ----------------------------------------------------------------------------

    def add_overused(self, test: extension_points.QueueTest) -> None:
        """Whether the queue has reached its share, so that none of its jobs is served."""
        self._add(OVERUSED, test)

    def add_preemptive(self, test: extension_points.Preemptive) -> None:
        """(queue, tasks) -> whether the queue may reclaim for these tasks."""
        self._add(PREEMPTIVE, test)

    def add_allocatable(self, count: extension_points.Allocatable) -> None:
        """(queue, task, most) -> how many tasks like this one, up to ``most``, the queue may still
        hold: the same number as with one call after each placement.

        A plugin that cannot count returns 1 or 0; runs of equal tasks are then placed one by one.
        """
        self._add(ALLOCATABLE, count)

    def add_job_ready(self, missing: extension_points.JobReady) -> None:
        """(job, task or None) -> how many more tasks must be placed before the job can be bound; 0
        if the job can be bound now.

        With a task, which is placed next: the minimum number of tasks like this one; the session
        calls again after placing them. A plugin that cannot count returns 1.
        """
        self._add(JOB_READY, missing)

    def add_subjob_ready(self, test: extension_points.SubJobTest) -> None:
        """Whether the subgroup can be bound."""
        self._add(SUBJOB_READY, test)

    def add_job_pipelined(self, vote: extension_points.JobVote) -> None:
        """Whether the job's nominations are kept at the end of its statement."""
        self._add(JOB_PIPELINED, vote)

    def add_subjob_pipelined(self, vote: extension_points.SubJobVote) -> None:
        """Whether the subgroup's nominations are kept."""
        self._add(SUBJOB_PIPELINED, vote)

    def add_job_starving(self, test: extension_points.JobTest) -> None:
        """Whether the job may evict others."""
        self._add(JOB_STARVING, test)

    def add_job_valid(self, test: extension_points.JobValidity) -> None:
        """Why the job is not tried at all, or None."""
        self._add(JOB_VALID, test)

    def add_job_enqueueable(
        self, vote: extension_points.JobVote, *, by_request: bool = False
    ) -> None:
        """Whether the job may become Inqueue.

        ``by_request``: the vote depends only on the queue and the minimum request, and the
        admission of other jobs never turns a refusal into a permission. Sessions then skip refused
        jobs (``enqueue``).
        """
        self.admits_by_request = self.admits_by_request and by_request
        self._add(JOB_ENQUEUEABLE, vote)

    def add_job_enqueued(self, note: Callable[[entities.Job], None]) -> None:
        """Called when a job becomes Inqueue."""
        self._add(JOB_ENQUEUED, note)

    def add_job_blocked(self, note: extension_points.JobBlocked) -> None:
        """Called for a job that was tried and cannot start now: returns the rule by which jobs
        after it in its queue must wait, or empty if they need not.
        """
        self._add(JOB_BLOCKED, note)

    # Reports and side effects -------------------------------------------------------------------

    def add_queue_share(self, tell: extension_points.QueueShares) -> None:
        """A queue's usage and limits, for explanations; None if the plugin does not know them."""
        self._add(QUEUE_SHARE, tell)

    def add_gauges(self, tell: Callable[[], Iterable[extension_points.Gauge]]) -> None:
        """Numbers for dashboards, read at the end of some sessions."""
        self._add(GAUGES, tell)

    def add_event_handler(
        self,
        allocate: extension_points.TaskEvent | None = None,
        deallocate: extension_points.TaskEvent | None = None,
    ) -> None:
        """Called with tasks of one class and job that were placed or nominated (``allocate``), or
        evicted or rolled back (``deallocate``), after the change."""
        if allocate:
            self._note(EVENT, allocate)
            self.allocate_events.append(allocate)
        if deallocate:
            self._note(EVENT, deallocate)
            self.deallocate_events.append(deallocate)

    def add_preparation(self, prepare: extension_points.Preparation) -> None:
        """Steps to take before a task is bound, such as binding a volume's claim."""
        self._add(PREPARATION, prepare)

    def add_annotation(self, tell: extension_points.Annotation) -> None:
        """Annotations that a task's pod gets with its bind."""
        self._add(ANNOTATION, tell)

    # Registered functions -----------------------------------------------------------------------

    def functions(self, point: Point, flag: str | None = None) -> Tiers:
        """The enabled functions of a point, by tier; fixed once all plugins are open.

        ``flag``: the flag that enables them; None for the point's own flag.
        """
        flag = point.flag if flag is None else flag
        kept = self._enabled.get((point.name, flag))
        if kept is None:
            kept = self._enabled[point.name, flag] = [[] for _ in self._tiers]
            for tier, place, function in self._functions.get(point.name, ()):
                if self._tiers[tier][place].is_enabled(flag):
                    kept[tier].append(function)
        return kept

    def flat(self, point: Point, flag: str | None = None) -> Sequence[Callable[..., Any]]:
        """The enabled functions of a point, without regard to tiers."""
        flattened = self._flat.get((point.name, flag))
        if flattened is None:
            flattened = list(itertools.chain.from_iterable(self.functions(point, flag)))
            self._flat[point.name, flag] = flattened
        return flattened

    def registered(self) -> Iterator[tuple[Callable[..., Any], str]]:
        """Every function that plugins registered, with the plugin's name."""
        for _, (tier, place), function in self._registered:
            yield function, self._tiers[tier][place].name

    def points_of(self, plugin: str) -> frozenset[str]:
        """Names of the points at which a plugin registered."""
        return frozenset(
            point
            for point, (tier, place), _ in self._registered
            if self._tiers[tier][place].name == plugin
        )

    def _add_order(
        self,
        point: Point,
        compare: extension_points.Order[Any] | None,
        key: extension_points.Key[Any] | None,
    ) -> None:
        if (compare is None) == (key is None):
            raise TypeError(f"{point.name}: give exactly one of compare and key")
        if compare is not None:
            self._add(point, compare)
        elif key is not None:
            derived = ordering.comparing(key)
            self._keys[derived] = key
            self._note(point, key)  # attributes a failure to the plugin by its function
            self._functions.setdefault(point.name, []).append((*self._opening, derived))

    def _add_victims(
        self,
        point: Point,
        choose: extension_points.VictimChoice,
        may_have: extension_points.VictimJob | None,
    ) -> None:
        if may_have is not None:
            self._victim_jobs[choose] = may_have
            self._note(point, may_have)
        self._add(point, choose)

    def _note(self, point: Point, function: Callable[..., Any]) -> None:
        self._registered.append((point.name, self._opening, function))

    def _add(self, point: Point, function: Callable[..., Any]) -> None:
        # A session registers about fifty functions, so this makes no further calls.
        self._registered.append((point.name, self._opening, function))
        self._functions.setdefault(point.name, []).append((*self._opening, function))


def _always() -> None:
    """Marks a point at which a plugin only declares its presence."""
