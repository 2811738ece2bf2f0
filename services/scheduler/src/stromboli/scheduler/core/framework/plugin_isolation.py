"""What a session does with a plugin that fails: it is thrown away and held anew without it.

Nothing of a session counts before its end, so an attempt in which a plugin raised, or was stopped
because it did not answer, leaves nothing behind, and no function needs a net of its own: trouble
costs a second attempt, and no trouble costs nothing.

*Without it* never means *allowed*. A plugin that only orders, scores and listens is left out. Of
one that restricts, first the job that it was asked about is held back, as one odd pod must not stop
a cluster; the plugin stays. A job that it fails on even so, since its opening or closing looks at
all jobs, is left out of the session (see ``core.quarantine``). If it fails on more jobs than
``JOBS_HELD``, or on no job in particular, it is out: a ``StandIn`` answers in its place.

====================================  ==================================================
what the plugin would have said       what its stand-in says
====================================  ==================================================
orders, scores, notes                 nothing: what comes first is only less well chosen
a task fits a node, may be held       no: it is placed nowhere
a job may enter, be bound, be kept    no
a job may evict, a task is a victim   no: nobody is evicted, whatever other tiers say
a queue has its share, may reclaim    it has; it may not
what must be done before a bind       nobody knows, so nothing is placed
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
from stromboli.scheduler.core.framework import opening, session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points

JOBS_HELD = 3
"""Of one plugin: with more, the plugin is what is odd and not the jobs."""
HELD_FOR = timedelta(minutes=1)
HUNG_FOR = timedelta(minutes=10)
"""How long nobody tries again: a try that fails costs a session, one that hangs seconds."""
_HELD_BACK = "held back"
_PLACING = ("predicate", "pre_predicate", "openness", "preparation")
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


class Trouble(msgspec.Struct, frozen=True):
    """What went wrong with a plugin, and until when that is believed. ``points``: where it had
    registered; None if it did not come so far."""

    plugin: str
    reason: str
    until: datetime
    points: frozenset[str] | None = None


class Troubles:
    """Plugins that are out and jobs held back, over sessions."""

    def __init__(self) -> None:
        self.out: dict[str, Trouble] = {}
        self.held: dict[str, Trouble] = {}
        self._escalated: Counter[str] = Counter()
        self._points: dict[str, frozenset[str]] = {}

    def learn(self, closed: session.Session) -> None:
        """Remember where plugins register, for the day when one does not open."""
        for name in closed.opened:
            if name not in self._points and name not in self.out:
                self._points[name] = closed.points_of(name)

    def note(self, blame: "Blame", now: datetime) -> None:
        """Something failed."""
        where = self._points.get(blame.plugin) if blame.points is None else blame.points
        until = now + (HUNG_FOR if blame.is_hung else HELD_FOR)
        trouble = Trouble(blame.plugin, blame.reason, until, where)
        held = [job for job, known in self.held.items() if known.plugin == blame.plugin]
        is_missed = where is None or bool(where & _RESTRICTING)
        if is_missed and blame.job and blame.job not in held and len(held) < JOBS_HELD:
            self.held[blame.job] = trouble
            return
        for job in held:
            del self.held[job]
        self.out[blame.plugin] = trouble

    def escalates(self, blame: "Blame") -> bool:
        """Whether the plugin failed on a job although that is held back, so that the job must be
        left out of the session: of one plugin that is believed ``JOBS_HELD`` times."""
        held = self.held.get(blame.job)
        if blame.is_asked or held is None or held.plugin != blame.plugin:
            return False
        self._escalated[blame.plugin] += 1
        return self._escalated[blame.plugin] <= JOBS_HELD

    def failures(self) -> dict[str, str]:
        """Plugin -> what became of it, for people."""
        found = {name: f"left out: {trouble.reason}" for name, trouble in self.out.items()}
        for job, trouble in self.held.items():
            before = found.get(trouble.plugin)
            said = f"{job} is held back: {trouble.reason}"
            found[trouble.plugin] = f"{before}; {said}" if before else said
        return dict(sorted(found.items()))

    @property
    def until(self) -> datetime | None:
        """When the first of them is to be tried again."""
        known = (*self.out.values(), *self.held.values())
        return min((trouble.until for trouble in known), default=None)

    def forget(self, now: datetime) -> None:
        """What is old is tried again."""
        for known in (self.out, self.held):
            for name in [name for name, trouble in known.items() if trouble.until <= now]:
                self._escalated.pop(known[name].plugin, None)
                del known[name]


class Blame(msgspec.Struct, frozen=True):
    """Whose fault it is. ``job``: the one it was asked about or worked on (not ``is_asked``), empty
    for none or several."""

    plugin: str
    reason: str
    job: str = ""
    points: frozenset[str] | None = None
    is_hung: bool = False
    is_asked: bool = True


Attempt = Callable[[], session.Session]


def at_once(attempt: Attempt) -> session.Session:
    """Run an attempt; whoever watches plugins puts something else here."""
    return attempt()


def held(
    configured: configuration.Configuration,
    open_with: Callable[[configuration.Configuration, opening.FindPlugin], session.Session],
    act: Callable[[session.Session], None],
    find: opening.FindPlugin,
    now: datetime,
    troubles: Troubles,
    watched: Callable[[Attempt], session.Session] = at_once,
) -> session.Session:
    """A session that ran to its end, after as many attempts as there is new trouble.

    ``open_with`` opens on the same world each time. Errors that are no plugin's pass through, and
    those on a job that is held back already: the world may be torn then.
    """
    troubles.forget(now)
    while True:
        current: list[session.Session] = []

        def attempt(current: list[session.Session] = current) -> session.Session:
            opened = open_with(_with_held(configured, troubles), _find(find, troubles))
            current.append(opened)
            act(opened)
            return opened

        try:
            closed = watched(attempt)
        except (Exception, session.PluginHungError) as error:
            found = blame(error, current[0] if current else None)
            if found is None or found.plugin in troubles.out or troubles.escalates(found):
                raise
            troubles.note(found, now)
            if current:
                current[0].rollback()
                current[0].world.changed.update(current[0].waiting)
        else:
            troubles.learn(closed)
            return closed


def blame(error: BaseException, within: session.Session | None) -> Blame | None:
    """The plugin that an error came out of; None if it is the session's own, and then nobody knows
    in what state that is. ``within``: the session if it had opened."""
    if isinstance(error, session.PluginFailedError):
        cause = error.__cause__
        inner = [] if cause is None else list(_frames(cause.__traceback__))
        return Blame(error.plugin, error.reason, _worked_on(inner), is_asked=False)
    frames = list(_frames(error.__traceback__))
    is_hung = isinstance(error, session.PluginHungError)
    reason = "it did not answer in time" if is_hung else f"{type(error).__name__}: {error}"
    if within is None:
        name = opening_plugin(frames)
        return Blame(name, reason, is_hung=is_hung) if name else None
    found = owner(frames, within)
    if found is None:
        return None
    frame, name = found
    inner = frames[frames.index(frame) + 1 :]
    asked = "" if is_hung else _subject(frame)
    job = "" if is_hung else asked or _worked_on(inner)
    return Blame(name, reason, job, within.points_of(name), is_hung, bool(asked))


def opening_plugin(frames: Iterable[FrameType]) -> str:
    """The plugin that is being opened in one of the frames; empty for none."""
    code = session.Session.open_plugin.__code__
    names = (frame.f_locals["options"].name for frame in frames if frame.f_code is code)
    return next(names, "")


def owner(frames: Iterable[FrameType], within: session.Session) -> tuple[FrameType, str] | None:
    """The outermost of frames that is a registered function, and its plugin."""
    by_code: dict[CodeType, list[tuple[Callable[..., Any], str]]] = {}
    for function, name in within.registered():
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
    if not hasattr(plain, "__code__"):  # an object that can be called
        plain = vars(type(plain)).get("__call__")
    code: CodeType | None = getattr(plain, "__code__", None)
    return code


def _subject(frame: FrameType) -> str:
    """The one job that a function's arguments are about."""
    called = inspect.getargvalues(frame)
    given = [called.locals.get(name) for name in called.args]
    if called.varargs:
        given.extend(called.locals[called.varargs])
    jobs = {each.key for each in given if isinstance(each, entities.Job)}
    jobs |= {each.job for each in given if isinstance(each, entities.Task) and each.job}
    return jobs.pop() if len(jobs) == 1 else ""


