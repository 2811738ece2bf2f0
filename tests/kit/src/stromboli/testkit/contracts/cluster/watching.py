"""Watches."""

import abc
import asyncio

import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts.cluster.scopes import (
    CONFIG_MAPS,
    PODS,
    QUEUES,
    ClusterScope,
    set_data,
)


class Watching(ClusterScope, abc.ABC):
    """Tests of the events that a watch sends."""

    @abc.abstractmethod
    async def expired_version(self, open_cluster: port.Cluster) -> str:
        """A version so old that a watch of config maps cannot resume from it."""

    async def test_a_watch_sends_the_life_of_an_object(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The events are ADDED, MODIFIED and DELETED, each with a higher version; the last one has
        the last state of the object."""
        version = (await open_cluster.list(CONFIG_MAPS)).resource_version
        await open_cluster.create(CONFIG_MAPS, namespace, objects.config_map("c", a="1"))
        await set_data(open_cluster, namespace, a="2")
        await open_cluster.delete(CONFIG_MAPS, namespace, "c")
        changes = await objects.changes(
            open_cluster, CONFIG_MAPS, version, namespace, lambda changes: len(changes) == 3
        )
        assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]
        assert [change.document["data"]["a"] for change in changes] == ["1", "2", "2"]
        versions = [int(version), *(int(change.version) for change in changes)]
        assert versions == sorted(set(versions))

    async def test_a_watch_resumes_after_any_version_it_sent(
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
        """This holds for a list at any time between concurrent writes."""

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
        known = {kinds.metadata_of(item).name for item in listing.items} - {objects.CA_CONFIG_MAP}
        assert known >= {change.document["metadata"]["name"] for change in first}
        rest = await objects.changes(
            open_cluster,
            CONFIG_MAPS,
            listing.resource_version,
            namespace,
            lambda seen: len(seen) == 30 - len(known),
        )
        await writing
        sent = {change.document["metadata"]["name"] for change in rest}
        assert sent | known == {f"c{number}" for number in range(30)}
        assert not sent & known

    async def test_a_running_watch_sends_later_changes(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """It sends changes of its kind in all namespaces, and of no other kind."""
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
        changes = await watching
        assert [change.document["metadata"]["name"] for change in changes] == ["c", "d"]

    async def test_a_cluster_scoped_kind_is_watched(self, open_cluster: port.Cluster) -> None:
        version = (await open_cluster.list(QUEUES)).resource_version
        name = objects.unique("q")
        await open_cluster.create(QUEUES, "", objects.make(QUEUES, name, spec={}))
        (change,) = await objects.changes(open_cluster, QUEUES, version, name, bool)
        assert (change.type, change.document["metadata"]["name"]) == ("ADDED", name)

    async def test_an_old_version_is_expired(self, open_cluster: port.Cluster) -> None:
        """The client has to list again."""
        version = await self.expired_version(open_cluster)
        with pytest.raises(errors.ExpiredError):
            await objects.changes(open_cluster, CONFIG_MAPS, version, "", lambda _: False)
