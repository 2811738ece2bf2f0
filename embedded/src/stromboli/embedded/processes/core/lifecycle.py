"""Determines the next actions for a pod's containers from events.

The rules are a kubelet's: init containers run one after another; sidecars (init containers that
always restart) start before the main containers and stop after them; restarts follow the pod's
policy, with a growing back-off; and there are probes, a deadline, and termination with a grace
period. A container's run has these states::

    waiting ─▶ starting ─▶ running ─▶ stopping
       ▲           └──────────┴───────────┴──▶ ended
       └── by restart policy ──────────────────────┘

Source: the kubelet of Kubernetes 1.34 (``kuberuntime_manager.go``, ``prober/worker.go``).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from stromboli.embedded.processes.core.pod import Container, Pod, Probe, Terminated, Waiting

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0
"""Back-off in seconds. The first restart of a container is immediate; then the delays double from
the first to the longest.
"""
FORGIVEN_S = 600.0
"""The back-off of a container that ran this long is reset."""
ASK_AGAIN_S = 2.0
"""Retry interval for missing inputs of a container, such as a ConfigMap."""
KILLED = 137

ProbeKind = Literal["startup", "liveness", "readiness"]
Stage = Literal["waiting", "starting", "running", "stopping", "ended"]


class Started(msgspec.Struct, frozen=True):
    """The container's command has started."""

    container: str


class Refused(msgspec.Struct, frozen=True):
    """The container could not be started now; retry later."""

    container: str
    reason: str
    message: str


class Ended(msgspec.Struct, frozen=True):
    """The container's command has ended, and no process of it is left."""

    container: str
    exit_code: int
    reason: str = ""
    message: str = ""


class ProbeAnswered(msgspec.Struct, frozen=True):
    """The result of a probe."""

    container: str
    probe: ProbeKind
    is_good: bool
    message: str = ""


class NodeUnsuitable(msgspec.Struct, frozen=True):
    """This node can never run the pod."""

    reason: str
    message: str


class Deleted(msgspec.Struct, frozen=True):
    """The pod was deleted with a grace period."""

    grace_s: float


class TimePassed(msgspec.Struct, frozen=True):
    """``wake_at`` was reached, or the pod is new."""


Event = Started | Refused | Ended | ProbeAnswered | NodeUnsuitable | Deleted | TimePassed


class Start(msgspec.Struct, frozen=True):
    """Start the run with this number of the container, counting from 0."""

    container: str
    run: int


class Stop(msgspec.Struct, frozen=True):
    """Terminate the container, and kill it after the grace period."""

    container: str
    grace_s: float


class RunProbe(msgspec.Struct, frozen=True):
    """Execute a probe."""

    container: str
    probe: ProbeKind


Action = Start | Stop | RunProbe


class ProbeState(msgspec.Struct):
    """A probe of a run. ``is_asked``: it is being executed. ``good``, ``bad``: consecutive
    results."""

    due_at: datetime
    is_asked: bool = False
    good: int = 0
    bad: int = 0


class Run(msgspec.Struct):
    """The state of a container. ``runs``: how many runs began. ``has_started``: its startup probe,
    if any, succeeded. ``last``: how the previous run ended.
    """

    stage: Stage = "waiting"
    runs: int = 0
    began_at: datetime | None = None
    end: Terminated | None = None
    last: Terminated | None = None
    waiting: Waiting = Waiting(reason="ContainerCreating")
    retry_at: datetime | None = None
    pause_s: float = 0.0
    has_started: bool = False
    is_ready: bool = False
    stop_message: str = ""
    probe_state: dict[ProbeKind, ProbeState] = {}

    @property
    def is_alive(self) -> bool:
        """Return whether processes of the run may exist."""
        return self.stage in ("starting", "running", "stopping")

    @property
    def has_succeeded(self) -> bool:
        """Return whether the run ended successfully."""
        return self.stage == "ended" and self.end is not None and self.end.exit_code == 0


