"""REST routes of nodes: their objects, the leases that their kubelets renew, the topology domains
above them, their hardware as node agents report it, and the data sets in their caches."""

import re
from typing import Annotated

import msgspec
from litestar import get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler

from stromboli.admission import problems
from stromboli.admission.core import data_copies
from stromboli.admission.rest.authorization import many, needs, one
from stromboli.admission.rest.creation import Asked
from stromboli.admission.rest.pagination import Continue, Items, Limit, list_page
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds
from stromboli.shared.api.views.data_copies import DataSetPage
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import base

LEASES = "kube-node-lease"
"""The namespace in which each kubelet renews a lease of its node's name."""


class _BoundSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Bound(msgspec.Struct, frozen=True):
    spec: _BoundSpec = _BoundSpec()


_BOUND = decoding.decoder_of(_Bound)
_KEY = re.compile("[0-9a-f]{32}")
CopyKey = Annotated[
    str,
    QueryParameter(
        name="key", max_length=32, description="Only the data set with this content key."
    ),
]
CopyUri = Annotated[
    str,
    QueryParameter(
        name="uri", max_length=1024, description="Only data sets whose URI begins with this text."
    ),
]
CopyNode = Annotated[
    str,
    QueryParameter(
        name="node", max_length=253, description="Only copies on this node, and their data sets."
    ),
]


class NodeChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``unschedulable``: whether the scheduler binds no new pods to the node."""

    unschedulable: bool


class PodEviction(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """``uid``: only a pod with this uid is evicted. ``grace_period_seconds``: default: the pod's
    own."""

    uid: str
    grace_period_seconds: Annotated[int, msgspec.Meta(ge=0)] | None = None


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """The REST routes of nodes."""

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
        "/v1/hypernodes",
        opt=needs(many("list", kinds.HYPER_NODES)),
        summary="All HyperNodes: the topology domains above the nodes",
    )
    async def hyper_nodes(limit: Limit = None, after: Continue = None) -> Items:
        return await list_page(cluster, kinds.HYPER_NODES, limit=limit, after=after)

    @get(
        "/v1/nodes/{name:str}/topology",
        opt=needs(one("get", kinds.NODES)),
        summary="A node's NUMA nodes, CPUs, GPUs, interconnect and NICs, and their allocations",
    )
    async def topology(name: FromPath[str]) -> msgspec.Raw:
        observed_topology = admission.hardware.get(name)
        if observed_topology is None:
            await cluster.get(kinds.NODES, "", name)
            raise errors.NotFoundError(
                f"the topology of node {name}", "no agent has reported it (see docs/node-agent.md)"
            )
        return msgspec.Raw(base.encode(observed_topology))

    @get(
        "/v1/nodes/{name:str}/usage",
        opt=needs(one("get", kinds.NODES)),
        summary="The measured loads of a node's disks and network",
    )
    async def usage(name: FromPath[str]) -> msgspec.Raw:
        usage_observed = admission.node_usage.get(name)
        if usage_observed is None:
            await cluster.get(kinds.NODES, "", name)
            raise errors.NotFoundError(
                f"the loads of node {name}", "no agent has reported them (see docs/node-agent.md)"
            )
        return msgspec.Raw(base.encode(usage_observed))

    @get(
        "/v1/nodes/{name:str}/pods",
        opt=needs(one("get", kinds.NODES), many("list", kinds.PODS)),
        summary="The pods of all namespaces that are bound to a node",
    )
    async def node_pods(name: FromPath[str]) -> Items:
        await cluster.get(kinds.NODES, "", name)
        listing = await cluster.list(kinds.PODS)
        bound = [raw for raw in listing.items if _node_of(raw) == name]
        return Items([msgspec.Raw(raw) for raw in bound])

    @get(
        "/v1/data-sets",
        opt=needs(many("list", kinds.NODES)),
        summary="All data sets with copies in caches of nodes",
    )
    async def all_data_sets(
        key: CopyKey = "",
        uri: CopyUri = "",
        node: CopyNode = "",
        limit: Limit = None,
        after: Continue = None,
    ) -> DataSetPage:
        wanted = data_copies.CopyFilter(key, uri, node)
        return admission.data_copies.page(wanted, limit=limit, after=_position(after))

    @get(
        "/v1/namespaces/{namespace:str}/data-sets",
        opt=needs(many("list", kinds.JOBS)),
        summary="The data sets of a namespace's jobs by URI, and their copies on all nodes",
    )
    async def data_sets(
        namespace: FromPath[str],
        key: CopyKey = "",
        uri: CopyUri = "",
        node: CopyNode = "",
        limit: Limit = None,
        after: Continue = None,
    ) -> DataSetPage:
        named = data_copies.named_by((await cluster.list(kinds.JOBS, namespace)).items)
        wanted = data_copies.CopyFilter(key, uri, node)
        return admission.data_copies.page(wanted, named, limit=limit, after=_position(after))

    @patch(
        "/v1/nodes/{name:str}",
        status_code=200,
        opt=needs(one("get", kinds.NODES), one("patch", kinds.NODES)),
        summary="Cordon a node, so that no new pods are bound to it, or uncordon it",
    )
    async def change_node(
        request: Asked, name: FromPath[str], data: JSONBody[NodeChange]
    ) -> msgspec.Raw:
        change = {"spec": {"unschedulable": True if data.unschedulable else None}}
        writer = admission.writes_as(request.user)
        body = msgspec.json.encode(change)
        return msgspec.Raw(await writer.patch(kinds.NODES, "", name, body, patch_type="merge"))

    @post(
        "/v1/namespaces/{namespace:str}/pods/{name:str}/eviction",
        status_code=202,
        opt=needs(one("create", kinds.PODS, "eviction")),
        summary="Evict a pod; 429 while its PodDisruptionBudget does not allow that",
    )
    async def evict(
        request: Asked, namespace: FromPath[str], name: FromPath[str], data: JSONBody[PodEviction]
    ) -> None:
        await admission.writes_as(request.user).evict(
            namespace, name, uid=data.uid, grace_seconds=data.grace_period_seconds
        )

    return [
        nodes,
        node,
        lease,
        leases,
        hyper_nodes,
        topology,
        usage,
        node_pods,
        all_data_sets,
        data_sets,
        change_node,
        evict,
    ]


def _position(after: str | None) -> str:
    """The content key after which a page of data sets begins."""
    if after and not _KEY.fullmatch(after):
        raise problems.invalid("continue", "not from a previous page", "omit it to begin again")
    return after or ""


def _node_of(pod: bytes) -> str:
    """The node of a pod. Decodes no other field, so that a pod with other unreadable fields
    counts."""
    return decoding.decode(_BOUND, pod).spec.node_name
