"""Pods and binding."""

import contextlib

import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts.cluster.scopes import NODE, PODS, ClusterScope, bound_pod


class Pods(ClusterScope):
    """Tests of pods and binding, which schedulers depend on."""

    async def test_a_new_pod_is_pending_until_its_scheduler_binds_it(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Its phase is Pending whatever the request contains, and it has the defaults that
        schedulers read."""
        body = objects.make(
            PODS,
            "p",
            spec={"containers": [{"name": "main", "image": "busybox"}]},
            status={"phase": "Running"},
        )
        pod = objects.read(await open_cluster.create(PODS, namespace, body))
        assert pod["status"]["phase"] == "Pending"
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["restartPolicy"] == "Always"
        assert pod["spec"]["terminationGracePeriodSeconds"] == 30
        assert pod["spec"]["priority"] == 0
        assert "nodeName" not in pod["spec"]

    async def test_a_pods_priority_is_its_classes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        name = objects.unique("high")
        body = objects.make(kinds.PRIORITY_CLASSES, name, value=1234)
        await open_cluster.create(kinds.PRIORITY_CLASSES, "", body)
        try:
            pod = objects.pod("p", priorityClassName=name)
            created = await open_cluster.create(PODS, namespace, pod)
            assert objects.read(created)["spec"]["priority"] == 1234
        finally:
            await open_cluster.delete(kinds.PRIORITY_CLASSES, "", name)

    async def test_the_spec_of_a_pod_cannot_change(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Labels and annotations can change; fields that schedulers have used cannot."""
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        label = objects.merge(metadata={"labels": {"a": "1"}})
        await open_cluster.patch(PODS, namespace, "p", label, patch_type="merge")
        with pytest.raises(errors.InvalidError):
            await open_cluster.patch(
                PODS, namespace, "p", objects.merge(spec={"nodeName": NODE}), patch_type="merge"
            )

    async def test_binding_sets_the_node_of_a_pod(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Node and annotations are set in one change, which a watch sends immediately."""
        body = objects.pod("p", {"annotations": {"old": "1"}})
        pod = objects.read(await open_cluster.create(PODS, namespace, body))
        await open_cluster.bind(
            namespace, "p", uid=pod["metadata"]["uid"], node=NODE, annotations={"new": "2"}
        )
        bound = objects.read(await open_cluster.get(PODS, namespace, "p"))
        assert bound["spec"]["nodeName"] == NODE
        assert bound["metadata"]["annotations"] == {"old": "1", "new": "2"}
        (condition,) = bound["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        (change,) = await objects.changes(
            open_cluster, PODS, pod["metadata"]["resourceVersion"], namespace, bool
        )
        assert change.version == bound["metadata"]["resourceVersion"]

    async def test_a_pod_is_bound_once(self, open_cluster: port.Cluster, namespace: str) -> None:
        """A second bind fails even for the same node: the pod's annotations identify the first
        one."""
        pod = await bound_pod(open_cluster, namespace, "p")
        with pytest.raises(errors.ConflictError):
            await open_cluster.bind(
                namespace, "p", uid=pod["metadata"]["uid"], node=NODE, annotations={"late": "1"}
            )
        bound = objects.read(await open_cluster.get(PODS, namespace, "p"))
        assert "late" not in bound["metadata"].get("annotations", {})

    async def test_only_the_pod_of_the_uid_is_bound(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        with pytest.raises(errors.ConflictError):
            await open_cluster.bind(namespace, "p", uid="other", node=NODE, annotations={})
        with pytest.raises(errors.NotFoundError):
            await open_cluster.bind(namespace, "q", uid="other", node=NODE, annotations={})

    async def test_a_pod_that_is_going_is_not_bound(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        body = objects.pod("p", {"finalizers": ["test.example/hold"]})
        pod = objects.read(await open_cluster.create(PODS, namespace, body))
        await open_cluster.delete(PODS, namespace, "p")
        with pytest.raises(errors.ConflictError):
            await open_cluster.bind(
                namespace, "p", uid=pod["metadata"]["uid"], node=NODE, annotations={}
            )
        release = objects.merge(metadata={"finalizers": None})
        await open_cluster.patch(PODS, namespace, "p", release, patch_type="merge")

    async def test_the_log_of_a_missing_pod_is_not_found(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        with pytest.raises(errors.NotFoundError):
            async with open_cluster.logs(namespace, "none", port.LogQuery()):
                pass

    async def test_a_pod_without_a_node_has_no_log(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """No container has run, so the request is rejected or the log is empty, as the API server
        does it."""
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        for query in (port.LogQuery(), port.LogQuery(container="main", follow=True)):
            written = b""
            with contextlib.suppress(errors.InvalidError):
                async with open_cluster.logs(namespace, "p", query) as chunks:
                    async for chunk in chunks:
                        written += chunk
            assert written == b""

    async def test_which_container_is_meant_must_be_clear(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The error lists the pod's containers."""
        containers = [{"name": name, "image": "busybox"} for name in ("left", "right")]
        await open_cluster.create(PODS, namespace, objects.pod("p", containers=containers))
        with pytest.raises(errors.InvalidError, match=r"left.*right"):
            async with open_cluster.logs(namespace, "p", port.LogQuery()):
                pass
        with pytest.raises(errors.InvalidError):
            async with open_cluster.logs(namespace, "p", port.LogQuery(container="middle")):
                pass