class PodLifecycle:
    """The life cycle of one pod on its node.

    ``is_over``: no container runs or will run. ``is_deleted``: deletion was requested. ``reason``
    and ``message``: why the pod as a whole failed.
    """

    def __init__(self, pod: Pod, now: datetime) -> None:
        self.pod = pod
        self.runs: dict[str, Run] = {each.name: Run() for each in pod.containers}
        self.began_at = pod.status.start_time or now
        self.is_initialized = not pod.spec.init_containers
        self.is_over = self.is_deleted = self.has_failed = False
        self.reason = self.message = ""
        self._grace_s: float | None = None
        self._remember(now)

    @property
    def wake_at(self) -> datetime | None:
        """Return the next time at which something changes without another event; None if never."""
        times = [run.retry_at for run in self.runs.values() if run.stage == "waiting"]
        for run in self.runs.values():
            if run.stage == "running":
                times += [probe_state.due_at for _, probe_state in _due_probes(run)]
        if self._grace_s is None:
            times.append(self._deadline())
        return min((at for at in times if at is not None), default=None)

    def handle(self, event: Event, now: datetime) -> list[Action]:
        """Apply an event, and return the actions that are due now."""
        again: list[Action] = []
        match event:
            case Started(container):
                self._started(self.runs[container], self._container(container), now)
            case Refused(container, reason, message):
                run = self.runs[container]
                if run.stage == "starting":
                    run.stage, run.runs = "waiting", run.runs - 1
                    run.waiting = Waiting(reason=reason, message=message)
                    run.retry_at = now + timedelta(seconds=ASK_AGAIN_S)
                elif run.stage == "stopping":
                    unbegun = Ended(container, KILLED, "Error", "stopped before it started")
                    self._ended(self._container(container), unbegun, now)
            case Ended(container):
                if self.runs[container].is_alive:
                    self._ended(self._container(container), event, now)
            case ProbeAnswered(container):
                again += self._answered(self._container(container), event, now)
            case NodeUnsuitable(reason, message):
                self.has_failed, self.reason, self.message = True, reason, message
            case Deleted(grace_s):
                self.is_deleted = True
                if self._grace_s is None or grace_s < self._grace_s:
                    again += [
                        Stop(name, grace_s)
                        for name, run in self.runs.items()
                        if run.stage == "stopping"
                    ]
                    self._grace_s = grace_s
            case TimePassed():
                pass
        return [*again, *self._decide(now)]

    # --- events ----------------------------------------------------------------------------

    def _remember(self, now: datetime) -> None:
        """Restore state from the published status after a restart of the node, which no process
        survives."""
        reported = {
            status.name: status
            for status in (
                *self.pod.status.init_container_statuses,
                *self.pod.status.container_statuses,
            )
        }
        for container in self.pod.containers:
            status = reported.get(container.name)
            if status is None:
                continue
            run = self.runs[container.name]
            run.runs, run.last = status.restart_count, status.last_state.terminated
            if status.state.running is not None:
                run.runs, run.stage = status.restart_count + 1, "running"
                run.began_at = status.state.running.started_at or now
                message = "the node was stopped while the container ran"
                lost = Ended(container.name, KILLED, "ContainerStatusUnknown", message)
                self._ended(container, lost, now)
            elif status.state.terminated is not None:
                run.runs, run.end = status.restart_count + 1, status.state.terminated
                run.stage = "ended"
                if self._is_restarted(container, run.end.exit_code):
                    run.stage, run.last = "waiting", run.end
            elif run.last is not None:
                run.runs = status.restart_count + 1

    def _started(self, run: Run, container: Container, now: datetime) -> None:
        if run.stage == "starting":
            run.stage = "running"
        run.began_at, run.end = now, None
        run.has_started = container.startup_probe is None
        run.is_ready = run.has_started and container.readiness_probe is None
        run.probe_state = {
            kind: ProbeState(now + timedelta(seconds=probe.initial_delay_seconds))
            for kind, probe in probes(container).items()
        }

    def _ended(self, container: Container, event: Ended, now: datetime) -> None:
        run = self.runs[container.name]
        reason = event.reason or ("Completed" if event.exit_code == 0 else "Error")
        run.end = Terminated(
            exit_code=event.exit_code,
            reason=reason,
            message=event.message or run.stop_message,
            started_at=run.began_at,
            finished_at=now,
        )
        ran_s = (now - run.began_at).total_seconds() if run.began_at else 0.0
        run.stage, run.is_ready, run.has_started = "ended", False, False
        run.began_at, run.stop_message, run.probe_state = None, "", {}
        if not self._is_restarted(container, event.exit_code):
            return
        run.stage, run.last = "waiting", run.end
        pause_s = 0.0 if ran_s >= FORGIVEN_S else run.pause_s
        run.pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        run.retry_at = now + timedelta(seconds=pause_s)
        message = f"back-off {pause_s:.0f}s before the next restart"
        run.waiting = Waiting(reason="CrashLoopBackOff", message=message)

    def _answered(
        self, container: Container, event: ProbeAnswered, now: datetime
    ) -> Iterator[Stop]:
        run = self.runs[container.name]
        probe, probe_state = probes(container).get(event.probe), run.probe_state.get(event.probe)
        if run.stage != "running" or probe is None or probe_state is None:
            return
        probe_state.is_asked = False
        probe_state.due_at = now + timedelta(seconds=max(probe.period_seconds, 1))
        probe_state.good, probe_state.bad = (
            (probe_state.good + 1, 0) if event.is_good else (0, probe_state.bad + 1)
        )
        if probe_state.good >= probe.success_threshold:
            if event.probe == "startup":
                run.has_started = True
                del run.probe_state["startup"]
                run.is_ready = container.readiness_probe is None
            elif event.probe == "readiness":
                run.is_ready = True
        elif probe_state.bad >= probe.failure_threshold:
            if event.probe == "readiness":
                run.is_ready = False
                return
            run.stage, run.is_ready = "stopping", False
            run.stop_message = f"its {event.probe} probe failed: {event.message}"
            own_s = probe.termination_grace_period_seconds
            usual_s = self.pod.spec.termination_grace_period_seconds
            yield Stop(container.name, usual_s if own_s is None else own_s)

    # --- actions ---------------------------------------------------------------------------

    def _decide(self, now: datetime) -> Iterator[Action]:
        deadline = self._deadline()
        if self._grace_s is None and deadline is not None and now >= deadline:
            self.has_failed, self.reason = True, "DeadlineExceeded"
            self.message = f"the pod was active for {self.pod.spec.active_deadline_seconds}s"
        if self._grace_s is None and (self.has_failed or self._is_finished()):
            self._grace_s = float(self.pod.spec.termination_grace_period_seconds)
        if self._grace_s is not None:
            yield from self._stop_all(self._grace_s)
            return
        yield from self._initialize(now)
        if self.is_initialized:
            for container in self.pod.spec.containers:
                yield from self._start(container, now)
        yield from self._run_probes(now)

    def _initialize(self, now: datetime) -> Iterator[Action]:
        for container in self.pod.spec.init_containers:
            run = self.runs[container.name]
            yield from self._start(container, now)
            is_passed = run.has_started if container.is_sidecar else run.has_succeeded
            if not is_passed and not self.is_initialized:
                return
        self.is_initialized = True

    def _start(self, container: Container, now: datetime) -> Iterator[Action]:
        run = self.runs[container.name]
        if run.stage == "waiting" and (run.retry_at is None or now >= run.retry_at):
            run.stage, run.retry_at, run.runs = "starting", None, run.runs + 1
            run.waiting = Waiting(reason="ContainerCreating")
            yield Start(container.name, run.runs - 1)

    def _run_probes(self, now: datetime) -> Iterator[Action]:
        for name, run in self.runs.items():
            for kind, probe_state in _due_probes(run) if run.stage == "running" else ():
                if now >= probe_state.due_at:
                    probe_state.is_asked = True
                    yield RunProbe(name, kind)

    def _stop_all(self, grace_s: float) -> Iterator[Action]:
        """Stop running containers, sidecars last."""
        sidecars = {each.name for each in self.pod.spec.init_containers if each.is_sidecar}
        alive = [name for name, run in self.runs.items() if run.is_alive]
        turn = [name for name in alive if name not in sidecars] or alive
        for name in turn:
            if self.runs[name].stage != "stopping":
                self.runs[name].stage = "stopping"
                yield Stop(name, grace_s)
        self.is_over = not alive

    def _is_finished(self) -> bool:
        """Return whether all main containers have ended; a failed init container ends the pod."""
        for container in self.pod.spec.init_containers:
            run = self.runs[container.name]
            if run.stage == "ended" and not run.has_succeeded:
                self.has_failed = True
                return True
        return all(self.runs[each.name].stage == "ended" for each in self.pod.spec.containers)

    def _deadline(self) -> datetime | None:
        seconds = self.pod.spec.active_deadline_seconds
        return None if seconds is None else self.began_at + timedelta(seconds=seconds)

    def _is_restarted(self, container: Container, exit_code: int) -> bool:
        if self._grace_s is not None:
            return False
        if container.is_sidecar:
            return True
        policy = self.pod.spec.restart_policy
        is_init = container.name in {each.name for each in self.pod.spec.init_containers}
        always = policy == "Always" and not is_init
        return always or (policy != "Never" and exit_code != 0)

    def _container(self, name: str) -> Container:
        return next(each for each in self.pod.containers if each.name == name)


def probes(container: Container) -> Mapping[ProbeKind, Probe]:
    """Return the probes of a container."""
    probe_fields: tuple[tuple[ProbeKind, Probe | None], ...] = (
        ("startup", container.startup_probe),
        ("liveness", container.liveness_probe),
        ("readiness", container.readiness_probe),
    )
    return {kind: probe for kind, probe in probe_fields if probe is not None}


def _due_probes(run: Run) -> list[tuple[ProbeKind, ProbeState]]:
    """Return the probes that may run: only the startup probe until it has succeeded."""
    return [
        (kind, probe_state)
        for kind, probe_state in run.probe_state.items()
        if not probe_state.is_asked and run.has_started != (kind == "startup")
    ]
