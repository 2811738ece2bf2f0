"""What every ``Cluster`` does. An adapter's tests subclass ``ClusterContract``::

    class TestMyCluster(cluster.ClusterContract):
        @pytest.fixture
        async def open_cluster(self) -> AsyncIterator[port.Cluster]:
            async with MyCluster() as opened:
                yield opened

        async def expired_version(self, open_cluster: port.Cluster) -> str: ...

and ``AdmissionContract`` where it can put webhooks before the cluster.

Rules for adapters: the cluster has our definitions, the namespaces ``default`` and
``kube-system``, and something that collects garbage; it needs no node, kubelet or scheduler, and
it may be shared: tests use names and namespaces of their own. What is waited for has
``records.DEADLINE_S``; the garbage collector ``COLLECTED_S``.
"""

import abc
import asyncio
from typing import Any

import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects

COLLECTED_S = 90.0
"""A real collector learns of kinds every 30 s, and retries with pauses."""

CONFIG_MAPS = kinds.CONFIG_MAPS
JOBS = kinds.JOBS
PODS = kinds.PODS
POD_GROUPS = kinds.POD_GROUPS
QUEUES = kinds.QUEUES


class ClusterRoom:
    """A namespace of the test's own in the cluster under test."""

    @pytest.fixture
    def open_cluster(self) -> port.Cluster:
        """The cluster, entered; see the module."""
        raise NotImplementedError

    @pytest.fixture
    async def namespace(self, open_cluster: port.Cluster) -> str:
        name = objects.unique("test")
        await open_cluster.create(kinds.NAMESPACES, "", objects.make(kinds.NAMESPACES, name))
        return name