def _worked_on(frames: Sequence[FrameType]) -> str:
    """The one job that the innermost frame which works on jobs works on."""
    for frame in reversed(frames):
        values = frame.f_locals.values()
        jobs = {each.key for each in values if isinstance(each, entities.Job)}
        jobs |= {each.job for each in values if isinstance(each, entities.Task) and each.job}
        if jobs:
            return jobs.pop() if len(jobs) == 1 else ""
    return ""


# Sessions with troubles ---------------------------------------------------------------------------


def _with_held(
    configured: configuration.Configuration, troubles: Troubles
) -> configuration.Configuration:
    if not troubles.held:
        return configured
    first = (configuration.PluginOptions(_HELD_BACK),)
    return msgspec.structs.replace(configured, tiers=(first, *configured.tiers))


def _find(find: opening.FindPlugin, troubles: Troubles) -> opening.FindPlugin:
    def careful(
        name: str, already_open: Any
    ) -> Callable[[configuration.PluginOptions], session.Plugin]:
        if name == _HELD_BACK:
            return lambda options: HeldBack(troubles.held)
        trouble = troubles.out.get(name)
        return find(name, already_open) if trouble is None else lambda options: StandIn(trouble)

    return careful


class HeldBack:
    """Keeps jobs from being tried that a plugin failed on."""

    def __init__(self, jobs: Mapping[str, Trouble]) -> None:
        self._jobs = dict(jobs)

    def open(self, within: session.Session) -> None:
        """Object to them, at the door and later."""
        within.add_job_valid(self._objection)
        within.add_job_enqueueable(
            lambda job: (
                extension_points.REJECT if job.key in self._jobs else extension_points.ABSTAIN
            )
        )
        for key, trouble in self._jobs.items():
            within.complaints.append(
                f"plugin {trouble.plugin} failed on {key}: {trouble.reason}: the job is held back"
            )

    def close(self, within: session.Session) -> None:
        """Nothing stays."""

    def _objection(self, job: entities.Job) -> extension_points.Invalid | None:
        trouble = self._jobs.get(job.key)
        if trouble is None:
            return None
        return extension_points.Invalid(
            extension_points.PLUGIN_FAILED, f"plugin {trouble.plugin} failed: {trouble.reason}"
        )


