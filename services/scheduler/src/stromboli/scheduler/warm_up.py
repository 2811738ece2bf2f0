"""Runs a session on a small cluster, because the first one imports and compiles its code."""

from datetime import UTC, datetime

from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def run() -> None:
    """Run a session on a small cluster."""
    cache = cluster_cache.ClusterCache(("warm-up",))
    amounts: dict[str, core.Quantity] = {"cpu": "1", "memory": "1Gi", "pods": "2"}
    for name in ("a", "b"):
        cache.model.put_node(
            core.Node(
                metadata=meta.ObjectMeta(name=name, labels={"zone": name}),
                status=core.NodeStatus(allocatable=amounts),
            )
        )
    cache.model.put_queue(scheduling.Queue(metadata=meta.ObjectMeta(name="default")))
    cache.model.put_pod_group(
        scheduling.PodGroup(
            metadata=meta.ObjectMeta(name="g", namespace="warm-up", uid="g"),
            spec=scheduling.PodGroupSpec(min_member=1),
        )
    )
    container = core.Container(resources=core.ResourceRequirements(requests={"cpu": "1m"}))
    for at in range(4):
        metadata = meta.ObjectMeta(
            name=f"p-{at}", namespace="warm-up", uid=f"p{at}", annotations={keys.GROUP_NAME: "g"}
        )
        spec = core.PodSpec(
            scheduler_name="warm-up", containers=(container,), node_selector={"zone": "a"}
        )
        cache.model.put_pod(core.Pod(metadata=metadata, spec=spec))
    cache.waiting.add("warm-up/g")
    for _ in range(2):
        schedule.run_session(cache, _EPOCH_START, policy.Policy())
