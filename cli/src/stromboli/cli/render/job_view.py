"""Jobs as rows of a list, and one job in full. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from stromboli.cli.render import explanation_view, output, pod_status
from stromboli.client import phases, responses
from stromboli.shared import decoding, device_annotations, keys
from stromboli.shared.api import batch, core
from stromboli.shared.api.views import accounting, efficiency
from stromboli.shared.formats import indexes
from stromboli.shared.formats.counts import counted
from stromboli.shared.jobspec import debug_tools

HEADERS: tuple[str, ...] = (
    "NAME", "QUEUE", "PHASE", "REPLICAS", "MIN", "PENDING", "RUNNING", "SUCCEEDED", "FAILED",
    "RETRIES", "AGE",
)  # fmt: skip
WIDE_HEADERS: tuple[str, ...] = ("USER", "PRIORITY", "RAN", "REASON")
"""Further columns of ``-o wide``."""
POD_HEADERS = ("POD", "TASK", "STATUS", "RESTARTS", "NODE", "AGE", "DEVICES")
NO_SCHEDULER = (
    "none is set, so Stromboli does not schedule it; to schedule it here, delete it and submit it "
    "again"
)
"""The text for a job without a scheduler: it was stored without admission, or another system
handles it."""
EVICTIONS = ("Preempted", "Reclaimed")
"""Reasons of Events about evicted pods of a job."""
MOST_INDEXES = 60
"""Maximum characters of an array's failed indexes that are shown; the status contains all of
them."""
TASK_HEADERS = ("TASK", "REPLICAS", "MIN", "IMAGE", "REQUESTS")


def row(job: batch.Job, now: datetime) -> tuple[str, ...]:
    """A job as a row under ``HEADERS``."""
    status = job.status
    succeeded, failed = _ended_counts(job)
    counts = (status.pending, status.running, succeeded, failed, status.retry_count)
    return (
        job.metadata.name,
        job.spec.queue,
        phases.phase_of(job),
        str(sum(task.replicas for task in job.spec.tasks)),
        str(job.spec.min_available),
        *map(str, counts),
        output.age(job.metadata.creation_timestamp, now),
    )


def _ended_counts(job: batch.Job) -> tuple[str, str]:
    """Succeeded and failed pods; for an array, its indexes, ``37/100``, because only some of its
    ended pods are kept."""
    index_sets = _array(job)
    if index_sets is None:
        return str(job.status.succeeded), str(_failed(job))
    requested, succeeded, failed, _ = map(len, index_sets)
    return f"{succeeded}/{requested}", str(phases.failed_pods(job, requested, succeeded, failed))


def _failed(job: batch.Job) -> int:
    total = sum(task.replicas for task in job.spec.tasks)
    return phases.failed_pods(job, total, job.status.succeeded, job.status.failed)


def wide_cells(job: batch.Job, now: datetime) -> tuple[str, ...]:
    """The further cells of a job's row, under ``WIDE_HEADERS``."""
    return (
        job.metadata.annotation(keys.USER) or "",
        job.spec.priority_class_name,
        running_time(job, now),
        phases.reason_of(job),
    )


def running_time(job: batch.Job, now: datetime) -> str:
    """The time since the job last became Running, up to its end. A job that was too short to be
    seen Running ran for at most its ``runningDuration``, which begins at its creation."""
    phase = phases.phase_of(job)
    is_over = phase in phases.ENDS
    began = [it.last_transition_time for it in job.status.conditions if it.status == "Running"]
    if phase != "Running" and not is_over:
        return ""
    if not began or began[-1] is None:
        return job.status.running_duration
    ended = job.status.state.last_transition_time if is_over else None
    return output.age(began[-1], ended or now)


def progress(job: batch.Job) -> str:
    """A job in one line: ``default/train: Running (3 running, 1 pending)``."""
    status = job.status
    counts = {
        "running": status.running,
        "pending": status.pending,
        "succeeded": status.succeeded,
        "failed": status.failed if job.spec.array is not None else _failed(job),
    }
    counts_text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{job.metadata.key}: {phases.phase_of(job)}" + (
        f" ({counts_text})" if counts_text else ""
    )


