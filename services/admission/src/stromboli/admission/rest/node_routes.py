"""REST about nodes: their objects, the leases that their kubelets renew, and their hardware as node
agents report it."""

import msgspec
from litestar import get, post
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked
from stromboli.admission.rest.pagination import Continue, Items, Limit, list_page
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import base

LEASES = "kube-node-lease"
"""The namespace in which each kubelet renews a lease of its node's name."""
CHANGED = needs(one("get", kinds.NODES), one("patch", kinds.NODES))


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """All routes."""

    @get("/v1/nodes", opt=needs(many("list", kinds.NODES)), summary="All nodes")
    async def nodes(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.NODES, limit=limit, after=after)

    @get("/v1/nodes/{name:str}", opt=needs(one("get", kinds.NODES)), summary="One node")
    async def node(name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.NODES, "", name))

    @get(
        "/v1/nodes/{name:str}/lease",
        opt=needs(one("get", kinds.NODES)),
        summary="The lease that a node's kubelet renews; 404 if the node has none",
    )
    async def lease(name: FromPath[str]) -> msgspec.Raw:
        return msgspec.Raw(await cluster.get(kinds.LEASES, LEASES, name))

    @get(
        "/v1/nodeleases",
        opt=needs(many("list", kinds.NODES)),
        summary="The leases that the kubelets of all nodes renew",
    )
    async def leases(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.LEASES, LEASES, limit=limit, after=after)

    @get(
        "/v1/nodes/{name:str}/topology",
        opt=needs(one("get", kinds.NODES)),
        summary="A node's NUMA nodes, CPUs, GPUs, interconnect and NICs, and their allocations",
    )
    async def topology(name: FromPath[str]) -> msgspec.Raw:
        found = admission.hardware.get(name)
        if found is None:
            await cluster.get(kinds.NODES, "", name)
            raise errors.NotFoundError(
                f"the topology of node {name}", "no agent has reported it (see docs/node-agent.md)"
            )
        return msgspec.Raw(base.encode(found))

    async def set_schedulable(request: Asked, name: str, *, is_schedulable: bool) -> msgspec.Raw:
        change = {"spec": {"unschedulable": None if is_schedulable else True}}
        writer = admission.writes_as(request.user)
        body = msgspec.json.encode(change)
        return msgspec.Raw(await writer.patch(kinds.NODES, "", name, body, patch_type="merge"))

    @post(
        "/v1/nodes/{name:str}/cordon",
        status_code=200,
        opt=CHANGED,
        summary="Bind no new pods to a node; its pods continue",
    )
    async def cordon(request: Asked, name: FromPath[str]) -> msgspec.Raw:
        return await set_schedulable(request, name, is_schedulable=False)

    @post(
        "/v1/nodes/{name:str}/uncordon",
        status_code=200,
        opt=CHANGED,
        summary="Bind pods to a node again",
    )
    async def uncordon(request: Asked, name: FromPath[str]) -> msgspec.Raw:
        return await set_schedulable(request, name, is_schedulable=True)

    return [nodes, node, lease, leases, topology, cordon, uncordon]
