"""The Kubernetes adapter does what every cluster does, on a real API server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stromboli.monitor import crd_check as monitor_definitions
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.jobspec.crds import install
from stromboli.shared.runtime import runtime
from stromboli.testkit import crds, objects
from stromboli.testkit.contracts import cluster
from stromboli.testkit.contracts.cluster import scopes
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

STRANGER = "stranger"
"""A user of the real parts to whom nothing is allowed."""


def connect(parts: real.RealParts, user: str = "admin") -> KubernetesCluster:
    kubeconfig = parts.api_server.kubeconfig(user)
    return KubernetesCluster(KubernetesSettings(kubeconfig=str(kubeconfig)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def definitions(real_parts: real.RealParts) -> tuple[crds.Definition, ...]:
    """Our custom resources, established; and the node that the contract binds pods to.

    Controllers of a real cluster may remove terminating pods of a node that does not exist.
    """
    async with connect(real_parts) as opened:
        await opened.create(kinds.NODES, "", objects.make(kinds.NODES, scopes.NODE))
        return await crds.apply_crds(opened)


@pytest.fixture
async def open_cluster(
    real_parts: real.RealParts, definitions: tuple[crds.Definition, ...]
) -> AsyncIterator[port.Cluster]:
    async with connect(real_parts) as opened:
        yield opened


class TestKubernetesCluster(cluster.ClusterContract):
    """Tests share one server with a real garbage collector."""

    @pytest.fixture
    def open_cluster(self, open_cluster: port.Cluster) -> port.Cluster:
        return open_cluster

    @pytest.fixture(autouse=True)
    def remember(self, real_parts: real.RealParts) -> None:
        self.parts = real_parts

    async def until_namespace_is_set_up(self, namespace: str) -> None:
        async with self.parts.client() as api:
            await api.until_namespace_takes_pods(namespace)

    async def expired_version(self, open_cluster: port.Cluster) -> str:
        """A server's watch cache starts with the server."""
        await self.parts.api_server.stop()
        await self.parts.api_server.start()
        return "1"


async def test_the_server_accepts_the_crds_without_warnings(
    definitions: tuple[crds.Definition, ...],
) -> None:
    """All schemas are structural and all names accepted."""
    assert len(definitions) == 10
    for definition in definitions:
        states = {condition.type: condition.status for condition in definition.status.conditions}
        assert states == {"NamesAccepted": "True", "Established": "True"}


async def test_definitions_can_be_applied_again(open_cluster: port.Cluster) -> None:
    assert len(await crds.apply_crds(open_cluster)) == 10


async def test_an_existing_crd_is_never_overwritten(open_cluster: port.Cluster) -> None:
    """Missing fields are reported, and missing CRDs are created. The monitor reports the same."""
    name = "hypernodes.topology.volcano.sh"
    before = objects.read(await open_cluster.get(kinds.DEFINITIONS, "", name))
    version = before["spec"]["versions"][0]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    tier_name = fields.pop("tierName")
    foreign = objects.merge(spec={"versions": [version]})
    await open_cluster.patch(kinds.DEFINITIONS, "", name, foreign, patch_type="merge")
    health = runtime.Health("monitor")
    try:
        installed_definitions = {it.name: it for it in await install.install_missing(open_cluster)}
        await monitor_definitions.check_definitions(open_cluster, health)
        after = objects.read(await open_cluster.get(kinds.DEFINITIONS, "", name))
    finally:
        fields["tierName"] = tier_name
        ours = objects.merge(spec={"versions": [version]})
        await open_cluster.patch(kinds.DEFINITIONS, "", name, ours, patch_type="merge")
    assert (installed_definitions[name].is_new, installed_definitions[name].lacks) == (
        False,
        ("spec.tierName",),
    )
    assert health.warnings["definitions"] == f"{name} in the cluster lacks spec.tierName"
    schema = after["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert "tierName" not in schema["properties"]["spec"]["properties"]
    assert {it.lacks for it in installed_definitions.values()} == {(), ("spec.tierName",)}


async def test_a_long_list_is_consistent(open_cluster: port.Cluster) -> None:
    """Also if it has several pages while objects are created and deleted."""
    namespace = objects.unique("many")
    await open_cluster.create(kinds.NAMESPACES, "", objects.make(kinds.NAMESPACES, namespace))
    names = [f"c{number:04}" for number in range(1100)]
    for name in names:
        await open_cluster.create(kinds.CONFIG_MAPS, namespace, objects.config_map(name))
    listing = await open_cluster.list(kinds.CONFIG_MAPS, namespace)
    found = [kinds.metadata_of(item).name for item in listing.items]
    assert [name for name in found if name != objects.CA_CONFIG_MAP] == names


async def test_a_missing_right_is_named(real_parts: real.RealParts) -> None:
    async with connect(real_parts, STRANGER) as stranger:
        with pytest.raises(errors.ForbiddenError, match='cannot list resource "pods"'):
            await stranger.list(kinds.PODS)
        with pytest.raises(errors.ForbiddenError, match='cannot watch resource "pods"'):
            await anext(stranger.watch(kinds.PODS, "1"))
        assert await stranger.is_reachable()


async def test_our_writes_carry_our_name(open_cluster: port.Cluster) -> None:
    """Operators see in managedFields who wrote what."""
    name = objects.unique("named")
    body = objects.config_map(name, a="1")
    created = objects.read(await open_cluster.create(kinds.CONFIG_MAPS, "default", body))
    assert {field["manager"] for field in created["metadata"]["managedFields"]} == {"stromboli"}