class ClusterContract(ClusterRoom, abc.ABC):
    """Promises of ``stromboli.shared.cluster.port``, one test each."""

    @abc.abstractmethod
    async def expired_version(self, open_cluster: port.Cluster) -> str:
        """A version so old that a watch of config maps cannot resume from it."""

    # --- creating and reading --------------------------------------------------------------

    async def test_create_returns_the_object_as_stored(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """With uid, version and times of the server's; ``get`` gives the same."""
        created = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c", a="1 ✓"))
        )
        metadata = created["metadata"]
        assert (metadata["name"], metadata["namespace"]) == ("c", namespace)
        assert metadata["uid"]
        assert metadata["resourceVersion"]
        assert metadata["creationTimestamp"].endswith("Z")
        assert created["data"] == {"a": "1 ✓"}
        assert created == objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))

    async def test_the_servers_fields_are_not_the_clients(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """A uid, a creation or deletion time in what is created are not believed."""
        claimed = {
            "uid": "mine",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "generation": 7,
        }
        created = objects.read(
            await open_cluster.create(JOBS, namespace, objects.job("j", claimed))
        )
        metadata = created["metadata"]
        assert metadata["uid"] != "mine"
        assert not metadata["creationTimestamp"].startswith("2001")
        assert "deletionTimestamp" not in metadata
        assert metadata["generation"] == 1

    async def test_what_is_not_there_is_not_found(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(CONFIG_MAPS, namespace, "c")
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(QUEUES, "", objects.unique("q"))
        with pytest.raises(errors.NotFoundError):
            await open_cluster.patch(
                CONFIG_MAPS, namespace, "c", objects.merge(data={}), patch_type="merge"
            )
        with pytest.raises(errors.NotFoundError):
            await open_cluster.delete(CONFIG_MAPS, namespace, "c")

    async def test_a_name_is_taken_once(self, open_cluster: port.Cluster, namespace: str) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        with pytest.raises(errors.AlreadyExistsError):
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))

    async def test_a_generated_name_is_free(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        body = objects.config_map("", {"generateName": "gen-"})
        made = [
            objects.read(await open_cluster.create(CONFIG_MAPS, namespace, body)) for _ in range(3)
        ]
        names = {document["metadata"]["name"] for document in made}
        assert len(names) == 3
        assert all(name.startswith("gen-") and len(name) > 4 for name in names)

    async def test_a_namespace_must_be_there(self, open_cluster: port.Cluster) -> None:
        with pytest.raises(errors.NotFoundError):
            await open_cluster.create(
                CONFIG_MAPS, objects.unique("absent"), objects.config_map("c")
            )

    async def test_the_first_namespaces_are_there(self, open_cluster: port.Cluster) -> None:
        for name in ("default", "kube-system"):
            await open_cluster.get(kinds.NAMESPACES, "", name)

    @pytest.mark.parametrize(
        ("kind", "body"),
        [
            (CONFIG_MAPS, b"{"),
            (CONFIG_MAPS, objects.config_map("No_Name")),
            (CONFIG_MAPS, objects.config_map("")),
            (CONFIG_MAPS, objects.config_map("c", {"namespace": "another"})),
            (PODS, objects.make(PODS, "p", spec={"containers": []})),
            (PODS, objects.make(PODS, "p", spec={"containers": [{"name": "main"}]})),
            (PODS, objects.pod("p", priorityClassName="no-such-class")),
            (JOBS, objects.make(JOBS, "j", spec={"minAvailable": "two"})),
        ],
        ids=[
            "not JSON",
            "bad name",
            "no name",
            "another namespace",
            "pod without containers",
            "container without image",
            "absent priority class",
            "against the schema",
        ],
    )
    async def test_what_is_wrong_is_refused(
        self, open_cluster: port.Cluster, namespace: str, kind: port.AnyKind, body: bytes
    ) -> None:
        """And nothing of it is there."""
        with pytest.raises(errors.InvalidError):
            await open_cluster.create(kind, namespace, body)
        assert (await open_cluster.list(kind, namespace)).items == ()

    async def test_a_refusal_names_the_field(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        with pytest.raises(errors.InvalidError, match=r"spec\.minAvailable"):
            await open_cluster.create(
                JOBS, namespace, objects.make(JOBS, "j", spec={"minAvailable": "two"})
            )

    async def test_too_large_is_refused(self, open_cluster: port.Cluster, namespace: str) -> None:
        body = objects.config_map("c", large="x" * (4 * 1024 * 1024))
        with pytest.raises(errors.TooLargeError):
            await open_cluster.create(CONFIG_MAPS, namespace, body)

    async def test_defaults_of_the_definition_are_filled_in(
        self, open_cluster: port.Cluster
    ) -> None:
        """On creation, and again where a patch removes the field."""
        name = objects.unique("q")
        made = await open_cluster.create(QUEUES, "", objects.make(QUEUES, name, spec={}))
        assert objects.read(made)["spec"]["weight"] == 1
        await open_cluster.patch(
            QUEUES, "", name, objects.merge(spec={"weight": 5}), patch_type="merge"
        )
        patched = await open_cluster.patch(
            QUEUES, "", name, objects.merge(spec={"weight": None}), patch_type="merge"
        )
        assert objects.read(patched)["spec"]["weight"] == 1

    async def test_every_kind_comes_back_as_we_read_it(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Of get, list and watch, ``kind.decode`` makes equal Structs."""
        version = (await open_cluster.list(JOBS)).resource_version
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        got = JOBS.decode(await open_cluster.get(JOBS, namespace, "j"))
        (item,) = (await open_cluster.list(JOBS, namespace)).items
        (change,) = await objects.changes(
            open_cluster, JOBS, version, namespace, lambda seen: len(seen) == 1
        )
        watched = JOBS.decode(objects.merge(**change.document))
        assert got == JOBS.decode(item) == watched
        assert got.spec.tasks[0].name == "main"

    # --- listing ---------------------------------------------------------------------------

    async def test_a_list_is_of_a_namespace_or_of_all(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("mine"))
        other = objects.unique("mine")
        await open_cluster.create(CONFIG_MAPS, "default", objects.config_map(other))
        assert await _names(open_cluster, CONFIG_MAPS, namespace) == ["mine"]
        assert {"mine", other} <= set(await _names(open_cluster, CONFIG_MAPS))

    async def test_a_list_by_labels_has_only_what_has_them_all(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        for name, labels in (
            ("both", {"a": "1", "b": "2"}),
            ("one", {"a": "1"}),
            ("other", {"a": "2", "b": "2"}),
            ("none", {}),
        ):
            body = objects.config_map(name, {"labels": labels})
            await open_cluster.create(CONFIG_MAPS, namespace, body)
        assert await _names(open_cluster, CONFIG_MAPS, namespace, a="1") == ["both", "one"]
        assert await _names(open_cluster, CONFIG_MAPS, namespace, a="1", b="2") == ["both"]

    async def test_an_empty_list_has_a_version(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        listing = await open_cluster.list(POD_GROUPS, namespace)
        assert listing.items == ()
        assert int(listing.resource_version) > 0

    # --- watching --------------------------------------------------------------------------

    async def test_a_watch_tells_a_life(self, open_cluster: port.Cluster, namespace: str) -> None:
        """Added, modified, deleted, each with a higher version; the last with the last state."""
        version = (await open_cluster.list(CONFIG_MAPS)).resource_version
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c", a="1"))
        await _set(open_cluster, namespace, a="2")
        await open_cluster.delete(CONFIG_MAPS, namespace, "c")
        seen = await objects.changes(
            open_cluster, CONFIG_MAPS, version, namespace, lambda seen: len(seen) == 3
        )
        assert [change.type for change in seen] == ["ADDED", "MODIFIED", "DELETED"]
        assert [change.document["data"]["a"] for change in seen] == ["1", "2", "2"]
        versions = [int(version), *(int(change.version) for change in seen)]
        assert versions == sorted(set(versions))

    async def test_a_watch_resumes_behind_any_version_it_told(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        version = (await open_cluster.list(CONFIG_MAPS)).resource_version
        for number in range(5):
            body = objects.config_map(f"c{number}")
            await open_cluster.create(CONFIG_MAPS, namespace, body)
        whole = await objects.changes(
            open_cluster, CONFIG_MAPS, version, namespace, lambda seen: len(seen) == 5
        )
        rest = await objects.changes(
            open_cluster, CONFIG_MAPS, whole[1].version, namespace, lambda seen: len(seen) == 3
        )
        assert rest == whole[2:]

    async def test_a_watch_behind_a_list_misses_nothing(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """However the list falls between writes."""

        async def create_many() -> None:
            for number in range(30):
                body = objects.config_map(f"c{number}")
                await open_cluster.create(CONFIG_MAPS, namespace, body)

        writing = asyncio.create_task(create_many())
        first = await objects.changes(
            open_cluster,
            CONFIG_MAPS,
            (await open_cluster.list(CONFIG_MAPS)).resource_version,
            namespace,
            lambda seen: len(seen) >= 5,
        )
        listing = await open_cluster.list(CONFIG_MAPS, namespace)
        known = {objects.read(item)["metadata"]["name"] for item in listing.items}
        assert known >= {change.document["metadata"]["name"] for change in first}
        rest = await objects.changes(
            open_cluster,
            CONFIG_MAPS,
            listing.resource_version,
            namespace,
            lambda seen: len(seen) == 30 - len(known),
        )
        await writing
        told = {change.document["metadata"]["name"] for change in rest}
        assert told | known == {f"c{number}" for number in range(30)}
        assert not told & known

    async def test_a_running_watch_hears_of_later_changes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Of every namespace, and of nothing but its kind."""
        version = (await open_cluster.list(CONFIG_MAPS)).resource_version
        watching = asyncio.create_task(
            objects.changes(
                open_cluster, CONFIG_MAPS, version, namespace, lambda seen: len(seen) == 2
            )
        )
        another = f"{namespace}-b"
        await open_cluster.create(kinds.NAMESPACES, "", objects.make(kinds.NAMESPACES, another))
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        await open_cluster.create(CONFIG_MAPS, another, objects.config_map("d"))
        seen = await watching
        assert [change.document["metadata"]["name"] for change in seen] == ["c", "d"]

    async def test_a_cluster_scoped_kind_is_watched(self, open_cluster: port.Cluster) -> None:
        version = (await open_cluster.list(QUEUES)).resource_version
        name = objects.unique("q")
        await open_cluster.create(QUEUES, "", objects.make(QUEUES, name, spec={}))
        (seen,) = await objects.changes(open_cluster, QUEUES, version, name, bool)
        assert (seen.type, seen.document["metadata"]["name"]) == ("ADDED", name)

    async def test_a_version_that_is_not_kept_is_expired(self, open_cluster: port.Cluster) -> None:
        """The watcher has to list again."""
        version = await self.expired_version(open_cluster)
        with pytest.raises(errors.ExpiredError):
            await objects.changes(open_cluster, CONFIG_MAPS, version, "", lambda _: False)

    # --- patching --------------------------------------------------------------------------

    async def test_a_json_patch_adds_replaces_and_removes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """With RFC 6901 pointers; the answer is the object as stored."""
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
        """A test fails, or a path is not there; then none of its steps counts."""
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

    async def test_of_writers_that_saw_one_version_one_wins(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """A resourceVersion in a patch must be the current one."""
        created = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        )
        version = created["metadata"]["resourceVersion"]

        async def write(value: str) -> str:
            patch = objects.merge(metadata={"resourceVersion": version}, data={"a": value})
            try:
                await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="merge")
            except errors.ConflictError:
                return "conflict"
            return value

        results = await asyncio.gather(*(write(str(number)) for number in range(8)))
        (winner,) = [result for result in results if result != "conflict"]
        stored = objects.read(await open_cluster.get(CONFIG_MAPS, namespace, "c"))
        assert stored["data"] == {"a": winner}

    async def test_patches_without_a_version_all_count(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c"))
        await asyncio.gather(
            *(_set(open_cluster, namespace, **{f"k{number}": "1"}) for number in range(8))
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
        """The version stays, and watchers hear nothing."""
        body = objects.config_map("c", a="1")
        created = objects.read(await open_cluster.create(CONFIG_MAPS, namespace, body))
        patch = objects.merge(data={"a": "1"})
        patched = await open_cluster.patch(CONFIG_MAPS, namespace, "c", patch, patch_type="merge")
        assert objects.read(patched) == created

    async def test_the_generation_counts_changes_of_the_wish(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Not of labels, nor of the status."""
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

    # --- status ----------------------------------------------------------------------------

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
        """Uid, version and the status itself may stand in a test."""
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
        """As a kubelet does; later it is written by the subresource."""
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

    # --- deleting --------------------------------------------------------------------------

    async def test_only_the_object_of_the_uid_is_deleted(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Another object of the same name stays."""
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
        """It is marked as going, and gone with its last finalizer."""
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
        seen = await objects.changes(
            open_cluster,
            CONFIG_MAPS,
            version,
            namespace,
            lambda seen: bool(seen) and seen[-1].type == "DELETED",
        )
        assert seen[0].type == "ADDED"
        assert {change.type for change in seen[1:-1]} == {"MODIFIED"}

    async def test_no_finalizer_is_added_to_what_is_going(
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

    async def test_an_unbound_pod_goes_at_once(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """No kubelet has to stop it."""
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        await open_cluster.delete(PODS, namespace, "p", grace_seconds=60)
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(PODS, namespace, "p")

    async def test_a_bound_pod_stays_until_its_kubelet_lets_go(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """It is marked with its grace period, asking again changes nothing, and a deletion
        without grace ends it."""
        pod = await _bound_pod(open_cluster, namespace, "p")
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

    async def test_a_pod_says_how_long_it_needs(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The deletion's own grace goes before the pod's."""
        for name, grace, expected in (("own", None, 7), ("asked", 3, 3)):
            await _bound_pod(open_cluster, namespace, name, terminationGracePeriodSeconds=7)
            await open_cluster.delete(PODS, namespace, name, grace_seconds=grace)
            going = objects.read(await open_cluster.get(PODS, namespace, name))
            assert going["metadata"]["deletionGracePeriodSeconds"] == expected
            await open_cluster.delete(PODS, namespace, name, grace_seconds=0)

    async def test_a_finished_pod_goes_at_once(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await _bound_pod(open_cluster, namespace, "p")
        done = objects.merge(status={"phase": "Succeeded"})
        await open_cluster.patch(
            PODS, namespace, "p", done, patch_type="merge", subresource="status"
        )
        await open_cluster.delete(PODS, namespace, "p")
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(PODS, namespace, "p")

    # --- owners ----------------------------------------------------------------------------

    async def test_what_an_object_owns_goes_with_it(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """And what that owns, in turn."""
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

    async def test_what_belongs_to_nobody_that_is_there_is_collected(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """An owner is its uid: one that is gone, or another object of its name, is none."""
        first = objects.read(
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("owner"))
        )
        await open_cluster.delete(CONFIG_MAPS, namespace, "owner")
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("owner"))
        late = {"ownerReferences": [objects.owner(CONFIG_MAPS, first)]}
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("late", late))
        await objects.eventually_gone(open_cluster, CONFIG_MAPS, namespace, "late", COLLECTED_S)
        await open_cluster.get(CONFIG_MAPS, namespace, "owner")

    async def test_one_owner_left_is_enough_to_stay(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Only the reference to the one that is gone is taken out."""
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

    # --- pods and binding ------------------------------------------------------------------

    async def test_a_new_pod_waits_for_its_scheduler(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Pending whatever it claims, with the defaults that schedulers look at."""
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

    async def test_a_pods_wish_stays(self, open_cluster: port.Cluster, namespace: str) -> None:
        """Labels and annotations may change, what schedulers counted on may not."""
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        label = objects.merge(metadata={"labels": {"a": "1"}})
        await open_cluster.patch(PODS, namespace, "p", label, patch_type="merge")
        with pytest.raises(errors.InvalidError):
            await open_cluster.patch(
                PODS, namespace, "p", objects.merge(spec={"nodeName": "n"}), patch_type="merge"
            )

    async def test_binding_gives_a_pod_its_node(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """With the annotations, in one change, which a watcher sees at once."""
        body = objects.pod("p", {"annotations": {"old": "1"}})
        pod = objects.read(await open_cluster.create(PODS, namespace, body))
        await open_cluster.bind(
            namespace, "p", uid=pod["metadata"]["uid"], node="n1", annotations={"new": "2"}
        )
        bound = objects.read(await open_cluster.get(PODS, namespace, "p"))
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["metadata"]["annotations"] == {"old": "1", "new": "2"}
        (condition,) = bound["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        (change,) = await objects.changes(
            open_cluster, PODS, pod["metadata"]["resourceVersion"], namespace, bool
        )
        assert change.version == bound["metadata"]["resourceVersion"]

    async def test_a_pod_is_bound_once(self, open_cluster: port.Cluster, namespace: str) -> None:
        """Not even to the same node again: what stands on the pod tells whose bind it was."""
        pod = await _bound_pod(open_cluster, namespace, "p")
        with pytest.raises(errors.ConflictError):
            await open_cluster.bind(
                namespace, "p", uid=pod["metadata"]["uid"], node="n1", annotations={"late": "1"}
            )
        bound = objects.read(await open_cluster.get(PODS, namespace, "p"))
        assert "late" not in bound["metadata"].get("annotations", {})

    async def test_only_the_pod_of_the_uid_is_bound(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(PODS, namespace, objects.pod("p"))
        with pytest.raises(errors.ConflictError):
            await open_cluster.bind(namespace, "p", uid="other", node="n1", annotations={})
        with pytest.raises(errors.NotFoundError):
            await open_cluster.bind(namespace, "q", uid="other", node="n1", annotations={})

    async def test_a_pod_that_is_going_is_not_bound(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        body = objects.pod("p", {"finalizers": ["test.example/hold"]})
        pod = objects.read(await open_cluster.create(PODS, namespace, body))
        await open_cluster.delete(PODS, namespace, "p")
        with pytest.raises(errors.ConflictError):
            await open_cluster.bind(
                namespace, "p", uid=pod["metadata"]["uid"], node="n1", annotations={}
            )
        release = objects.merge(metadata={"finalizers": None})
        await open_cluster.patch(PODS, namespace, "p", release, patch_type="merge")

    async def test_an_open_cluster_is_reachable(self, open_cluster: port.Cluster) -> None:
        assert await open_cluster.is_reachable()


async def _names(
    cluster: port.Cluster, kind: port.AnyKind, namespace: str = "", /, **labels: str
) -> list[str]:
    listing = await cluster.list(kind, namespace, labels or None)
    return sorted(objects.read(item)["metadata"]["name"] for item in listing.items)


async def _set(cluster: port.Cluster, namespace: str, **data: str) -> None:
    """Set data of the config map ``c``."""
    await cluster.patch(CONFIG_MAPS, namespace, "c", objects.merge(data=data), patch_type="merge")


async def _bound_pod(
    cluster: port.Cluster, namespace: str, name: str, **spec: Any
) -> objects.Document:
    pod = objects.read(await cluster.create(PODS, namespace, objects.pod(name, **spec)))
    await cluster.bind(namespace, name, uid=pod["metadata"]["uid"], node="n1", annotations={})
    return pod
