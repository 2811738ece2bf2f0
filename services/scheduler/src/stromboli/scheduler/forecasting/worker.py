"""``python -m stromboli.scheduler.forecasting.worker``: the forecast process of a scheduler.

It reads requests from stdin and writes answers to stdout, see ``frames``. It is a separate process
so that a forecast can neither delay a session nor exhaust the scheduler's memory: it has a lower
priority and a memory limit, and pauses when it has used its share of CPU. It ends with the
scheduler: at the end of stdin, or when its parent process changes.
"""

import contextlib
import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from stromboli.scheduler import configuration_file, discovery
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.forecast import (
    cpu_budget,
    expected_starts,
    present,
    range_calibration,
    run_time_events,
    run_times,
    what_if,
)
from stromboli.scheduler.forecasting import frames
from stromboli.shared import decoding
from stromboli.shared.messages import base, batch

BURST_S = 6.0
"""CPU seconds that may be used without a pause: a tenth of a core over a minute."""
LEAST_DRAWS = 5
TOLERANCE = 0.01
"""Pods whose ends differ by less than 1 % of the simulated time until then share a session."""


class ForecastWorker:
    """Handles one request after another. ``spent_s``: CPU seconds that the process has used for
    other work before; they do not count, while the CPU seconds of its start do."""

    def __init__(self, start: frames.Start, spent_s: float = 0.0) -> None:
        self._start = start
        self._parent = os.getppid()
        self._budget = cpu_budget.CpuBudget(start.share, BURST_S, time.monotonic())
        self._spent_s = spent_s
        self._learned = run_times.RunTimeEstimator()
        self._events = run_time_events.RunTimeEvents(self._learned)
        self.calibrator = range_calibration.RangeCalibrator(start.widening)
        self._objects: dict[str, list[Any]] = {}
        self._registry: plugins.Registry = discovery.discover_plugins()
        self._configured: configuration.Configuration | None = None
        file = start.configuration
        self._file = (
            configuration_file.ConfigurationFile(Path(file), self._registry) if file else None
        )

    def handle(self, request: frames.Request) -> frames.Answer | None:
        """Handle a request. Returns the answer, if the request has one."""
        match request:
            case frames.Events():
                for kind, value in request.records:
                    with contextlib.suppress(msgspec.DecodeError, KeyError):  # reported elsewhere
                        message = base.decode(kind, value)
                        self._events.apply(message)
                        self._calibrate(message)
                self._pace()
            case frames.Objects():
                decode = decoding.msgpack_decoder_of(present.FIELDS[request.field].struct).decode
                self._objects.setdefault(request.field, []).extend(map(decode, request.encoded))
                self._pace()
            case frames.Compute() | frames.Ask():
                try:
                    if isinstance(request, frames.Compute):
                        return self._compute(request)
                    return self._answer(request)
                except Exception as error:  # one request failed; the next one may not
                    return frames.Failed(f"{type(error).__name__}: {error}")
                finally:
                    self._objects = {}
        return None

    def _answer(self, requested: frames.Ask) -> frames.Answered:
        until = time.monotonic() + requested.within_s
        self._budget.spend(requested.spent_s, time.monotonic())
        cluster = present.cluster(
            present.Present(datetime.fromisoformat(requested.now), self._objects)
        )

        def pace() -> None:
            self._pace()
            if time.monotonic() > until:
                raise what_if.OutOfTimeError

        try:
            answer = what_if.answer(
                cluster,
                requested.question,
                self._options(pace),
                self._learned.draw,
                stratified(requested.draws, len(cluster.pod_groups)),
                lambda: time.monotonic() < until,
            )
        except what_if.CannotTellError as error:
            return frames.Answered(cannot_tell=str(error))
        except what_if.OutOfTimeError:
            waiting = sum(it.status.phase in ("Pending", "Inqueue") for it in cluster.pod_groups)
            return frames.Answered(
                cannot_tell=f"a simulation with {waiting} waiting jobs takes longer than "
                f"{requested.within_s:.0f} s"
            )
        horizon_s = expected_starts.HORIZON.total_seconds()
        before, after = (
            requested.widening.applied(each, horizon_s) for each in (answer.present, answer.changed)
        )
        return frames.Answered(before, after, answer.draws, answer.notes)

    def _options(
        self, pause: Callable[[], None], first: int | None = None
    ) -> expected_starts.Options:
        return expected_starts.Options(
            configured=self._configuration(),
            find=self._registry.find,
            scheduler_names=self._start.scheduler_names,
            first=first,
            tolerance=TOLERANCE,
            pause=pause,
        )

    def _compute(self, requested: frames.Compute) -> frames.Computed:
        began_s = time.process_time()
        self._budget.spend(requested.spent_s, time.monotonic())
        now = datetime.fromisoformat(requested.now)
        cluster = present.cluster(present.Present(now, self._objects))
        options = self._options(self._pace, requested.first)
        drawn = 0

        def parts() -> Iterator[list[float]]:
            nonlocal drawn
            until = time.monotonic() + requested.within_s
            for numbers in stratified(requested.draws, len(cluster.pod_groups)):
                if drawn >= LEAST_DRAWS and time.monotonic() > until:
                    return
                drawn += 1
                yield numbers

        starts = expected_starts.expected_starts(cluster, options, self._learned.draw, parts())
        for each in starts:
            self.calibrator.forecast(now, each)
        widening = self.calibrator.widening
        horizon_s = expected_starts.HORIZON.total_seconds()
        widened = [widening.applied(each, horizon_s) for each in starts]
        cpu_s = time.process_time() - began_s + requested.spent_s
        return frames.Computed(widened, drawn, cpu_s, widening)

    def _calibrate(self, message: msgspec.Struct) -> None:
        """Learn from the start of a job that has a forecast. PodGroups of other owners have no
        events."""
        match message:
            case batch.JobPhaseChanged(after="Running"):
                self.calibrator.started(f"{message.job}-{message.uid}", message.at)
            case batch.JobDeleted():
                self.calibrator.deleted(f"{message.job}-{message.uid}")

    def _configuration(self) -> configuration.Configuration:
        """The configuration in the file; if the file has errors, the previous configuration stays
        in use."""
        if self._file is not None:
            with contextlib.suppress(configuration_file.ConfigurationFileError):
                loaded = self._file.read_if_changed()
                self._configured = self._configured if loaded is None else loaded.configuration
        if self._configured is None:
            self._configured = configuration_file.load_default(self._registry).configuration
        return self._configured

    def _pace(self) -> None:
        """Pause as long as the share of CPU requires. Ends the process if its parent has ended."""
        now_s = time.process_time()
        pause_s = self._budget.spend(now_s - self._spent_s, time.monotonic())
        self._spent_s = now_s
        if os.getppid() != self._parent:
            sys.exit()
        if pause_s > 0:
            time.sleep(pause_s)


