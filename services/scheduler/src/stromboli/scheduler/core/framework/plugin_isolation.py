"""Repeats a session without a plugin that fails.

A session has no effect before its end. An attempt in which a plugin raises an error, or is stopped
because it does not respond, therefore leaves nothing behind; a failure costs a second attempt, and
without failures isolation costs nothing.

*Without the plugin* never means *allowed*. A plugin that only orders, scores and observes is left
out. If a plugin restricts, the job that it was called for is excluded first, so that one unusual
pod does not stop scheduling; the plugin stays. A job on which the plugin fails although it is
excluded (its opening or closing reads all jobs) is left out of the session (``quarantine``). If it
fails on more than ``MAX_EXCLUDED_JOBS`` jobs, or on no particular job, it is removed and a
``PluginSubstitute`` answers instead:

====================================  ==================================================
question                              answer of the substitute
====================================  ==================================================
orders, scores, notes                 nothing: only the choice among nodes may be worse
a task fits a node, a queue's quota   no: the task is placed nowhere
a job is admitted, bound, nominated   no
a job may evict, a task is a victim   no: no task is evicted, whatever other tiers decide
a queue is overused; it may reclaim   yes; no
preparations before a bind            unknown, so nothing is placed
====================================  ==================================================
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import CodeType, FrameType, TracebackType
from typing import Any

import msgspec

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, opening, session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points

MAX_EXCLUDED_JOBS = 3
"""Limit of jobs excluded because of one plugin; beyond it, the plugin is removed instead."""
RETRY_AFTER = timedelta(minutes=1)
RETRY_HUNG_AFTER = timedelta(minutes=10)
"""Time before a plugin that did not respond is tried again: a failing attempt costs one session, a
hanging one several seconds.
"""
_JOB_EXCLUDED = "held back"
_PLACING = ("predicate", "pre_predicate", "availability", "preparation")
_EVICTING = (
    "evictable",
    "eviction_notice",
    "preemptable",
    "reclaimable",
    "unified_evictable",
    "victim_tasks",
)

_RESTRICTING = frozenset(
    {
        *_PLACING,
        *_EVICTING,
        "allocatable",
        "overused",
        "preemptive",
        "job_ready",
        "subjob_ready",
        "job_pipelined",
        "subjob_pipelined",
        "job_enqueueable",
        "job_starving",
        "job_valid",
    }
)


class PluginFailure(msgspec.Struct, frozen=True):
    """The failure of a plugin. ``until``: when the failure expires. ``points``: the points at which
    the plugin had registered; None if it did not open.
    """

    plugin: str
    reason: str
    until: datetime
    points: frozenset[str] | None = None


class FailureHistory:
    """Removed plugins and excluded jobs, across sessions."""

    def __init__(self) -> None:
        self.out: dict[str, PluginFailure] = {}
        self.held: dict[str, PluginFailure] = {}
        self._escalated: Counter[str] = Counter()
        self._points: dict[str, frozenset[str]] = {}

    def learn(self, closed: session.Session) -> None:
        """Record the extension points of each plugin, in case it later fails to open."""
        for name in closed.opened:
            if name not in self._points and name not in self.out:
                self._points[name] = closed.points_of(name)

    def note(self, failure_cause: "FailureCause", now: datetime) -> None:
        """Record a failure."""
        where = (
            self._points.get(failure_cause.plugin)
            if failure_cause.points is None
            else failure_cause.points
        )
        until = now + (RETRY_HUNG_AFTER if failure_cause.is_hung else RETRY_AFTER)
        failure = PluginFailure(failure_cause.plugin, failure_cause.reason, until, where)
        excluded_jobs = [
            job for job, known in self.held.items() if known.plugin == failure_cause.plugin
        ]
        is_missed = where is None or bool(where & _RESTRICTING)
        if (
            is_missed
            and failure_cause.job
            and failure_cause.job not in excluded_jobs
            and len(excluded_jobs) < MAX_EXCLUDED_JOBS
        ):
            self.held[failure_cause.job] = failure
            return
        for job in excluded_jobs:
            del self.held[job]
        self.out[failure_cause.plugin] = failure

    def escalates(self, failure_cause: "FailureCause") -> bool:
        """Whether the plugin failed on a job although it is excluded, so that the job must be left
        out of the session; at most ``MAX_EXCLUDED_JOBS`` times per plugin.
        """
        plugin_failure = self.held.get(failure_cause.job)
        if (
            failure_cause.is_asked
            or plugin_failure is None
            or plugin_failure.plugin != failure_cause.plugin
        ):
            return False
        self._escalated[failure_cause.plugin] += 1
        return self._escalated[failure_cause.plugin] <= MAX_EXCLUDED_JOBS

    def failures(self) -> dict[str, str]:
        """Plugin -> a description of its failures, for users."""
        descriptions = {name: f"left out: {failure.reason}" for name, failure in self.out.items()}
        for job, failure in self.held.items():
            before = descriptions.get(failure.plugin)
            text = f"{job} is not scheduled: {failure.reason}"
            descriptions[failure.plugin] = f"{before}; {text}" if before else text
        return dict(sorted(descriptions.items()))

    @property
    def until(self) -> datetime | None:
        """When the first failure expires; None without failures."""
        known = (*self.out.values(), *self.held.values())
        return min((failure.until for failure in known), default=None)

    def forget(self, now: datetime) -> None:
        """Drop expired failures."""
        for known in (self.out, self.held):
            for name in [name for name, failure in known.items() if failure.until <= now]:
                self._escalated.pop(known[name].plugin, None)
                del known[name]


class FailureCause(msgspec.Struct, frozen=True):
    """The plugin that failed. ``job``: the job for which it was called or, without ``is_asked``,
    which it was processing; empty if there is none or several.
    """

    plugin: str
    reason: str
    job: str = ""
    points: frozenset[str] | None = None
    is_hung: bool = False
    is_asked: bool = True


Attempt = Callable[[], session.Session]


def run_unwatched(attempt: Attempt) -> session.Session:
    """Run an attempt without a deadline. The shell passes a function that watches it."""
    return attempt()


def run_isolated(
    configured: configuration.Configuration,
    open_with: Callable[[configuration.Configuration, opening.FindPlugin], session.Session],
    act: Callable[[session.Session], None],
    find: opening.FindPlugin,
    now: datetime,
    plugin_failures: FailureHistory,
    watched: Callable[[Attempt], session.Session] = run_unwatched,
) -> session.Session:
    """Run a session until an attempt succeeds, one attempt after each new failure; return it.

    ``open_with`` opens a session on the same model each time. Errors that no plugin caused are
    raised, and so are errors on an excluded job, since the model may be inconsistent then.
    """
    plugin_failures.forget(now)
    while True:
        current: list[session.Session] = []

        def attempt(current: list[session.Session] = current) -> session.Session:
            opened = open_with(
                _with_exclusions(configured, plugin_failures), _find(find, plugin_failures)
            )
            current.append(opened)
            act(opened)
            return opened

        try:
            closed = watched(attempt)
        except (Exception, session.PluginHungError) as error:
            failure_cause = find_cause(error, current[0] if current else None)
            if (
                failure_cause is None
                or failure_cause.plugin in plugin_failures.out
                or plugin_failures.escalates(failure_cause)
            ):
                raise
            plugin_failures.note(failure_cause, now)
            if current:
                current[0].rollback()
                current[0].model.changed.update(current[0].waiting)
        else:
            plugin_failures.learn(closed)
            return closed


def find_cause(error: BaseException, ssn: session.Session | None) -> FailureCause | None:
    """The plugin that raised an error; None if the session itself did. ``ssn``: the session; None
    if it had not opened.
    """
    if isinstance(error, session.PluginFailedError):
        cause = error.__cause__
        inner = [] if cause is None else list(_frames(cause.__traceback__))
        return FailureCause(error.plugin, error.reason, _worked_on(inner), is_asked=False)
    frames = list(_frames(error.__traceback__))
    is_hung = isinstance(error, session.PluginHungError)
    reason = "it did not respond in time" if is_hung else f"{type(error).__name__}: {error}"
    if ssn is None:
        name = opening_plugin(frames)
        return FailureCause(name, reason, is_hung=is_hung) if name else None
    origin = owner(frames, ssn)
    if origin is None:
        return None
    frame, name = origin
    inner = frames[frames.index(frame) + 1 :]
    requested = "" if is_hung else _subject(frame)
    job = "" if is_hung else requested or _worked_on(inner)
    return FailureCause(name, reason, job, ssn.points_of(name), is_hung, bool(requested))


def opening_plugin(frames: Iterable[FrameType]) -> str:
    """The plugin that one of the frames opens; empty if there is none."""
    code = session.Session.open_plugin.__code__
    names = (frame.f_locals["options"].name for frame in frames if frame.f_code is code)
    return next(names, "")


def owner(frames: Iterable[FrameType], ssn: session.Session) -> tuple[FrameType, str] | None:
    """The outermost frame that is a registered function, and its plugin."""
    by_code: dict[CodeType, list[tuple[Callable[..., Any], str]]] = {}
    for function, name in ssn.registered():
        code = _code(function)
        if code is not None:
            by_code.setdefault(code, []).append((function, name))
    for frame in frames:
        for function, name in by_code.get(frame.f_code, ()):
            own = getattr(function, "__self__", None)
            if own is None or frame.f_locals.get(frame.f_code.co_varnames[0]) is own:
                return frame, name
    return None


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _code(function: Callable[..., Any]) -> CodeType | None:
    while isinstance(function, partial):
        function = function.func
    plain = getattr(function, "__func__", function)
    if not hasattr(plain, "__code__"):  # a callable object
        plain = vars(type(plain)).get("__call__")
    code: CodeType | None = getattr(plain, "__code__", None)
    return code


def _subject(frame: FrameType) -> str:
    """The only job among a function's arguments; empty if there is none or several."""
    called = inspect.getargvalues(frame)
    parameters = [called.locals.get(name) for name in called.args]
    if called.varargs:
        parameters.extend(called.locals[called.varargs])
    jobs = {each.key for each in parameters if isinstance(each, entities.Job)}
    jobs |= {each.job for each in parameters if isinstance(each, entities.Task) and each.job}
    return jobs.pop() if len(jobs) == 1 else ""


