"""REST shows the devices of a node as reported by its agent."""

import httpx
import pytest

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages import node_topology, node_usage
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, objects
from stromboli.testkit.doubles import shared_rest

SEEN = node_topology.TopologyObserved(
    node="n1",
    at=builders.NOON,
    topology=node_topology.NodeTopology(cores=(node_topology.CpuCore(cpus="0,1"),)),
    silent_since=builders.NOON,
)


def seen(message: node_topology.TopologyObserved | None, offset: int) -> envelope.Record:
    draft = envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=message, time=builders.NOON)
    return builders.make_record(draft, offset)


async def get(
    admission: AdmissionService, cluster: EmbeddedCluster, node: str = "n1"
) -> httpx.Response:
    return await read(admission, cluster, f"/v1/nodes/{node}/topology")


async def read(admission: AdmissionService, cluster: EmbeddedCluster, path: str) -> httpx.Response:
    async with shared_rest.client_of(admission, cluster) as client:
        return await client.get(path)


async def test_the_last_report_of_an_agent_is_shown_with_its_age(cluster: EmbeddedCluster) -> None:
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    admission.fold(seen(SEEN, 0))
    answer = await get(admission, cluster)
    assert decoding.from_json(answer.content, node_topology.TopologyObserved) == SEEN


async def test_a_node_without_an_agent_is_distinguished_from_an_absent_one(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create(kinds.NODES, "", objects.make(kinds.NODES, "n1"))
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    admission.fold(seen(SEEN, 0))
    admission.fold(seen(None, 1))
    there, absent = await get(admission, cluster), await get(admission, cluster, "n9")
    assert (there.status_code, absent.status_code) == (404, 404)
    assert "no agent has reported it" in there.json()["detail"]
    assert "no agent" not in absent.json()["detail"]


async def test_an_unreadable_report_is_not_shown(cluster: EmbeddedCluster) -> None:
    await cluster.create(kinds.NODES, "", objects.make(kinds.NODES, "n1"))
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    admission.fold(seen(SEEN, 0))
    with pytest.raises(errors.UndecodableError):
        admission.fold(builders.undecodable_record(topics.TOPOLOGY, "n1", 1))
    assert (await get(admission, cluster)).status_code == 404


async def test_the_loads_of_a_node_are_shown_and_unknown_after_an_unreadable_record(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create(kinds.NODES, "", objects.make(kinds.NODES, "n1"))
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    load = node_usage.DeviceLoad(busiest="sda", percent=85)
    usage = node_usage.NodeLoad(window_s=60, disk=load)
    observed = node_usage.UsageObserved(node="n1", observed_at=builders.NOON, usage=usage)
    draft = envelope.Draft(topic=topics.USAGE, key="n1", message=observed, time=builders.NOON)
    admission.fold(builders.make_record(draft, 0))
    answer = await read(admission, cluster, "/v1/nodes/n1/usage")
    assert decoding.from_json(answer.content, node_usage.UsageObserved) == observed
    with pytest.raises(errors.UndecodableError):
        admission.fold(builders.undecodable_record(topics.USAGE, "n1", 1))
    unknown = await read(admission, cluster, "/v1/nodes/n1/usage")
    absent = await read(admission, cluster, "/v1/nodes/n9/usage")
    assert (unknown.status_code, absent.status_code) == (404, 404)
    assert "no agent has reported them" in unknown.json()["detail"]


async def test_hyper_nodes_are_listed_page_by_page(cluster: EmbeddedCluster) -> None:
    """The console draws racks of them."""
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    assert (await read(admission, cluster, "/v1/hypernodes")).json()["items"] == []
    for name in ("r0", "r1", "r2"):
        members = [{"type": "Node", "selector": {"exactMatch": {"name": f"{name}-node"}}}]
        made = objects.make(kinds.HYPER_NODES, name, spec={"tier": 1, "members": members})
        await cluster.create(kinds.HYPER_NODES, "", made)
    first = (await read(admission, cluster, "/v1/hypernodes?limit=2")).json()
    rest = await read(admission, cluster, f"/v1/hypernodes?limit=2&continue={first['continue']}")
    names = [it["metadata"]["name"] for it in (*first["items"], *rest.json()["items"])]
    assert sorted(names) == ["r0", "r1", "r2"]
