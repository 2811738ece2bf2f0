"""A pod's status as a kubelet writes it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from stromboli.embedded.processes.core.lifecycle import PodLifecycle, Run
from stromboli.embedded.processes.core.pod import Container, Terminated, Waiting
from stromboli.shared import keys

Document = dict[str, Any]
HOST_IP = "127.0.0.1"
UNHEEDED = keys.PREFIX + "Unheeded"
"""Condition: the pod uses a field that process nodes do not support; the message names it."""


def pod_status(
    life: PodLifecycle,
    address: str,
    unsupported: Sequence[str],
    before: Sequence[Document],
    now: datetime,
) -> Document:
    """Return the whole status. ``before``: existing conditions; those of other writers are kept."""
    spec = life.pod.spec
    written: Document = {
        "phase": phase(life),
        "startTime": _text(life.began_at),
        "hostIP": HOST_IP,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(life, unsupported, before, now),
    }
    if not life.is_over or any(_was_started(run) for run in life.runs.values()):
        # A pod that never started has no container statuses, only a reason, as with a kubelet.
        written["containerStatuses"] = [_container(life, each) for each in spec.containers]
        if spec.init_containers:
            inits = [_container(life, each) for each in spec.init_containers]
            written["initContainerStatuses"] = inits
    if life.reason:
        written |= {"reason": life.reason, "message": life.message}
    return written


def phase(life: PodLifecycle) -> str:
    """Return Pending until every container was started once, then Running until the pod is over."""
    runs = [life.runs[each.name] for each in life.pod.spec.containers]
    if life.is_over:
        is_good = not life.has_failed and all(run.has_succeeded for run in runs)
        return "Succeeded" if is_good else "Failed"
    is_begun = all(_was_started(run) for run in runs)
    return "Running" if life.is_initialized and is_begun else "Pending"


def _was_started(run: Run) -> bool:
    return run.began_at is not None or run.end is not None or run.last is not None


def _conditions(
    life: PodLifecycle, unsupported: Sequence[str], there: Sequence[Document], now: datetime
) -> list[Document]:
    before = {str(each.get("type")): each for each in there}
    mains = [life.runs[each.name] for each in life.pod.spec.containers]
    is_ready = not life.is_over and life.is_initialized and all(run.is_ready for run in mains)
    values = {"Initialized": life.is_initialized, "ContainersReady": is_ready, "Ready": is_ready}
    conditions = {
        kind: _condition(kind, "True" if holds else "False") for kind, holds in values.items()
    }
    if life.is_over and not life.has_failed and all(run.has_succeeded for run in mains):
        for kind in ("ContainersReady", "Ready"):
            conditions[kind]["reason"] = "PodCompleted"
    if unsupported:
        message = "not supported on this node and ignored: " + ", ".join(unsupported)
        conditions[UNHEEDED] = {**_condition(UNHEEDED, "True"), "message": message}
    for kind, condition in conditions.items():
        old = before.get(kind, {})
        is_same = old.get("status") == condition["status"]
        changed = old.get("lastTransitionTime") if is_same else None
        condition["lastTransitionTime"] = changed or _text(now)
    return [each for kind, each in before.items() if kind not in conditions] + list(
        conditions.values()
    )


def _condition(kind: str, status: str) -> Document:
    return {"type": kind, "status": status}


def _container(life: PodLifecycle, container: Container) -> Document:
    run = life.runs[container.name]
    written: Document = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": run.is_ready,
        "started": run.has_started,
        "restartCount": max(run.runs - 1, 0),
        "state": _state(life, container, run),
        "lastState": {"terminated": _ended(run.last)} if run.last else {},
    }
    return written


def _state(life: PodLifecycle, container: Container, run: Run) -> Document:
    if run.began_at is not None:
        return {"running": {"startedAt": _text(run.began_at)}}
    if run.stage == "ended" and run.end is not None:
        return {"terminated": _ended(run.end)}
    waiting = run.waiting
    if not life.is_initialized and container in life.pod.spec.containers:
        waiting = Waiting(reason="PodInitializing")
    details = {"reason": waiting.reason}
    return {"waiting": {**details, "message": waiting.message} if waiting.message else details}


def _ended(end: Terminated) -> Document:
    written: Document = {"exitCode": end.exit_code, "reason": end.reason}
    if end.exit_code > 128:
        written["signal"] = end.exit_code - 128
    if end.message:
        written["message"] = end.message
    for name, at in (("startedAt", end.started_at), ("finishedAt", end.finished_at)):
        if at is not None:
            written[name] = _text(at)
    return written


def _text(at: datetime) -> str:
    """Format a time in whole seconds, as Kubernetes does."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
