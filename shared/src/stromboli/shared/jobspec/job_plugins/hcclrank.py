"""Plugin ``hcclrank``: annotates each pod with its rank in an Ascend process group."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec.job_plugins import base
from stromboli.shared.jobspec.job_plugins.arguments import Value

RANK_INDEX = "hccl/rankIndex"


class Hcclrank(base.Plugin):
    """Annotates each pod with its rank. Runs after ``pytorch``, so that it uses a rank set by that
    plugin."""

    defaults: ClassVar[Mapping[str, Value]] = {"master": "master", "worker": "worker"}

    def mutate_pod(
        self, pod: base.Pod, job: Job, task: TaskSpec, index: int, arguments: Sequence[str]
    ) -> None:
        """Annotate the pod unless it has the annotation."""
        annotations = pod["metadata"].setdefault("annotations", {})
        if annotations.get(RANK_INDEX):
            return
        requested = self.argument_values(arguments)
        master = base.task_named(job, requested["master"])
        before = {
            requested["worker"]: 0 if master is None else master.replicas,
            requested["master"]: 0,
        }
        rank = _rank_of_container(pod)
        if rank is None and task.name in before:
            rank = str(before[task.name] + index)
        if rank is not None:
            annotations[RANK_INDEX] = rank


def _rank_of_container(pod: base.Pod) -> str | None:
    for container in base.main_containers(pod):
        for each in reversed(container.get("env") or ()):
            if each.get("name") == "RANK" and each.get("value"):
                return str(each["value"])
    return None
