"""Plans: the pods that a job will create, so that sessions can place them before they exist."""

import hashlib

from stromboli.shared.api import core
from stromboli.shared.messages import base
from stromboli.shared.messages.base import Message, register


class PlannedTask(Message, frozen=True, kw_only=True):
    """The pods ``<prefix>-0`` to ``<prefix>-<replicas - 1>`` of a task.

    ``template``: the response of the API server to a dry run of the first pod, without its node.
    """

    task: str
    prefix: str
    replicas: int
    template: core.Pod


@register("stromboli.batch.pods_planned.v1")
class PodsPlanned(Message, frozen=True, kw_only=True):
    """The pods of one version of a job (key: its PodGroup), published while the PodGroup is
    created; a tombstone once the gang has left its queue. Without tasks: no pod of the job is
    planned. ``digest`` identifies the content."""

    pod_group: str
    job: str
    job_uid: str
    version: int
    digest: str
    tasks: tuple[PlannedTask, ...]


def digest_of(job_uid: str, version: int, tasks: tuple[PlannedTask, ...]) -> str:
    """The digest of a plan's content. Equal digests mean equal plans of the same job version."""
    hasher = hashlib.sha256(f"{job_uid}/{version}".encode())
    for task in tasks:
        hasher.update(base.encode(task))
    return hasher.hexdigest()[:16]