def stratified(draws: int, groups: int) -> Iterator[list[float]]:
    """Uniform random numbers in which each group has one in each of ``draws`` equal intervals, so
    that few draws cover the whole distribution (Latin hypercube sampling; McKay et al., 1979)."""
    random = np.random.default_rng(0)
    order = np.array([random.permutation(draws) for _ in range(groups)]).reshape(groups, draws)
    for number in range(draws):
        yield ((order[:, number] + random.random(groups)) / draws).tolist()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Handle requests until the end of ``source``."""
    worker: ForecastWorker | None = None
    while (head := source.read(frames.LENGTH.size)) and len(head) == frames.LENGTH.size:
        (size,) = frames.LENGTH.unpack(head)
        request = frames.request(source.read(size))
        if isinstance(request, frames.Start):
            _limit(request.memory_mib)
            worker = ForecastWorker(request)
            continue
        answer = None if worker is None else worker.handle(request)
        if answer is not None:
            sink.write(frames.frame(answer))
            sink.flush()


def _limit(memory_mib: int) -> None:
    """Set a lower priority, a memory limit, and the highest OOM score.

    On a busy core the process gets a third of the time that the scheduler gets, and no more than
    its share of a core. With the lowest priority, 19, it would get a hundredth, and no question
    would be answered.
    """
    os.nice(5)
    limit = memory_mib * 1024 * 1024
    with contextlib.suppress(OSError, ValueError):  # not on every system
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
