"""Plans of jobs: the pods that a gang will have, from ``batch.plans``.

A plan is kept as bytes, because there is one for each queued job, and is decoded when a session
admits its gang. Withdrawn and replaced plans are kept for a while: the room held by open binds of
planned pods is computed from them.
"""

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from stromboli.scheduler.core.cache import claim_cache
from stromboli.scheduler.core.cluster import cluster_model
from stromboli.shared import keys, snapshot
from stromboli.shared.api import core, scheduling
from stromboli.shared.messages import base, plans
from stromboli.shared.messages import scheduling as messages

MOST_WITHDRAWN = 2_000
"""Maximum number of withdrawn plans that are kept: the default in-flight limit. If the plan of an
open bind is dropped, the bind's node takes no other pods."""
_NAME = base.type_name(plans.PodsPlanned)


class PodPlans:
    """The newest plan of each PodGroup. Every operation costs O(pods of the plan) at most."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._encoded: dict[str, bytes] = {}
        self._withdrawn: OrderedDict[str, bytes] = OrderedDict()
        self._decoded: plans.PodsPlanned | None = None
        self.awaited: set[str] = set()
        """PodGroups that announce a plan that has not been read (see ``awaited_plans``)."""

    def put(self, key: str, message: msgspec.Struct | None) -> list[str]:
        """Note the newest message of a PodGroup. Returns the keys of the pods of a new plan."""
        self.awaited.discard(key)
        self._decoded = None
        before = self._digests.pop(key, "")
        if before:
            self._withdrawn[before] = self._encoded.pop(before)
            while len(self._withdrawn) > MOST_WITHDRAWN:
                self._withdrawn.popitem(last=False)
        if not isinstance(message, plans.PodsPlanned):
            return []
        self._digests[key] = message.digest
        self._encoded[message.digest] = base.encode(message)
        self._withdrawn.pop(message.digest, None)
        return [
            f"{task.template.metadata.namespace}/{task.prefix}-{index}"
            for task in message.tasks
            for index in range(task.replicas)
        ]

    def expect(self, key: str, group: snapshot.State) -> None:
        """Note whether the PodGroup, as it is now, announces a plan that was not read yet."""
        is_announced = (
            isinstance(group, scheduling.PodGroup)
            and group.metadata.annotation(keys.PLAN_FOLLOWS) is not None
            and group.status.phase in ("", "Pending")
        )
        if is_announced and key not in self._digests:
            self.awaited.add(key)
        else:
            self.awaited.discard(key)

    def plan_for(self, group: scheduling.PodGroup) -> plans.PodsPlanned | None:
        """The plan of this job and job version; None if there is none."""
        plan = self._of(self._digests.get(group.metadata.key, ""))
        owner = group.metadata.controller
        if plan is None or owner is None or plan.job_uid != owner.uid:
            return None
        version = group.metadata.annotation(keys.JOB_VERSION) or ""
        return plan if version == str(plan.version) else None

    def pod_of(self, bind: messages.Bind) -> core.Pod | None:
        """The planned pod of a bind; None if its plan is not known."""
        plan = self._of(bind.plan)
        tasks = () if plan is None else plan.tasks
        of_task = (task for task in tasks if task.task == bind.task)
        return next((_pod(task, bind.index) for task in of_task), None)

    def show(self, model: cluster_model.ClusterModel, key: str, bind: messages.Bind | None) -> None:
        """Update the model for a pod that does not exist: an open bind of a planned pod holds the
        pod's room."""
        if bind is None or not bind.is_planned:
            model.remove_pod(key)
            return
        pod = self.pod_of(bind)
        if pod is None:
            model.put_unreadable_pod(
                key, "it is being created, and its requirements are not known yet", bind.node, ""
            )
        else:
            model.put_pod(claim_cache.with_annotations(pod, bind.annotations), bind.node)

    def _of(self, digest: str) -> plans.PodsPlanned | None:
        encoded = self._encoded.get(digest) or self._withdrawn.get(digest)
        if encoded is None:
            return None
        # The binds of a gang ask for the same plan one after another.
        known = self._decoded
        if known is None or known.digest != digest:
            decoded = base.decode(_NAME, encoded)
            assert isinstance(decoded, plans.PodsPlanned), "only plans are encoded"
            known = self._decoded = decoded
        return known


def pods_of(plan: plans.PodsPlanned) -> Iterator[tuple[plans.PlannedTask, int, core.Pod]]:
    """All pods of a plan with their tasks and indexes."""
    for task in plan.tasks:
        for index in range(task.replicas):
            yield task, index, _pod(task, index)


def _pod(task: plans.PlannedTask, index: int) -> core.Pod:
    of, number = task.template.metadata, {keys.TASK_INDEX: str(index)}
    metadata = msgspec.structs.replace(
        of,
        name=f"{task.prefix}-{index}",
        labels={**(of.labels or {}), **number},
        annotations={**(of.annotations or {}), **number},
    )
    return msgspec.structs.replace(task.template, metadata=metadata)
