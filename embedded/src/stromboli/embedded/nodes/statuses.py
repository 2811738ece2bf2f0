"""Pod statuses as a kubelet writes them."""

from datetime import datetime
from typing import Any

import msgspec

from stromboli.shared.api import core

Status = dict[str, Any]
KILLED = 137
"""Exit code of a container killed by SIGKILL."""


def timestamp(at: datetime) -> str:
    """Format a time in whole seconds, as Kubernetes does."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def running(pod: core.Pod, at: datetime, restarts: int) -> Status:
    """Return the status of a pod whose containers run since ``at``."""
    state = {"running": {"startedAt": timestamp(at)}}
    return {
        "phase": "Running",
        "startTime": timestamp(pod.status.start_time or at),
        "conditions": _conditions(pod, "True", at),
        "containerStatuses": _containers(pod, state, restarts, ready=True),
    }


def ended(pod: core.Pod, began: datetime, at: datetime, exit_code: int, restarts: int) -> Status:
    """Return the status of a pod whose containers ran from ``began`` and exited with
    ``exit_code``.
    """
    reason = "Completed" if exit_code == 0 else "Error"
    times = {"startedAt": timestamp(began), "finishedAt": timestamp(at)}
    state = {"terminated": {"exitCode": exit_code, "reason": reason, **times}}
    return {
        "phase": "Succeeded" if exit_code == 0 else "Failed",
        "conditions": _conditions(pod, "False", at),
        "containerStatuses": _containers(pod, state, restarts, ready=False),
    }


def overdue(pod: core.Pod, began: datetime, at: datetime, restarts: int) -> Status:
    """Return the status of a pod that exceeded its deadline: its containers were killed."""
    return {**ended(pod, began, at, KILLED, restarts), "reason": "DeadlineExceeded"}


def is_restarted(pod: core.Pod, exit_code: int) -> bool:
    """Return whether a kubelet would restart the containers."""
    policy = pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _conditions(pod: core.Pod, ready: str, at: datetime) -> list[Status]:
    """Return the readiness conditions, with the conditions of other writers kept."""
    own = [
        {"type": kind, "status": ready, "lastTransitionTime": timestamp(at)}
        for kind in ("Ready", "ContainersReady")
    ]
    of_others = (it for it in pod.status.conditions if it.type not in ("Ready", "ContainersReady"))
    return [*map(msgspec.to_builtins, of_others), *own]


def _containers(pod: core.Pod, state: Status, restarts: int, *, ready: bool) -> list[Status]:
    return [
        {
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": restarts,
            "state": state,
        }
        for container in pod.spec.containers
    ]
