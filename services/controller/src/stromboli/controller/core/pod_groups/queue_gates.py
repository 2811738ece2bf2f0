"""Removes the scheduling gate with which pods wait for their queue.

A pod that requests it by annotation gets the gate from the pod webhook, if the operator has enabled
it (``queueGates``): autoscalers take no notice of gated pods. The gate is removed from all members
once the queue has admitted the gang. Volcano's scheduler removes it pod by pod, when the queue has
room for the pod.
"""

from collections.abc import Iterator

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache, pod_group_members
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.scheduling import PodGroup


def removals(
    cache: controller_cache.ControllerCache,
    group: PodGroup,
    members: pod_group_members.Members,
) -> Iterator[commands.Patch]:
    """The patches that remove the gate from members that have no other gate. O(member states +
    these members)."""
    if not cache.is_enqueued(group):
        return
    gated = [
        key
        for state, pod_keys in members.items()
        if state.gates == (keys.QUEUE_GATE,) and not state.is_terminating
        for key in pod_keys
    ]
    for key in sorted(gated):
        pod = cache.pod(key)
        if pod is None or pod.metadata.annotation(keys.QUEUE_GATE) != "true":
            continue
        path = "/spec/schedulingGates"
        precondition = manifests.test(path, [{"name": keys.QUEUE_GATE}])
        yield manifests.json_patch(kinds.PODS, pod, precondition, {"op": "remove", "path": path})
