"""Evictions and PodDisruptionBudgets."""

from typing import Any

import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts.cluster.scopes import PODS, ClusterScope, bound_pod

_BUDGETS = kinds.DISRUPTION_BUDGETS
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Evictions(ClusterScope):
    """Tests of evictions, which draining a node depends on."""

    async def test_an_eviction_deletes_a_pod_and_records_the_disruption(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The deletion uses the grace period of the pod, or that of the request."""
        for name, grace_s, expected in (("own", None, 30), ("given", 7, 7)):
            uid = await _ready_pod(open_cluster, namespace, name)
            await open_cluster.evict(namespace, name, uid=uid, grace_seconds=grace_s)
            pod = objects.read(await open_cluster.get(PODS, namespace, name))
            assert pod["metadata"]["deletionGracePeriodSeconds"] == expected
            (disrupted,) = (
                each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"
            )
            assert (disrupted["status"], disrupted["reason"]) == ("True", "EvictionByEvictionAPI")

    async def test_only_the_pod_of_the_uid_is_evicted(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        with pytest.raises(errors.ConflictError):
            await open_cluster.evict(namespace, "p", uid="other")
        with pytest.raises(errors.NotFoundError):
            await open_cluster.evict(namespace, "q", uid="other")
        assert "deletionTimestamp" not in objects.read(
            await open_cluster.get(PODS, namespace, "p")
        ).get("metadata", {})

    async def test_a_budget_refuses_evictions_beyond_it(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The status of the budget counts the healthy pods; pods that it does not select can be
        evicted."""
        uids = [await _ready_pod(open_cluster, namespace, name, "a") for name in ("p1", "p2")]
        other = await _ready_pod(open_cluster, namespace, "other", "b")
        await _budget(open_cluster, namespace, 1)
        await _counted(open_cluster, namespace, currentHealthy=2, disruptionsAllowed=1)
        await open_cluster.evict(namespace, "p1", uid=uids[0])
        with pytest.raises(errors.DisruptionBudgetError, match="keep"):
            await open_cluster.evict(namespace, "p2", uid=uids[1])
        await open_cluster.evict(namespace, "other", uid=other)
        kept = objects.read(await open_cluster.get(PODS, namespace, "p2"))
        assert "deletionTimestamp" not in kept["metadata"]

    async def test_a_budget_allows_evictions_again_when_pods_are_healthy(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        uid = await _ready_pod(open_cluster, namespace, "p1", "a")
        await _budget(open_cluster, namespace, 1)
        await _counted(open_cluster, namespace, currentHealthy=1, disruptionsAllowed=0)
        with pytest.raises(errors.DisruptionBudgetError):
            await open_cluster.evict(namespace, "p1", uid=uid)
        await _ready_pod(open_cluster, namespace, "p2", "a")
        await _counted(open_cluster, namespace, currentHealthy=2, disruptionsAllowed=1)
        await open_cluster.evict(namespace, "p1", uid=uid)

    async def test_a_budget_does_not_protect_a_pod_that_has_not_started(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        pod = await bound_pod(open_cluster, namespace, "p")
        await _label(open_cluster, namespace, "p", "a")
        await _budget(open_cluster, namespace, 1)
        await _counted(open_cluster, namespace, currentHealthy=0, disruptionsAllowed=0)
        await open_cluster.evict(namespace, "p", uid=pod["metadata"]["uid"])


async def _ready_pod(cluster: port.Cluster, namespace: str, name: str, app: str = "") -> str:
    pod = await bound_pod(cluster, namespace, name)
    await _label(cluster, namespace, name, app)
    ready = objects.merge(status=_READY)
    await cluster.patch(PODS, namespace, name, ready, patch_type="merge", subresource="status")
    uid: str = pod["metadata"]["uid"]
    return uid


async def _label(cluster: port.Cluster, namespace: str, name: str, app: str) -> None:
    labels = objects.merge(metadata={"labels": {"app": app}})
    await cluster.patch(PODS, namespace, name, labels, patch_type="merge")


async def _budget(cluster: port.Cluster, namespace: str, minimum: int) -> None:
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": "a"}}}
    await cluster.create(_BUDGETS, namespace, objects.make(_BUDGETS, "keep", spec=spec))


async def _counted(cluster: port.Cluster, namespace: str, **counts: Any) -> None:
    """Wait until the status of the budget has these counts."""

    def has_counts(document: objects.Document | None) -> bool:
        status = (document or {}).get("status") or {}
        return all(status.get(name) == count for name, count in counts.items())

    await objects.eventually(cluster, _BUDGETS, namespace, "keep", has_counts)
