"""Reservations in virtual time, with random gangs, time limits and reservations.

Safety: a task never overlaps a reservation that it may not use, and a reserved gang starts when its
period begins if run times are no longer than the limits. Liveness: after the last period, every
other gang has started.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import STEP, Gang, Loop, Queue
from stromboli.shared import keys
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

EXAMPLES = 50
NODES = {"n1": 2, "n2": 2, "n3": 2}
MINUTE = timedelta(minutes=1)
LAST = 120
"""The last minute in which a period begins."""
SLACK = timedelta(seconds=20)
"""Sessions at one time are a second apart here."""
SETTINGS = [
    sessions.configured(
        [sessions.plugin("priority"), sessions.plugin("gang")],
        [sessions.plugin("predicates"), sessions.plugin("proportion")],
        run="enqueue, allocate, backfill",
    ),
    sessions.configured(
        [sessions.plugin("reservation"), sessions.plugin("priority"), sessions.plugin("gang")],
        [sessions.plugin("predicates"), sessions.plugin("queue-policy")],
        run="enqueue, allocate, preempt, backfill",
    ),
]


class Reserved(msgspec.Struct, frozen=True):
    """A period on nodes, in minutes; for the user of its name, or for maintenance."""

    name: str
    start: int
    length: int
    nodes: tuple[str, ...]
    is_maintenance: bool

    @property
    def end(self) -> int:
        return self.start + self.length


class Work(msgspec.Struct, frozen=True):
    """A gang in minutes. ``limit``: None for none. ``asks``: the reservation that it names."""

    name: str
    at: int
    pods: int
    cpu: int
    limit: int | None
    runs: float
    asks: str
    user: str


class Case(msgspec.Struct, frozen=True):
    reserved: tuple[Reserved, ...]
    work: tuple[Work, ...]
    setting: int

    def on(self, node: str) -> list[Reserved]:
        return [each for each in self.reserved if node in each.nodes]

    def promised(self, work: Work) -> int | None:
        """The minute in which the gang must start: that of its period if it came before it, fits
        on the nodes, is the only one there, and could run into no other reservation.
        """
        own = next((each for each in self.reserved if each.name == work.asks), None)
        rivals = sum(each.asks == work.asks for each in self.work)
        if own is None or own.is_maintenance or work.user != own.name or rivals > 1:
            return None
        fits = work.pods <= len(own.nodes)
        ahead = [each for node in own.nodes for each in self.on(node) if each is not own]
        is_clear = not any(
            each.end > own.start and (work.limit is None or each.start < own.start + work.limit)
            for each in ahead
        )
        return own.start if fits and is_clear and work.at < own.start else None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = ["r0", "r1", "r2"][: draw(st.integers(1, 3))]
    reserved = tuple(
        Reserved(
            name,
            draw(st.integers(5, LAST)),
            draw(st.integers(1, 60)),
            tuple(sorted(draw(st.sets(st.sampled_from(sorted(NODES)), min_size=1)))),
            draw(st.booleans()),
        )
        for name in names
    )
    work = []
    for at in range(draw(st.integers(1, 8))):
        asks = draw(st.sampled_from(["", "", *names]))
        user = draw(st.sampled_from([asks or "tom", asks or "tom", "tom", *names]))
        limit = draw(st.none() | st.integers(1, 90))
        ratio = draw(st.sampled_from([1.0, 0.5, 0.1]))
        work.append(
            Work(
                f"g{at}",
                draw(st.integers(0, LAST)),
                draw(st.integers(1, 3)),
                draw(st.integers(1, 2)),
                limit,
                (draw(st.integers(1, 90)) if limit is None else limit) * ratio,
                asks,
                user,
            )
        )
    return Case(reserved, tuple(work), draw(st.integers(0, len(SETTINGS) - 1)))


class Span(msgspec.Struct, frozen=True):
    """When a gang started, when it could end at the latest by its limit, and where."""

    start: datetime
    limit: datetime | None
    nodes: tuple[str, ...]


class Outcome(msgspec.Struct, frozen=True):
    began: datetime
    spans: Mapping[str, Span]

    def minute(self, at: int) -> datetime:
        return self.began + at * MINUTE


def simulated(case: Case) -> Outcome:
    """Run the case until nothing is due any more."""
    loop = Loop(SETTINGS[case.setting], NODES, [Queue("q")])
    began = loop.now
    for each in case.reserved:
        who: dict[str, Any] = {} if each.is_maintenance else {"users": (each.name,)}
        start, length = began + each.start * MINUTE, each.length * MINUTE
        loop.put(
            builders.make_reservation(
                each.name, start, length, *each.nodes, at_start="Leave", **who
            )
        )
    coming = sorted(case.work, key=lambda each: (each.at, each.name))
    spans: dict[str, Span] = {}
    ends: dict[str, datetime] = {}
    while True:
        times = [*ends.values(), *(began + each.at * MINUTE for each in coming[:1])]
        times += [loop.due_at] if loop.due_at is not None else []
        if not times:
            return Outcome(began, spans)
        now = max(min(times), loop.now)
        loop.now = max(now - STEP, loop.now)
        for name in sorted(name for name, end in ends.items() if end <= now):
            del ends[name]
            loop.end(name)
        while coming and began + coming[0].at * MINUTE <= now:
            loop.add(gang(coming.pop(0)))
        loop.settle_once()
        for work in case.work:
            if work.name in loop.gangs and work.name not in spans and loop.places(work.name):
                start = loop.now
                limit = None if work.limit is None else start + work.limit * MINUTE
                spans[work.name] = Span(start, limit, tuple(loop.places(work.name)))
                ends[work.name] = start + work.runs * MINUTE


def gang(work: Work) -> Gang:
    notes = {keys.USER: work.user}
    if work.limit is not None:
        notes[keys.RUNNING_ESTIMATE] = f"{work.limit}m"
    if work.asks:
        notes[keys.RESERVATION] = work.asks
    return Gang(
        work.name, "q", 0, work.pods, work.cpu, waiting=work.pods, is_inside=False,
        annotations=notes,
    )  # fmt: skip


def of_tom(name: str, at: int) -> Work:
    return Work(name, at, 1, 1, None, 1.0, "", "tom")


ENDED_WITHOUT_A_START = Case(
    tuple(Reserved(name, 5, 1, ("n1",), is_maintenance=False) for name in ("r0", "r1")),
    (
        of_tom("g0", 7),
        Work("g1", 0, 1, 2, None, 1.0, "r0", "r0"),
        of_tom("g2", 0),
        of_tom("g3", 0),
        Work("g4", 0, 2, 2, None, 1.0, "r0", "r0"),
    ),
    0,
)
"""Gangs that are admitted in the period and do not start until its end kept the room of the queue,
so that g0 was never admitted."""

ROOM_KEPT_FOR_ANOTHER = Case(
    (Reserved("r0", 40, 2, ("n1",), is_maintenance=False),),
    (
        Work("g0", 0, 1, 2, None, 1.0, "", "tom"),
        msgspec.structs.replace(of_tom("g1", 0), pods=3, runs=45.0),
        msgspec.structs.replace(of_tom("g2", 0), pods=3),
        Work("g3", 0, 1, 1, None, 1.0, "r0", "r0"),
    ),
    0,
)
"""In the period, g1 runs and g2 is admitted and waits: nothing of the queue's room is left for g3,
whose node is idle."""


@depth.examples(EXAMPLES)
@given(cases())
@example(ENDED_WITHOUT_A_START)
@example(ROOM_KEPT_FOR_ANOTHER)
def test_reservations_are_kept_and_every_other_gang_starts(case: Case) -> None:
    """One simulation for the three rules."""
    outcome = simulated(case)
    for work in case.work:
        span = outcome.spans.get(work.name)
        if span is not None:
            check_overlaps_no_reservation_that_it_may_not_use(case, outcome, work, span)
        promised = case.promised(work)
        if promised is not None:
            assert span is not None
            assert span.start <= outcome.minute(promised) + SLACK, "a reserved gang starts in time"
        assert span is not None or work.asks, "after the last period, every other gang has started"


def check_overlaps_no_reservation_that_it_may_not_use(
    case: Case, outcome: Outcome, work: Work, span: Span
) -> None:
    for each in (each for node in span.nodes for each in case.on(node)):
        if each.name == work.asks and each.name == work.user and not each.is_maintenance:
            assert outcome.minute(each.start) <= span.start < outcome.minute(each.end)
            continue
        is_before = span.limit is not None and span.limit <= outcome.minute(each.start)
        assert is_before or span.start >= outcome.minute(each.end), (work, each)
    if work.asks:
        (own,) = [each for each in case.reserved if each.name == work.asks]
        assert set(span.nodes) <= set(own.nodes)
