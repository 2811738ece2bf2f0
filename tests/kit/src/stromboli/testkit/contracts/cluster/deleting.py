"""Deletion, finalizers, grace periods and owners."""

import pytest

from stromboli.shared import errors
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts.cluster.scopes import (
    COLLECTED_S,
    CONFIG_MAPS,
    JOBS,
    POD_GROUPS,
    PODS,
    ClusterScope,
    bound_pod,
)


class Deleting(ClusterScope):
    """Tests of deletion, finalizers, grace periods and garbage collection."""

    async def test_only_the_object_of_the_uid_is_deleted(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Another object of the same name is kept."""
        first = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        )
        await open_cluster.delete(CONFIG_MAPS, namespace, "c", uid=first["metadata"]["uid"])
        second = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        )
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        with pytest.raises(errors.ConflictError):
            await open_cluster.delete(CONFIG_MAPS, namespace, "c", uid=first["metadata"]["uid"])
        assert objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c")) == second

    async def test_finalizers_hold_an_object(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The object is marked for deletion and deleted with its last finalizer."""
        version = (await open_cluster.list(CONFIG_MAPS)).resource_version
        body = objects.config_map("c", {"finalizers": ["test.example/hold"]})
        await open_cluster.create(CONFIG_MAPS, namespace, body)
        await open_cluster.delete(CONFIG_MAPS, namespace, "c")
        await open_cluster.delete(CONFIG_MAPS, namespace, "c")
        held = objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))
        assert held["metadata"]["deletionTimestamp"]
        release = objects.merge(metadata={"finalizers": None})
        await open_cluster.patch(CONFIG_MAPS, namespace, "c", release, patch_type="merge")
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(CONFIG_MAPS, namespace, "c")
        changes = await objects.changes(
            open_cluster,
            CONFIG_MAPS,
            version,
            namespace,
            lambda changes: bool(changes) and changes[-1].type == "DELETED",
        )
        assert changes[0].type == "ADDED"
        assert {change.type for change in changes[1:-1]} == {"MODIFIED"}

    async def test_no_finalizer_is_added_to_an_object_being_deleted(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        body = objects.config_map("c", {"finalizers": ["test.example/hold"]})
        await open_cluster.create(CONFIG_MAPS, namespace, body)
        await open_cluster.delete(CONFIG_MAPS, namespace, "c")
        more = objects.operations(("add", "/metadata/finalizers/-", "test.example/more"))
        with pytest.raises(errors.InvalidError):
            await open_cluster.patch(CONFIG_MAPS, namespace, "c", more, patch_type="json")
        release = objects.merge(metadata={"finalizers": None})
        await open_cluster.patch(CONFIG_MAPS, namespace, "c", release, patch_type="merge")

    async def test_an_unbound_pod_is_deleted_immediately(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """No kubelet has to stop its containers."""
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        await open_cluster.delete(PODS, namespace, "p", grace_seconds=60)
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(PODS, namespace, "p")

    async def test_a_bound_pod_stays_until_its_kubelet_removes_it(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """It is marked with its grace period, a second deletion changes nothing, and a deletion
        without grace period removes it.
        """
        pod = await bound_pod(open_cluster, namespace, "p")
        uid = pod["metadata"]["uid"]
        await open_cluster.delete(PODS, namespace, "p", uid=uid)
        going = objects.read(await open_cluster.get(PODS, namespace, "p"))
        assert going["metadata"]["deletionTimestamp"]
        assert going["metadata"]["deletionGracePeriodSeconds"] == 30
        await open_cluster.delete(PODS, namespace, "p", uid=uid)
        assert objects.read(await open_cluster.get(PODS, namespace, "p")) == going
        await open_cluster.delete(PODS, namespace, "p", uid=uid, grace_seconds=0)
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(PODS, namespace, "p")

    async def test_a_pod_has_its_own_grace_period(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The grace period of the deletion overrides that of the pod."""
        for name, grace, expected in (("own", None, 7), ("asked", 3, 3)):
            await bound_pod(open_cluster, namespace, name, terminationGracePeriodSeconds=7)
            await open_cluster.delete(PODS, namespace, name, grace_seconds=grace)
            going = objects.read(await open_cluster.get(PODS, namespace, name))
            assert going["metadata"]["deletionGracePeriodSeconds"] == expected
            await open_cluster.delete(PODS, namespace, name, grace_seconds=0)

    async def test_a_finished_pod_is_deleted_immediately(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await bound_pod(open_cluster, namespace, "p")
        done = objects.merge(status={"phase": "Succeeded"})
        await open_cluster.patch(
            PODS, namespace, "p", done, patch_type="merge", subresource="status"
        )
        await open_cluster.delete(PODS, namespace, "p")
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(PODS, namespace, "p")

    async def test_owned_objects_are_deleted_with_their_owner(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Objects that are owned indirectly are deleted, too."""
        job = objects.read(await open_cluster.create(JOBS, namespace, objects.job("j")))
        owned = {"ownerReferences": [objects.owner(JOBS, job, controller=True)]}
        group = objects.read(
            await open_cluster.create(
                POD_GROUPS, namespace, objects.make(POD_GROUPS, "g", owned, spec={"minMember": 1})
            )
        )
        chained = {"ownerReferences": [objects.owner(POD_GROUPS, group)]}
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c", chained))
        await open_cluster.create(PODS, namespace, objects.pod("p", owned))
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("free"))
        await open_cluster.delete(JOBS, namespace, "j", propagation="Background")
        for kind, name in ((POD_GROUPS, "g"), (PODS, "p"), (CONFIG_MAPS, "c")):
            await objects.eventually_gone(open_cluster, kind, namespace, name, COLLECTED_S)
        await open_cluster.get(CONFIG_MAPS, namespace, "free")

    async def test_an_object_without_existing_owners_is_collected(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """An owner is identified by its uid: a deleted one, or another object of its name, does not
        count.
        """
        first = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("owner"))
        )
        await open_cluster.delete(CONFIG_MAPS, namespace, "owner")
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("owner"))
        late = {"ownerReferences": [objects.owner(CONFIG_MAPS, first)]}
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("late", late))
        await objects.eventually_gone(open_cluster, CONFIG_MAPS, namespace, "late", COLLECTED_S)
        await open_cluster.get(CONFIG_MAPS, namespace, "owner")

    async def test_an_object_with_one_remaining_owner_is_kept(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Only the reference to the deleted owner is removed."""
        owners = [
            objects.read(
                await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map(name))
            )
            for name in ("first", "second")
        ]
        owned = {"ownerReferences": [objects.owner(CONFIG_MAPS, owner) for owner in owners]}
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("owned", owned))
        await open_cluster.delete(CONFIG_MAPS, namespace, "first")

        def has_one_owner(found: objects.Document | None) -> bool:
            assert found is not None
            return len(found["metadata"]["ownerReferences"]) == 1

        await objects.eventually(
            open_cluster, CONFIG_MAPS, namespace, "owned", has_one_owner, COLLECTED_S
        )
        await open_cluster.delete(CONFIG_MAPS, namespace, "second")
        await objects.eventually_gone(open_cluster, CONFIG_MAPS, namespace, "owned", COLLECTED_S)
