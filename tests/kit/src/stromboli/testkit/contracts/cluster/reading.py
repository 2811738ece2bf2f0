"""Creating, reading and listing objects."""

import asyncio
from datetime import datetime, timedelta

import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts.cluster.scopes import (
    CONFIG_MAPS,
    JOBS,
    POD_GROUPS,
    PODS,
    QUEUES,
    ClusterScope,
    names,
)


class Reading(ClusterScope):
    """Tests of creating, reading and listing objects."""

    async def test_create_returns_the_object_as_stored(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The server sets uid, version and times; ``get`` returns the same object."""
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

    async def test_a_response_has_the_servers_time(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Creation times are of the same clock."""
        before_s = asyncio.get_running_loop().time()
        created = await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("t"))
        server_time = open_cluster.server_time()
        assert server_time is not None
        now_s = asyncio.get_running_loop().time()
        assert before_s <= server_time.arrived_s <= now_s
        text = objects.read(created)["metadata"]["creationTimestamp"]
        created_at = datetime.fromisoformat(text)
        most = timedelta(seconds=5 + now_s - before_s)  # the machine may stop meanwhile
        assert timedelta(0) <= server_time.at - created_at <= most

    async def test_the_servers_fields_are_not_the_clients(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """Uid, creation time and deletion time in the request are ignored."""
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

    async def test_an_absent_object_is_not_found(
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

    async def test_a_name_is_used_only_once(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
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
    async def test_an_invalid_object_is_rejected(
        self, open_cluster: port.Cluster, namespace: str, kind: port.AnyKind, body: bytes
    ) -> None:
        """Nothing is stored then."""
        with pytest.raises(errors.InvalidError):
            await open_cluster.create(kind, namespace, body)
        assert await names(open_cluster, kind, namespace) == []

    async def test_a_refusal_names_the_object_and_the_field(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        with pytest.raises(errors.InvalidError, match=r"spec\.minAvailable") as refused:
            await open_cluster.create(
                JOBS, namespace, objects.make(JOBS, "j", spec={"minAvailable": "two"})
            )
        assert refused.value.what == f"create Job {namespace}/j"

    async def test_too_large_is_refused(self, open_cluster: port.Cluster, namespace: str) -> None:
        body = objects.config_map("c", large="x" * (4 * 1024 * 1024))
        with pytest.raises(errors.TooLargeError):
            await open_cluster.create(CONFIG_MAPS, namespace, body)

    async def test_defaults_of_the_definition_are_filled_in(
        self, open_cluster: port.Cluster
    ) -> None:
        """They are set on creation, and again if a patch removes the field."""
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

    async def test_every_kind_is_read_as_it_was_written(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """``kind.decode`` returns equal Structs for the results of get, list and watch."""
        version = (await open_cluster.list(JOBS)).resource_version
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        got = JOBS.decode(await open_cluster.get(JOBS, namespace, "j"))
        (item,) = (await open_cluster.list(JOBS, namespace)).items
        (change,) = await objects.changes(
            open_cluster, JOBS, version, namespace, lambda changes: len(changes) == 1
        )
        watched = JOBS.decode(objects.merge(**change.document))
        assert got == JOBS.decode(item) == watched
        assert got.spec.tasks[0].name == "main"

    async def test_an_open_cluster_is_reachable(self, open_cluster: port.Cluster) -> None:
        assert await open_cluster.is_reachable()

    async def test_a_list_is_of_a_namespace_or_of_all(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("mine"))
        other = objects.unique("mine")
        await open_cluster.create(CONFIG_MAPS, "default", objects.config_map(other))
        assert await names(open_cluster, CONFIG_MAPS, namespace) == ["mine"]
        assert {"mine", other} <= set(await names(open_cluster, CONFIG_MAPS))

    async def test_a_list_by_labels_has_only_objects_with_all_labels(
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
        assert await names(open_cluster, CONFIG_MAPS, namespace, a="1") == ["both", "one"]
        assert await names(open_cluster, CONFIG_MAPS, namespace, a="1", b="2") == ["both"]

    async def test_an_empty_list_has_a_version(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        listing = await open_cluster.list(POD_GROUPS, namespace)
        assert listing.items == ()
        assert int(listing.resource_version) > 0

    async def test_all_pages_list_each_unchanged_object_once(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """This holds if objects are created or deleted meanwhile, before and after the current
        position."""
        for name in ("b", "c", "d", "e"):
            await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map(name))
        first = await open_cluster.page(CONFIG_MAPS, namespace, limit=2)
        assert first.next
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("a"))
        await open_cluster.delete(CONFIG_MAPS, namespace, "b")
        # On a real server the list also has the ConfigMap that each namespace has.
        second = await open_cluster.page(CONFIG_MAPS, namespace, limit=3, after=first.next)
        seen = [kinds.metadata_of(raw).name for raw in (*first.items, *second.items)]
        assert [name for name in seen if name in ("c", "d", "e")] == ["c", "d", "e"]
        assert second.next == ""
        assert int(first.resource_version) > 0

    async def test_a_page_is_of_a_namespace_and_labels_too(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The last page may be empty, because a server need not read beyond the end of a page."""
        for name, labels in (("one", {"a": "1"}), ("two", {"a": "2"}), ("three", {"a": "1"})):
            body = objects.config_map(name, {"labels": labels})
            await open_cluster.create(CONFIG_MAPS, namespace, body)
        pages = [await open_cluster.page(CONFIG_MAPS, namespace, {"a": "1"}, limit=1)]
        while pages[-1].next:
            after = pages[-1].next
            pages.append(
                await open_cluster.page(CONFIG_MAPS, namespace, {"a": "1"}, limit=1, after=after)
            )
        names = [[kinds.metadata_of(raw).name for raw in page.items] for page in pages]
        assert names in ([["one"], ["three"]], [["one"], ["three"], []])

    @pytest.mark.parametrize("token", ["nonsense", "====", "bm9uc2Vuc2U="])
    async def test_an_invalid_continue_token_is_rejected(
        self, open_cluster: port.Cluster, namespace: str, token: str
    ) -> None:
        with pytest.raises(errors.InvalidError):
            await open_cluster.page(CONFIG_MAPS, namespace, limit=1, after=token)