def finished_count(job: batch.Job) -> tuple[int, int]:
    """The number of finished pods, or indexes of an array, and the total."""
    if job.spec.array is not None:
        requested, succeeded, failed, _ = map(len, _array(job) or ((), (), (), ()))
        return succeeded + failed, requested
    total = sum(task.replicas for task in job.spec.tasks)
    return min(job.status.succeeded + _failed(job), total), total


def facts(job: batch.Job, now: datetime) -> list[str]:
    """Spec and status of the job, a fact per line."""
    spec, state = job.spec, job.status.state
    since = state.last_transition_time or job.metadata.creation_timestamp
    reason = phases.reason_of(job)
    phase = f"{phases.phase_of(job)} for {output.age(since, now)}"
    total = sum(task.replicas for task in spec.tasks)
    lines = [
        ("job", job.metadata.key),
        ("phase", phase + (f" ({reason})" if reason else "")),
        ("pods", progress(job).partition(" (")[2].rstrip(")") or _no_pods(job, total)),
        *_array_lines(job),
        ("queue", spec.queue),
        ("gang", _gang(spec.min_available, total)),
        ("attempts", _attempts(job, now)),
        ("created", f"{_time(job.metadata.creation_timestamp)}"),
    ]
    if not spec.scheduler_name:
        lines.append(("scheduler", NO_SCHEDULER))
    if spec.active_deadline_seconds is not None:
        lines.append(("limit", f"{format_span(spec.active_deadline_seconds)} of run time"))
    if spec.priority_class_name:
        lines.append(("priority", spec.priority_class_name))
    if spec.plugins:
        lines.append(("plugins", ", ".join(spec.plugins)))
    if beside := [request.tool for request in debug_tools.requested_tools(job)]:
        lines.append(("tools", ", ".join(beside)))
    return [f"{label:<9} {text}" for label, text in lines]


def used(attempts: Sequence[accounting.Attempt], *, is_whole: bool = True) -> list[str]:
    """What attempts used of their requests, a line per resource; nothing if it was not measured.
    ``is_whole``: these are all attempts of the job."""
    summary = efficiency.texts(efficiency.of_attempts(attempts))
    beside = "" if is_whole else f", of the last {counted(len(attempts), 'attempt')}"
    words = "; ".join(f"{name} {text}" for name, text in summary)
    return [f"{'used':<9} {words}{beside}"] if words else []


def format_span(seconds: int) -> str:
    """A duration without rounding, as ``--time`` takes it: ``1d12h``, ``90s`` as ``1m30s``."""
    parts, rest = [], seconds
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def last_eviction(events: Iterable[responses.KubernetesEvent], now: datetime) -> list[str]:
    """The last eviction of pods of the job with its beneficiary, as a fact; empty if there was
    none."""
    evictions = [
        (event.at, event.message)
        for event in events
        if event.involved_object.kind == "Job" and event.reason in EVICTIONS and event.at
    ]
    if not evictions:
        return []
    at, message = max(evictions)
    return [f"{'evicted':<9} {message}, {output.age(at, now)} ago"]


def _gang(least: int, total: int) -> str:
    if least >= total:
        return f"all {total} pods start together" if total != 1 else "1 pod"
    return f"minAvailable {least}: the job starts with at least {least} of {total} pods"


def _no_pods(job: batch.Job, total: int) -> str:
    """The text for a job without pods; one without replicas needs to be scaled."""
    if total or phases.phase_of(job) not in ("Pending", "Running"):
        return "none"
    return f"none, as replicas is 0: strom job scale {job.metadata.name} --replicas N"


def _array(job: batch.Job) -> tuple[indexes.Indexes, ...] | None:
    """An array's indexes: those that were not cancelled, succeeded, failed, cancelled. None
    for a job that is not an array, and for invalid indexes of a job that was stored without
    admission; its Events name the error.
    """
    if job.spec.array is None:
        return None
    array = job.status.array or batch.ArrayStatus()
    try:
        requested, succeeded, failed, cancelled = map(
            indexes.parse,
            (job.spec.array.indexes, array.succeeded, array.failed, job.spec.array.cancelled),
        )
    except ValueError:
        return None
    cancelled = cancelled - succeeded - failed
    return requested - cancelled, succeeded, failed, cancelled