def _worked_on(frames: Sequence[FrameType]) -> str:
    """The only job of the innermost frame that has one."""
    for frame in reversed(frames):
        values = frame.f_locals.values()
        jobs = {each.key for each in values if isinstance(each, entities.Job)}
        jobs |= {each.job for each in values if isinstance(each, entities.Task) and each.job}
        if jobs:
            return jobs.pop() if len(jobs) == 1 else ""
    return ""


# Sessions with failures ---------------------------------------------------------------------------


def _with_exclusions(
    configured: configuration.Configuration, plugin_failures: FailureHistory
) -> configuration.Configuration:
    if not plugin_failures.held:
        return configured
    first = (configuration.PluginOptions(_JOB_EXCLUDED),)
    return msgspec.structs.replace(configured, tiers=(first, *configured.tiers))


def _find(find: opening.FindPlugin, plugin_failures: FailureHistory) -> opening.FindPlugin:
    def careful(name: str, already_open: Any) -> interfaces.PluginFactory:
        if name == _JOB_EXCLUDED:
            return lambda options: JobExclusion(plugin_failures.held)
        failure = plugin_failures.out.get(name)
        return (
            find(name, already_open)
            if failure is None
            else lambda options: PluginSubstitute(failure)
        )

    return careful


class JobExclusion:
    """Rejects jobs on which a plugin failed."""

    def __init__(self, jobs: Mapping[str, PluginFailure]) -> None:
        self._jobs = dict(jobs)

    def open(self, ssn: session.Session) -> None:
        """Reject the jobs before and after they become Inqueue."""
        ssn.add_job_valid(self._objection)
        ssn.add_job_enqueueable(
            lambda job: (
                extension_points.REJECT if job.key in self._jobs else extension_points.ABSTAIN
            )
        )
        for key, failure in self._jobs.items():
            ssn.complaints.append(
                f"plugin {failure.plugin} failed on {key}: {failure.reason}; the job is not "
                "scheduled"
            )

    def close(self, ssn: session.Session) -> None:
        """Does nothing."""

    def _objection(self, job: entities.Job) -> extension_points.JobInvalid | None:
        failure = self._jobs.get(job.key)
        if failure is None:
            return None
        return extension_points.JobInvalid(
            extension_points.PLUGIN_FAILED, f"plugin {failure.plugin} failed: {failure.reason}"
        )


