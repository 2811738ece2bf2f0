"""Patches, optimistic concurrency and the status subresource."""

import asyncio
from typing import Any

import msgspec
import pytest

from stromboli.shared import errors
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts.cluster.scopes import (
    CONFIG_MAPS,
    JOBS,
    POD_GROUPS,
    ClusterScope,
    set_data,
)


def _without_token_volume(spec: core.PodSpec) -> core.PodSpec:
    """The spec without the token volume that an API server adds under a random name."""
    kept = tuple(it for it in spec.volumes if not it.name.startswith("kube-api-access-"))
    return msgspec.structs.replace(spec, volumes=kept)


class Changing(ClusterScope):
    """Tests of patches, optimistic concurrency and the status subresource."""

    async def test_a_dry_run_returns_what_a_create_would_and_stores_nothing(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        body = objects.pod("p", nodeName="n1")
        answer = kinds.PODS.decode(
            await open_cluster.create(kinds.PODS, namespace, body, dry_run=True)
        )
        assert (answer.metadata.name, answer.spec.node_name) == ("p", "n1")
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(kinds.PODS, namespace, "p")
        stored = kinds.PODS.decode(await open_cluster.create(kinds.PODS, namespace, body))
        assert _without_token_volume(stored.spec) == _without_token_volume(answer.spec)
        with pytest.raises(errors.AlreadyExistsError):
            await open_cluster.create(kinds.PODS, namespace, body, dry_run=True)

    async def test_a_json_patch_adds_replaces_and_removes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Paths are RFC 6901 pointers; the response is the object as stored."""
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c", a="1", b="2"))
        patch = objects.operations(
            ("test", "/data/a", "1"),
            ("replace", "/data/a", "3"),
            ("remove", "/data/b"),
            ("add", "/metadata/annotations", {"stromboli.sh/x": "y"}),
            ("add", "/metadata/annotations/stromboli.sh~1z", "w"),
            ("add", "/metadata/finalizers", ["test.example/a"]),
            ("add", "/metadata/finalizers/-", "test.example/c"),
            ("add", "/metadata/finalizers/1", "test.example/b"),
            ("remove", "/metadata/finalizers/0"),
        )
        patched = objects.read(
            await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="json")
        )
        assert patched["data"] == {"a": "3"}
        assert patched["metadata"]["annotations"] == {"stromboli.sh/x": "y", "stromboli.sh/z": "w"}
        assert patched["metadata"]["finalizers"] == ["test.example/b", "test.example/c"]
        assert patched == objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))
        clean = objects.merge(metadata={"finalizers": None})
        await open_cluster.patch(CONFIG_MAPS, namespace, "c", clean, patch_type="merge")

    @pytest.mark.parametrize(
        "step",
        [
            ("test", "/data/a", "other"),
            ("test", "/data/absent", "1"),
            ("test", "/status/state/phase", "Running"),
            ("test", "/metadata/uid", "other"),
            ("test", "/metadata/resourceVersion", "1"),
            ("remove", "/data/absent"),
            ("add", "/absent/a", "1"),
        ],
        ids=lambda step: f"{step[0]} {step[1]}",
    )
    async def test_a_json_patch_that_does_not_apply_is_a_conflict(
        self, open_cluster: port.Cluster, namespace: str, step: tuple[Any, ...]
    ) -> None:
        """If a test fails or a path does not exist, no step is applied."""
        body = objects.config_map("c", a="1")
        created = objects.read(await open_cluster.create(CONFIG_MAPS, namespace, body))
        patch = objects.operations(("add", "/data/new", "1"), step)
        with pytest.raises(errors.ConflictError):
            await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="json")
        assert objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c")) == created

    async def test_a_merge_patch_sets_and_clears(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Maps are merged, null removes, everything else replaces."""
        body = objects.config_map("c", {"labels": {"x": "1"}}, a="1", b="2")
        await open_cluster.create(CONFIG_MAPS, namespace, body)
        patch = objects.merge(data={"a": None, "c": "3"}, metadata={"labels": {"y": "2"}})
        patched = objects.read(
            await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="merge")
        )
        assert patched["data"] == {"b": "2", "c": "3"}
        assert patched["metadata"]["labels"] == {"x": "1", "y": "2"}

    async def test_one_of_several_writers_of_the_same_version_succeeds(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """A resourceVersion in a patch must be the current one. Whoever reads after a conflict sees
        the later version, so that the next attempt can succeed.
        """
        created = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        )
        version = created["metadata"]["resourceVersion"]

        async def write(value: str) -> str:
            patch = objects.merge(metadata={"resourceVersion": version}, data={"a": value})
            try:
                await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="merge")
            except errors.ConflictError:
                seen = objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))
                assert seen["metadata"]["resourceVersion"] != version
                return "conflict"
            return value

        results = await asyncio.gather(*(write(str(number)) for number in range(8)))
        (winner,) = [result for result in results if result != "conflict"]
        stored = objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))
        assert stored["data"] == {"a": winner}

    async def test_an_object_that_a_patch_does_not_find_cannot_be_read(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        deleting = asyncio.create_task(open_cluster.delete(CONFIG_MAPS, namespace, "c"))
        with pytest.raises(errors.NotFoundError):  # noqa: PT012 - the last of several patches
            while True:
                await set_data(open_cluster, namespace, a="1")
                await asyncio.sleep(0)
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(CONFIG_MAPS, namespace, "c")
        await deleting

    async def test_patches_without_a_version_all_count(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        await asyncio.gather(
            *(set_data(open_cluster, namespace, **{f"k{number}": "1"}) for number in range(8))
        )
        stored = objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))
        assert sorted(stored["data"]) == [f"k{number}" for number in range(8)]

    async def test_a_foreign_uid_in_a_patch_is_a_conflict(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        patch = objects.merge(metadata={"uid": "other"}, data={"a": "1"})
        with pytest.raises(errors.ConflictError):
            await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="merge")

    async def test_a_patch_that_changes_nothing_is_no_change(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The version stays the same, and watches send no event."""
        body = objects.config_map("c", a="1")
        created = objects.read(await open_cluster.create(CONFIG_MAPS, namespace, body))
        patch = objects.merge(data={"a": "1"})
        patched = await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="merge")
        assert objects.read(patched) == created

    async def test_the_generation_counts_changes_of_the_spec(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Changes of labels and of the status do not count."""
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        for patch, subresource, generation in (
            (objects.merge(metadata={"labels": {"a": "1"}}), "", 1),
            (objects.merge(status={"pending": 1}), "status", 1),
            (objects.merge(spec={"minAvailable": 2}), "", 2),
        ):
            patched = await open_cluster.patch(
                JOBS,
                namespace,
                "j",
                patch,
                patch_type="merge",
                subresource=subresource,  # type: ignore[arg-type]  # a literal in a table
            )
            assert objects.read(patched)["metadata"]["generation"] == generation

    async def test_a_patch_against_the_schema_is_refused(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        with pytest.raises(errors.InvalidError, match=r"spec\.minAvailable"):
            await open_cluster.patch(
                JOBS, namespace, "j", objects.merge(spec={"minAvailable": "x"}), patch_type="merge"
            )

    async def test_a_status_is_written_by_its_subresource_only(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Creation drops it, the main endpoint keeps it, and the subresource keeps the rest."""
        body = objects.job("j", status={"pending": 1})
        created = objects.read(await open_cluster.create(JOBS, namespace, body))
        assert not created.get("status")
        both = objects.merge(spec={"minAvailable": 5}, status={"pending": 3})
        main = objects.read(
            await open_cluster.patch(JOBS, namespace, "j", both, patch_type="merge")
        )
        assert (main["spec"]["minAvailable"], main.get("status", {})) == (5, {})
        other = objects.merge(spec={"minAvailable": 7}, status={"pending": 4})
        status = objects.read(
            await open_cluster.patch(
                JOBS, namespace, "j", other, patch_type="merge", subresource="status"
            )
        )
        assert (status["spec"]["minAvailable"], status["status"]) == (5, {"pending": 4})

    async def test_a_status_patch_tests_the_whole_object(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """A test operation may refer to the uid, the version and the status."""
        created = objects.read(await open_cluster.create(JOBS, namespace, objects.job("j")))
        begin = objects.operations(
            ("test", "/metadata/uid", created["metadata"]["uid"]),
            ("add", "/status", {"state": {"phase": "Pending"}}),
        )
        await open_cluster.patch(
            JOBS, namespace, "j", begin, patch_type="json", subresource="status"
        )
        move = objects.operations(
            ("test", "/status/state/phase", "Pending"),
            ("replace", "/status/state/phase", "Running"),
        )
        await open_cluster.patch(
            JOBS, namespace, "j", move, patch_type="json", subresource="status"
        )
        with pytest.raises(errors.ConflictError):
            await open_cluster.patch(
                JOBS, namespace, "j", move, patch_type="json", subresource="status"
            )

    async def test_a_kind_without_the_subresource_has_its_status_like_any_field(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        body = objects.make(POD_GROUPS, "g", spec={"minMember": 1}, status={"phase": "Pending"})
        created = objects.read(await open_cluster.create(POD_GROUPS, namespace, body))
        assert created["status"]["phase"] == "Pending"
        patch = objects.merge(status={"phase": "Inqueue"})
        patched = await open_cluster.patch(POD_GROUPS, namespace, "g", patch, patch_type="merge")
        assert objects.read(patched)["status"]["phase"] == "Inqueue"
        with pytest.raises(errors.NotFoundError):
            await open_cluster.patch(
                POD_GROUPS, namespace, "g", patch, patch_type="merge", subresource="status"
            )

    async def test_a_node_registers_with_its_status(self, open_cluster: port.Cluster) -> None:
        """A kubelet creates its node with a status; later the status is written with the
        subresource."""
        name = objects.unique("node")
        status = {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}
        body = objects.make(kinds.NODES, name, status=status)
        try:
            created = objects.read(await open_cluster.create(kinds.NODES, "", body))
            assert created["status"]["allocatable"] == {"cpu": "4"}
            patch = objects.merge(status={"allocatable": {"cpu": "2"}})
            main = await open_cluster.patch(kinds.NODES, "", name, patch, patch_type="merge")
            assert objects.read(main)["status"]["allocatable"] == {"cpu": "4"}
            patched = await open_cluster.patch(
                kinds.NODES, "", name, patch, patch_type="merge", subresource="status"
            )
            assert objects.read(patched)["status"]["allocatable"] == {"cpu": "2"}
        finally:
            await open_cluster.delete(kinds.NODES, "", name)
