"""Events and conditions for commands that the API server rejected, and for failed reconciles.

Event reasons are Volcano's."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from stromboli.controller.core import commands, lifecycle, pending_reason
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import kinds, meta

MAKERS: Mapping[str, kinds.Kind[Any]] = {
    "flow": kinds.JOB_FLOWS,
    "template": kinds.JOB_TEMPLATES,
    "cron": kinds.CRON_JOBS,
}
"""Kind of a reconcile key -> kind of the object, for objects that create jobs."""


_ABOUT: Mapping[str, kinds.Kind[Any]] = {
    **MAKERS,
    "job": kinds.JOBS,
    "podgroup": kinds.POD_GROUPS,
    "queue": kinds.QUEUES,
    "queue counts": kinds.QUEUES,
    "queue rules": kinds.QUEUES,
    "command": kinds.COMMANDS,
    "numatopology": kinds.NUMA_TOPOLOGIES,
}
"""Kind of a reconcile key -> kind of the object, for keys that name one object."""


def reconcile_failed(
    cache: controller_cache.ControllerCache,
    item: controller_cache.ReconcileKey,
    error: Exception,
    now: datetime,
) -> commands.Stage:
    """The Event for an object whose reconcile failed with an internal error and is retried. Empty
    if the key names no single object, or the object is gone."""
    kind = _ABOUT.get(item.kind)
    state = None if kind is None else cache.state(kind, item.key)
    if kind is None or not isinstance(state, meta.Object):
        return ()
    reason = "JobStatusError" if item.kind == "job" else "StatusError"
    what = str(error)
    if not isinstance(error, lifecycle.IllegalTransitionError):
        what = f"internal error: {type(error).__name__}: {error}"
    why = f"the reconcile failed and is retried with backoff: {what}"
    warning = commands.event_about(kind, state, "Warning", reason, why, now)
    news = () if cache.is_recorded(warning) else (warning,)
    if kind not in (kinds.JOBS, kinds.CRON_JOBS):
        return news
    return (*news, *pending_reason.noted(kind, state, pending_reason.reasons([(reason, why)])))


def event(
    cache: controller_cache.ControllerCache,
    item: controller_cache.ReconcileKey,
    command: commands.Command,
    why: str,
    now: datetime,
) -> commands.RecordEvent | None:
    """The Warning about a rejected command; None if the object no longer exists or its kind gets no
    such Warning."""
    if item.kind == "job":
        job = cache.job(item.key)
        if job is None:
            return None
        details = (_reason(command), f"{_what(command)}: {why}", now)
        return commands.event_about(kinds.JOBS, job, "Warning", *details)
    if item.kind in MAKERS:
        maker = cache.get(MAKERS[item.kind], item.key)
        if maker is None:
            return None
        details = (_reason_of_maker(command), f"{_what(command)}: {why}", now)
        return commands.event_about(MAKERS[item.kind], maker, "Warning", *details)
    if item.kind == "unmanaged pods":
        pod = next(map(cache.pod, sorted(cache.unmanaged_pods.pods(item.key))), None)
        if pod is None:
            return None
        details = ("PodGroupError", f"{_what(command)}: {why}", now)
        return commands.event_about(kinds.PODS, pod, "Warning", *details)
    if item.kind == "podgroup":
        group = cache.pod_group(item.key)
        if group is None:
            return None
        details = ("PodGroupError", f"{_what(command)}: {why}", now)
        return commands.event_about(kinds.POD_GROUPS, group, "Warning", *details)
    return None


def note(
    cache: controller_cache.ControllerCache,
    item: controller_cache.ReconcileKey,
    command: commands.Command,
    warning: commands.RecordEvent,
) -> commands.Stage:
    """The patch that records the rejection as the job's pending reason. Empty for other objects
    than jobs, and if the rejected command is a patch of the job itself."""
    job = cache.job(item.key) if item.kind == "job" else None
    is_note = isinstance(command, commands.Patch) and command.kind is kinds.JOBS
    if job is None or is_note:
        return ()
    return pending_reason.noted(
        kinds.JOBS, job, pending_reason.reasons([(warning.reason, warning.message)])
    )


def _reason(command: commands.Command) -> str:
    match command:
        case commands.PatchJobStatus():
            return "JobStatusError"
        case commands.Delete():
            return "FailedDelete"
        case commands.Create(kind=kinds.PODS):
            return "FailedCreate"
        case commands.Create(kind=kinds.PERSISTENT_VOLUME_CLAIMS):
            return "PVCError"
        case commands.Create(kind=kinds.POD_GROUPS) | commands.Patch(kind=kinds.POD_GROUPS):
            return "PodGroupError"
        case _:
            return "PluginError"


def _reason_of_maker(command: commands.Command) -> str:
    match command:
        case commands.Create():
            return "FailedCreate"
        case commands.Delete():
            return "FailedDelete"
        case _:
            return "StatusError"


def _what(command: commands.Command) -> str:
    match command:
        case commands.PatchJobStatus():
            return "write the status"
        case commands.Publish() | commands.RecordEvent():
            return "publish an event"
        case commands.RunProbe():
            return "probe a pod"
        case commands.PlanPods() | commands.WithdrawPlan():
            return "plan pods"
        case _:
            verb = type(command).__name__.lower()
            return f"{verb} {command.kind.kind} {command.name}"