class PluginSubstitute:
    """Takes the place of a removed plugin, as the module's docstring describes."""

    def __init__(self, failure: PluginFailure) -> None:
        self._failure = failure
        self._text = f"plugin {failure.plugin} failed: {failure.reason}"

    def open(self, ssn: session.Session) -> None:
        """Register at the plugin's extension points, or at all restricting ones if they are
        unknown."""
        ssn.failures[self._failure.plugin] = self._failure.reason
        ssn.complaints.append(f"{self._text}: the session continues without it")
        answers: dict[str, Callable[[], None]] = {
            **dict.fromkeys(_PLACING, lambda: ssn.add_pre_predicate(lambda task: self._text)),
            **dict.fromkeys(_EVICTING, lambda: ssn.add_evictable(lambda job, task: False)),
            "allocatable": lambda: ssn.add_allocatable(lambda queue, task, most: 0),
            "overused": lambda: ssn.add_overused(lambda queue: True),
            "preemptive": lambda: ssn.add_preemptive(lambda queue, tasks: False),
            "job_ready": lambda: ssn.add_job_ready(lambda job, task: 1),
            "subjob_ready": lambda: ssn.add_subjob_ready(lambda job, subjob: False),
            "job_pipelined": lambda: ssn.add_job_pipelined(lambda job: extension_points.REJECT),
            "subjob_pipelined": lambda: ssn.add_subjob_pipelined(
                lambda job, subjob: extension_points.REJECT
            ),
            "job_enqueueable": lambda: ssn.add_job_enqueueable(lambda job: extension_points.REJECT),
            "job_starving": lambda: ssn.add_job_starving(lambda job: False),
            "job_valid": lambda: ssn.add_job_valid(
                lambda job: extension_points.JobInvalid(extension_points.PLUGIN_FAILED, self._text)
            ),
        }
        had = self._failure.points
        for point in sorted(_RESTRICTING if had is None else _RESTRICTING & had):
            answers[point]()

    def close(self, ssn: session.Session) -> None:
        """Does nothing."""
