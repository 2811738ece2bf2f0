"""DNS names by which pods of a job reach each other."""

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api.batch import MOST_PODS, Job, TaskSpec


class _Names(msgspec.Struct, frozen=True):
    """The fields of a template that determine its pods' DNS names."""

    hostname: str = ""
    subdomain: str = ""


def address(job: Job, task: TaskSpec, index: int) -> str:
    """``host.subdomain`` of one pod of a task; a hostname in the template applies to all pods."""
    names = _names(task)
    host = names.hostname or f"{job.metadata.name}-{task.name}-{index}"
    return f"{host}.{names.subdomain or job.metadata.name}"


def addresses(job: Job, task: TaskSpec) -> list[str]:
    """Addresses of a task's pods, without duplicates (pods that share the template's hostname)."""
    count = min(task.replicas, 1 if _names(task).hostname else MOST_PODS)
    return [address(job, task, index) for index in range(count)]


def _names(task: TaskSpec) -> _Names:
    return decoding.from_json(task.template.spec, _Names | None) or _Names()