class StandIn:
    """Answers for a plugin that is out; see the module for what."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self._text = f"plugin {trouble.plugin} failed: {trouble.reason}"

    def open(self, within: session.Session) -> None:
        """Register where the plugin had registered, or everywhere if nobody knows."""
        within.failures[self._trouble.plugin] = self._trouble.reason
        within.complaints.append(f"{self._text}: this session goes on without it")
        answers: dict[str, Callable[[], None]] = {
            **dict.fromkeys(_PLACING, lambda: within.add_pre_predicate(lambda task: self._text)),
            **dict.fromkeys(_EVICTING, lambda: within.add_evictable(lambda job, task: False)),
            "allocatable": lambda: within.add_allocatable(lambda queue, task: False),
            "overused": lambda: within.add_overused(lambda queue: True),
            "preemptive": lambda: within.add_preemptive(lambda queue, tasks: False),
            "job_ready": lambda: within.add_job_ready(lambda job: False),
            "subjob_ready": lambda: within.add_subjob_ready(lambda job, subjob: False),
            "job_pipelined": lambda: within.add_job_pipelined(lambda job: extension_points.REJECT),
            "subjob_pipelined": lambda: within.add_subjob_pipelined(
                lambda job, subjob: extension_points.REJECT
            ),
            "job_enqueueable": lambda: within.add_job_enqueueable(
                lambda job: extension_points.REJECT
            ),
            "job_starving": lambda: within.add_job_starving(lambda job: False),
            "job_valid": lambda: within.add_job_valid(
                lambda job: extension_points.Invalid(extension_points.PLUGIN_FAILED, self._text)
            ),
        }
        had = self._trouble.points
        for point in sorted(_RESTRICTING if had is None else _RESTRICTING & had):
            answers[point]()

    def close(self, within: session.Session) -> None:
        """Nothing stays."""
