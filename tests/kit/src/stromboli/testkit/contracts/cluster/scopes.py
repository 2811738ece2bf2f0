"""The namespace in which each test of the contract runs, and helpers that several tests use."""

from typing import Any

import pytest

from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects

COLLECTED_S = 90.0
"""Time limit in seconds: a real garbage collector discovers kinds every 30 s and retries with
backoff."""

NODE = objects.unique("node")
"""A node without a kubelet, real or simulated, so that none interferes."""

CONFIG_MAPS = kinds.CONFIG_MAPS
JOBS = kinds.JOBS
PODS = kinds.PODS
POD_GROUPS = kinds.POD_GROUPS
QUEUES = kinds.QUEUES


class ClusterScope:
    """Base of the contract's test classes: a cluster, and a new namespace in it for each test."""

    @pytest.fixture
    def open_cluster(self) -> port.Cluster:
        """The cluster, entered; see the module."""
        raise NotImplementedError

    @pytest.fixture
    async def namespace(self, open_cluster: port.Cluster) -> str:
        name = objects.unique("test")
        await open_cluster.create(kinds.NAMESPACES, "", objects.make(kinds.NAMESPACES, name))
        await self.until_namespace_is_set_up(name)
        return name

    async def until_namespace_is_set_up(self, namespace: str) -> None:
        """Wait until the cluster's controllers have added their objects to a new namespace; by
        default there are none."""


async def names(
    cluster: port.Cluster, kind: port.AnyKind, namespace: str = "", /, **labels: str
) -> list[str]:
    """Names in ascending order, without the ConfigMap that every namespace has."""
    listing = await cluster.list(kind, namespace, labels or None)
    found = sorted(kinds.metadata_of(item).name for item in listing.items)
    return [name for name in found if name != objects.CA_CONFIG_MAP]


async def set_data(cluster: port.Cluster, namespace: str, **data: str) -> None:
    """Set data of the config map ``c``."""
    await cluster.patch(CONFIG_MAPS, namespace, "c", objects.merge(data=data), patch_type="merge")


async def bound_pod(
    cluster: port.Cluster, namespace: str, name: str, **spec: Any
) -> objects.Document:
    pod = objects.read(await cluster.create(PODS, namespace, objects.pod(name, **spec)))
    await cluster.bind(namespace, name, uid=pod["metadata"]["uid"], node=NODE, annotations={})
    return pod
