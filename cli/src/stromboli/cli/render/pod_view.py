"""One pod in full. Pure."""

from datetime import datetime

from stromboli.cli.render import output, pod_status
from stromboli.shared import keys

CONTAINER_HEADERS = ("CONTAINER", "IMAGE", "STATE", "REASON", "EXIT", "RESTARTS", "STARTED")
CONDITION_HEADERS = ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")


def facts(pod: pod_status.Pod, now: datetime) -> list[str]:
    """Spec and status of a pod, a fact per line, without empty ones."""
    metadata, status = pod.metadata, pod.status
    waits = pod_status.unschedulable_message(pod)
    labels = (metadata.labels or {}).items()
    text_by_label = {
        "pod": metadata.key,
        "status": pod_status.status(pod) + (f" ({status.message})" if status.message else ""),
        "pending": waits,
        "node": pod.spec.node_name,
        "ip": status.pod_ip,
        "job": metadata.label(keys.JOB_NAME) or "",
        "task": metadata.annotation(keys.TASK_SPEC) or "",
        "podgroup": metadata.annotation(keys.GROUP_NAME) or "",
        "labels": ",".join(f"{name}={value}" for name, value in labels),
        "age": output.age(metadata.creation_timestamp, now),
    }
    return output.facts(*((label, text) for label, text in text_by_label.items() if text))


def containers(pod: pod_status.Pod, now: datetime) -> list[tuple[str, ...]]:
    """The pod's containers under ``CONTAINER_HEADERS``, init containers first."""
    by_name = {
        one.name: one
        for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }
    return [
        _row(each.name, each.image, by_name.get(each.name, pod_status.ContainerStatus()), now)
        for each in (*pod.spec.init_containers, *pod.spec.containers)
    ]


def conditions(pod: pod_status.Pod, now: datetime) -> list[tuple[str, ...]]:
    """The conditions of a pod under ``CONDITION_HEADERS``."""
    return [
        (it.type, it.status, it.reason, output.age(it.last_transition_time, now), it.message)
        for it in pod.status.conditions
    ]


def _row(
    name: str, image: str, container_status: pod_status.ContainerStatus, now: datetime
) -> tuple[str, ...]:
    waiting, running, ended = (
        container_status.state.waiting,
        container_status.state.running,
        container_status.state.terminated,
    )
    state, reason, code, started = "Waiting", "", "", None
    if ended is not None:
        state, reason, code = "Terminated", ended.reason, str(ended.exit_code)
        started = ended.started_at
    elif running is not None:
        state, started = "Running", running.started_at
    elif waiting is not None:
        reason = ": ".join(filter(None, (waiting.reason, waiting.message.strip())))
    return (
        name,
        image,
        state,
        reason,
        code,
        str(container_status.restart_count),
        output.age(started, now),
    )
