"""Resource quotas of namespaces."""

import asyncio
from typing import Any

import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects, records
from stromboli.testkit.contracts.cluster.scopes import PODS, ClusterScope

_QUOTAS = kinds.RESOURCE_QUOTAS


class Quotas(ClusterScope):
    """Tests of pods in a namespace with a ``ResourceQuota``."""

    async def test_a_pod_beyond_a_quota_is_refused(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The error contains the requested, used and allowed amounts."""
        await _quota(open_cluster, namespace, hard={"pods": "2", "requests.cpu": "3"})
        await _create(open_cluster, namespace, _asking("p1", cpu="1500m"))
        with pytest.raises(
            errors.InvalidError,
            match=r"exceeded quota: q, requested: requests\.cpu=2, used: requests\.cpu=1500m, "
            r"limited: requests\.cpu=3",
        ):
            await _create(open_cluster, namespace, _asking("p2", cpu="2"))
        await _create(open_cluster, namespace, _asking("p3", cpu="1500m"))
        with pytest.raises(errors.InvalidError, match=r"requested: pods=1,requests.cpu=1,"):
            await _create(open_cluster, namespace, _asking("p4", cpu="1"))

    async def test_pods_created_concurrently_never_exceed_a_quota(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await _quota(open_cluster, namespace, hard={"pods": "3"})
        made = await asyncio.gather(
            *(_create(open_cluster, namespace, objects.pod(f"p{number}")) for number in range(9)),
            return_exceptions=True,
        )
        assert sum(not isinstance(each, BaseException) for each in made) == 3
        await _used(open_cluster, namespace, pods="3")

    async def test_a_quota_reports_its_usage(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Existing pods count; an ended pod counts only as an object; a deleted pod is
        subtracted.
        """
        await open_cluster.create(PODS, namespace, objects.pod("before"))
        hard = {"pods": "2", "count/pods": "9"}
        await _quota(open_cluster, namespace, hard=hard, pods="1")
        await _create(open_cluster, namespace, objects.pod("p"))
        await _used(open_cluster, namespace, **{"pods": "2", "count/pods": "2"})
        ended = objects.merge(status={"phase": "Succeeded"})
        await open_cluster.patch(
            PODS, namespace, "p", ended, patch_type="merge", subresource="status"
        )
        await _used(open_cluster, namespace, **{"pods": "1", "count/pods": "2"})
        await open_cluster.delete(PODS, namespace, "before")
        await _used(open_cluster, namespace, **{"pods": "0", "count/pods": "1"})

    async def test_resources_limited_by_a_quota_must_be_requested(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Each container must request them; a limit without a request counts as the request."""
        await _quota(open_cluster, namespace, hard={"requests.cpu": "4", "limits.memory": "1Gi"})
        with pytest.raises(
            errors.InvalidError,
            match=r"must specify limits\.memory for: main; requests\.cpu for: main",
        ):
            await _create(open_cluster, namespace, objects.pod("p"))
        await _create(open_cluster, namespace, _limited("p", cpu="3", memory="1Gi"))
        await _used(open_cluster, namespace, **{"requests.cpu": "3", "limits.memory": "1Gi"})

    async def test_devices_are_counted(self, open_cluster: port.Cluster, namespace: str) -> None:
        device = "requests.nvidia.com/gpu"
        await _quota(open_cluster, namespace, hard={device: "4"})
        await _create(open_cluster, namespace, objects.pod("none"))
        await _create(open_cluster, namespace, _limited("p1", **{"nvidia.com/gpu": "3"}))
        with pytest.raises(errors.InvalidError, match=f"exceeded quota: q, requested: {device}=2"):
            await _create(open_cluster, namespace, _limited("p2", **{"nvidia.com/gpu": "2"}))

    async def test_a_quota_counts_the_pods_of_its_scopes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await _quota(open_cluster, namespace, hard={"pods": "1"}, scopes=["Terminating"])
        await _create(open_cluster, namespace, objects.pod("p1"))
        await _create(open_cluster, namespace, objects.pod("p2"))
        await _create(open_cluster, namespace, objects.pod("p3", activeDeadlineSeconds=60))
        with pytest.raises(errors.InvalidError, match="exceeded quota: q"):
            await _create(open_cluster, namespace, objects.pod("p4", activeDeadlineSeconds=60))

    async def test_a_quota_counts_the_pods_of_priority_classes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        name = objects.unique("high")
        high = objects.make(kinds.PRIORITY_CLASSES, name, value=7)
        await open_cluster.create(kinds.PRIORITY_CLASSES, "", high)
        try:
            only = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
            selector = {"matchExpressions": [only]}
            await _quota(open_cluster, namespace, hard={"pods": "0"}, scopeSelector=selector)
            await _create(open_cluster, namespace, objects.pod("p"))
            with pytest.raises(errors.InvalidError, match="exceeded quota: q"):
                await _create(open_cluster, namespace, objects.pod("h", priorityClassName=name))
        finally:
            await open_cluster.delete(kinds.PRIORITY_CLASSES, "", name)

    @pytest.mark.parametrize(
        "spec",
        [
            {"hard": {"pods": "many"}},
            {"hard": {"pods": "-1"}},
            {"hard": {"pods": "1"}, "scopes": ["Never"]},
            {
                "hard": {"pods": "1"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]
                },
            },
        ],
        ids=["no quantity", "negative", "no scope", "no values"],
    )
    async def test_a_quota_that_cannot_be_enforced_is_rejected(
        self, open_cluster: port.Cluster, namespace: str, spec: dict[str, Any]
    ) -> None:
        with pytest.raises(errors.InvalidError):
            await open_cluster.create(_QUOTAS, namespace, objects.make(_QUOTAS, "q", spec=spec))


def _asking(name: str, **requests: str) -> bytes:
    resources = {"requests": requests}
    return objects.pod(
        name, containers=[{"name": "main", "image": "busybox", "resources": resources}]
    )


def _limited(name: str, **limits: str) -> bytes:
    resources = {"limits": limits}
    return objects.pod(
        name, containers=[{"name": "main", "image": "busybox", "resources": resources}]
    )


async def _quota(cluster: port.Cluster, namespace: str, /, pods: str = "0", **spec: Any) -> None:
    """Create the quota ``q`` and wait until it is enforced, with this number of
    ``pods`` counted.
    """
    await cluster.create(_QUOTAS, namespace, objects.make(_QUOTAS, "q", spec=spec))
    await _used(cluster, namespace, **({"pods": pods} if "pods" in spec["hard"] else {}))


async def _used(cluster: port.Cluster, namespace: str, /, **expected: str) -> None:
    """Wait until the quota's status has this usage."""

    def holds(found: objects.Document | None) -> bool:
        used = ((found or {}).get("status") or {}).get("used")
        return used is not None and used.items() >= expected.items()

    await objects.eventually(cluster, _QUOTAS, namespace, "q", holds)


async def _create(cluster: port.Cluster, namespace: str, pod: bytes) -> None:
    """Create a pod; retry while the server reports an unknown status, because it may need a moment
    to enforce a quota whose status is already written."""
    async with asyncio.timeout(records.DEADLINE_S):
        while True:
            try:
                await cluster.create(PODS, namespace, pod)
                return
            except errors.InvalidError as error:
                if "status unknown for quota" not in error.reason:
                    raise