def _array_lines(job: batch.Job) -> list[tuple[str, str]]:
    """The number of an array's succeeded indexes, and its failed and cancelled indexes."""
    progress = _array(job)
    if progress is None:
        return []
    requested, succeeded, failed, cancelled = progress
    text = f"{len(succeeded)} of {counted(len(requested), 'index', 'indexes')} succeeded"
    for word, index_set in (("failed", failed), ("cancelled", cancelled)):
        which = str(index_set)
        excerpt = which if len(which) <= MOST_INDEXES else f"{which[:MOST_INDEXES]}..."
        text += f", {len(index_set)} {word}: {excerpt}" if which else ""
    return [("array", text)]


def index_results(job: batch.Job, wanted: indexes.Indexes) -> dict[str, indexes.Indexes]:
    """How these indexes of an array ended: succeeded, failed, cancelled; the others are left out.
    Empty for a job that is not an array."""
    outcomes = zip(("succeeded", "failed", "cancelled"), (_array(job) or ())[1:], strict=False)
    return {word: these for word, all_of_it in outcomes if (these := wanted - (wanted - all_of_it))}


def _attempts(job: batch.Job, now: datetime) -> str:
    """The number of failed attempts, out of ``maxRetry``; the first attempt counts. During a
    back-off, when the next one begins."""
    free = job.status.asked_retries
    beside = f", and {counted(free, 'restart')} not counted" if free else ""
    retry_at = job.status.retry_at
    if retry_at is not None and retry_at > now:
        beside += f"; the next one begins in {output.age(now, retry_at)}"
    return f"{job.status.retry_count - free} of {job.spec.max_retry} failed{beside}"


def task_rows(job: batch.Job) -> list[tuple[str, ...]]:
    """The job's tasks under ``TASK_HEADERS``."""
    minimums = sum(_minimum(task) for task in job.spec.tasks)
    # A job that starts with fewer pods than its tasks' minimums add up to ignores these minimums.
    are_enforced = job.spec.min_available >= minimums
    return [_task_row(task, are_enforced=are_enforced) for task in job.spec.tasks]


def _minimum(task: batch.TaskSpec) -> int:
    return task.replicas if task.min_available is None else task.min_available


def pod_rows(pods: Sequence[pod_status.Pod], now: datetime) -> list[tuple[str, ...]]:
    """The pods by task and index under ``POD_HEADERS``. The status shows a crashing container,
    whose pod is in phase Running."""
    return [
        (
            pod.metadata.name,
            pod.metadata.annotation(keys.TASK_SPEC) or "",
            pod_status.status(pod),
            pod_status.restarts(pod, now),
            pod.spec.node_name,
            output.age(pod.metadata.creation_timestamp, now),
            device_annotations.format_assignments(
                device_annotations.assigned_devices(pod.metadata.annotations)
            ),
        )
        for pod in sorted(pods, key=_order)
    ]


def pending_reason(
    explanation: responses.Explanation, waiting: explanation_view.WaitingPods, now: datetime
) -> list[str]:
    """Why the job is pending and when it is expected to start, with the errors of its nodes; empty
    if it is not pending."""
    if explanation.explained is None and not explanation.held and not waiting:
        return []
    return ["", *explanation_view.render(explanation, waiting, now=now)]


def _task_row(task: batch.TaskSpec, *, are_enforced: bool) -> tuple[str, ...]:
    images, requests = "", ""
    try:
        containers = decoding.from_json(task.template.spec, core.PodSpec).containers
    except msgspec.DecodeError:
        pass  # admission rejects such a template, but a job may be stored without it
    else:
        images = ",".join(container.image for container in containers)
        wanted = [container.resources.requests or {} for container in containers]
        requests = " + ".join(
            ",".join(f"{name}={amount}" for name, amount in one.items()) for one in wanted if one
        )
    minimum = str(_minimum(task)) if are_enforced else ""
    return (task.name, str(task.replicas), minimum, images, requests)


def _order(pod: pod_status.Pod) -> tuple[str, int, str]:
    index = pod.metadata.label(keys.TASK_INDEX) or pod.metadata.annotation(keys.TASK_INDEX) or ""
    task = pod.metadata.annotation(keys.TASK_SPEC) or ""
    return task, int(index) if index.isdecimal() else 0, pod.metadata.name


def _time(moment: datetime | None) -> str:
    return output.NONE if moment is None else f"{moment:%Y-%m-%d %H:%M:%S %Z}"
