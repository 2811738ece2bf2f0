"""REST routes of node hardware, as reported by node agents."""

import msgspec
from litestar import get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.admission.rest.authorization import needs, one
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import base


def routes(
    admission: AdmissionService, cluster: cluster_port.Cluster
) -> list[ControllerRouterHandler]:
    """All routes."""

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

    return [topology]
