"""A pod's status as ``kubectl get pods`` shows it. Pure.

Source: kubectl's printer of pods (Kubernetes, pkg/printers/internalversion), whose terms users and
scripts know.
"""

from datetime import datetime

import msgspec

from stromboli.cli.render import output
from stromboli.shared.api.core import Condition, Container, SchedulingGate
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.meta import Object, Part


class Terminated(Part, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Waiting(Part, frozen=True, kw_only=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class Running(Part, frozen=True, kw_only=True):
    """The state of a running container, with the time of its start."""

    started_at: datetime | None = None


class State(Part, frozen=True, kw_only=True):
    """The state of a container: waiting, running or terminated."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """The status of one container."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: State = State()
    last_state: State = State()


class Status(Part, frozen=True, kw_only=True):
    """The observed state of the pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Spec(Part, frozen=True, kw_only=True):
    """The containers of the pod's spec."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class Pod(Object, frozen=True, kw_only=True):
    """A pod with the statuses of its containers."""

    spec: Spec = Spec()
    status: Status = Status()


BEGINNING = ("", "ContainerCreating", "PodInitializing")
"""Reasons of a container that is about to start."""
PODS = Kind("", "v1", "Pod", "pods", Pod)


def decode(raw: bytes | msgspec.Raw) -> Pod:
    """Decode a pod. Raises msgspec.DecodeError."""
    return PODS.decode(raw)


def is_over(pod: Pod) -> bool:
    """Whether all containers of the pod have ended and none will be restarted."""
    return pod.status.phase in ("Succeeded", "Failed")


def start_error(pod: Pod) -> Waiting | None:
    """What keeps a container of the pod from starting on its node: an image, a volume, a secret."""
    for one in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = one.state.waiting
        if waiting is not None and waiting.reason not in BEGINNING:
            return waiting
    return None


def ready(pod: Pod) -> str:
    """``ready/total``; sidecars (init containers that restart always) count."""
    sidecars = _sidecars(pod)
    total = len(pod.spec.containers) + len(sidecars)
    up = sum(one.ready and one.state.running is not None for one in pod.status.container_statuses)
    up += sum(
        one.ready and one.started is True and one.name in sidecars
        for one in pod.status.init_container_statuses
    )
    return f"{up}/{total}"


def restarts(pod: Pod, now: datetime) -> str:
    """The number of restarts, with the age of the last one: ``3 (5m ago)``."""
    counted = _restart_statuses(pod)
    count = sum(one.restart_count for one in counted)
    ends = [
        one.last_state.terminated.finished_at
        for one in counted
        if one.last_state.terminated and one.last_state.terminated.finished_at
    ]
    return f"{count} ({output.age(max(ends), now)} ago)" if count and ends else str(count)


def unschedulable_message(pod: Pod) -> str:
    """The scheduler's message why the pod has no node yet; empty if it has a node or no message."""
    return next(
        (
            one.message
            for one in pod.status.conditions
            if one.type == "PodScheduled" and one.status == "False"
        ),
        "",
    )


def status(pod: Pod) -> str:
    """``Running``, ``Init:0/1``, ``CrashLoopBackOff``, ``Completed``, ``Terminating`` and so on."""
    text = pod.status.reason or pod.status.phase or "Pending"
    if any(
        condition.type == "PodScheduled" and condition.reason == "SchedulingGated"
        for condition in pod.status.conditions
    ):
        text = "SchedulingGated"
    initial = _initializing(pod)
    text = initial or _container_reason(pod, text)
    if pod.metadata.deletion_timestamp is not None:
        if pod.status.reason == "NodeLost":
            return "Unknown"
        if pod.status.phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return text


def _container_reason(pod: Pod, text: str) -> str:
    """The reason of the first container that has one."""
    has_running = False
    for one in reversed(pod.status.container_statuses):
        waiting, ended = one.state.waiting, one.state.terminated
        if waiting is not None and waiting.reason:
            text = waiting.reason
        elif ended is not None:
            text = ended.reason or _termination_text(ended)
        elif one.ready and one.state.running is not None:
            has_running = True
    if text == "Completed" and has_running:
        is_ready = any(
            condition.type == "Ready" and condition.status == "True"
            for condition in pod.status.conditions
        )
        return "Running" if is_ready else "NotReady"
    return text


def _initializing(pod: Pod) -> str:
    """The state of the first unfinished init container, such as ``Init:0/1``; empty if there is
    none."""
    sidecars, total = _sidecars(pod), len(pod.spec.init_containers)
    for index, one in enumerate(pod.status.init_container_statuses):
        waiting, ended = one.state.waiting, one.state.terminated
        if (ended is not None and ended.exit_code == 0) or (one.name in sidecars and one.started):
            continue
        if ended is not None:
            return f"Init:{ended.reason or _termination_text(ended)}"
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return f"Init:{waiting.reason}"
        return f"Init:{index}/{total}"
    return ""


def _restart_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """The containers whose restarts count: while the pod initializes, its init containers."""
    if _initializing(pod):
        return pod.status.init_container_statuses
    sidecars = _sidecars(pod)
    return pod.status.container_statuses + tuple(
        one for one in pod.status.init_container_statuses if one.name in sidecars
    )


def _termination_text(ended: Terminated) -> str:
    return f"Signal:{ended.signal}" if ended.signal else f"ExitCode:{ended.exit_code}"


def _sidecars(pod: Pod) -> frozenset[str]:
    return frozenset(one.name for one in pod.spec.init_containers if one.restart_policy == "Always")
