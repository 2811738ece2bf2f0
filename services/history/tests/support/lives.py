"""Lives of pods, the log that they leave, and what a report must say about them: computed from the
lives, never from the log."""

from datetime import datetime

import msgspec
from hypothesis import strategies as st

from services.history.tests.support import events
from stromboli.shared.messages import batch

LAST_S = 2 * 86_400
"""Lives end within two days."""


class Life(msgspec.Struct, frozen=True):
    """A pod: seconds after noon of its creation, binding, start and end; None: never."""

    job: str
    uid: str
    queue: str
    pod: str
    created: int
    bound: int | None
    started: int | None
    ended: int | None
    cpu: int
    gpu: int
    preempted: bool

    @property
    def events(self) -> list[batch.TaskChanged]:
        """What the controller publishes about it."""
        requests = {"cpu": self.cpu, "memory": events.GIB, "nvidia.com/gpu": self.gpu}
        steps = [("Pending", self.created), ("Bound", self.bound), ("Running", self.started)]
        steps.append(("Failed" if self.preempted else "Succeeded", self.ended))
        return [
            events.task(
                after,
                second,
                self.pod,
                job=self.job,
                uid=self.uid,
                node="" if self.bound is None or second < self.bound else "n1",
                requests=requests if after == "Pending" else {},
                reason="Preempted" if self.preempted and after == "Failed" else "",
            )
            for after, second in steps
            if second is not None
        ]

    def held_s(self, since: int, until: int) -> int:
        """Seconds within the interval in which it had its node."""
        if self.bound is None:
            return 0
        end = until if self.ended is None else min(self.ended, until)
        return max(0, end - max(self.bound, since))

    def idle_s(self, since: int, until: int) -> int:
        """Seconds of those in which its containers did not run yet."""
        if self.bound is None:
            return 0
        ends = [it for it in (self.started, self.ended, until) if it is not None]
        start = self.started if self.started is not None else min(ends[-2:])
        return max(0, min(start, self.ended or until, until) - max(self.bound, since))


@st.composite
def lives(draw: st.DrawFn) -> list[Life]:
    """Pods of a few jobs."""
    made = []
    for number in range(draw(st.integers(1, 8))):
        job = draw(st.integers(0, 2))
        times = sorted(draw(st.lists(st.integers(0, LAST_S), min_size=4, max_size=4)))
        steps = draw(st.integers(1, 4))
        skips_start = draw(st.booleans())
        made.append(
            Life(
                job=f"team/j{job}",
                uid=f"u{job}",
                queue=f"q{job % 2}",
                pod=f"p{number}",
                created=times[0],
                bound=times[1] if steps > 1 else None,
                started=times[2] if steps > 2 and not (skips_start and steps == 4) else None,
                ended=times[3] if steps == 4 else None,
                cpu=draw(st.integers(1, 200)) * 50,
                gpu=draw(st.integers(0, 8)) * 1000,
                preempted=draw(st.booleans()),
            )
        )
    return made


def log_of(pods: list[Life]) -> list[msgspec.Struct]:
    """The events in the order of their times, each job's phase first."""
    jobs = {life.uid: life for life in pods}
    first: list[msgspec.Struct] = [
        events.phase("Pending", 0, 1, job=life.job, uid=life.uid, queue=life.queue)
        for life in jobs.values()
    ]
    changes = [event for life in pods for event in life.events]
    changes.sort(key=_time)  # stable: the order of a pod's events stays
    return [*first, *changes]


def _time(event: batch.TaskChanged) -> datetime:
    return event.at
