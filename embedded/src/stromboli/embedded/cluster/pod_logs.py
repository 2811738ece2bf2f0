"""Reads the output of containers from the kubelets of their nodes, including the output of deleted
pods if a node has kept it.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import msgspec

from stromboli.embedded.cluster import pods
from stromboli.embedded.cluster.webhooks import Kubelet
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port


@contextlib.asynccontextmanager
async def opened(
    cluster: port.Cluster,
    kubelets: Mapping[str, Kubelet],
    namespace: str,
    pod: str,
    query: port.LogQuery,
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """Open the output of a container inside the context. ``kubelets``: by node. Raises like
    ``port.Cluster.logs``.
    """
    what = f"read the log of Pod {namespace}/{pod}"
    if query.uid and query.uid != await _uid_of(cluster, namespace, pod):
        async with _deleted_logs(kubelets, namespace, pod, query, what) as chunks:
            yield chunks
        return
    pod_object = kinds.PODS.decode(await cluster.get(kinds.PODS, namespace, pod))
    container = pods.container_of(pod_object, query.container, what)
    node = pod_object.spec.node_name
    if not node:
        raise errors.InvalidError(what, "the pod has no node yet, so no container is running")
    kubelet = kubelets.get(node)
    if kubelet is None:
        reason = f"node {node} is simulated, so there is no output; start nodes that run"
        raise errors.UnsupportedError(what, f"{reason} commands: strom up --process-nodes 2")
    chosen = msgspec.structs.replace(query, container=container)
    async with kubelet.logs(pod_object.metadata.uid, chosen) as chunks:
        yield chunks


@contextlib.asynccontextmanager
async def _deleted_logs(
    kubelets: Mapping[str, Kubelet], namespace: str, pod: str, query: port.LogQuery, what: str
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """The output of a deleted pod, from the node that has kept it."""
    for kubelet in {id(each): each for each in kubelets.values()}.values():
        async with contextlib.AsyncExitStack() as stack:
            try:
                kept = kubelet.deleted_logs(namespace, pod, query)
                chunks = await stack.enter_async_context(kept)
            except errors.NotFoundError:
                continue
            yield chunks
            return
    raise errors.NotFoundError(what, "the pod is deleted, and no node has kept its log")


async def _uid_of(cluster: port.Cluster, namespace: str, pod: str) -> str:
    """The uid of the pod of this name; empty if there is none."""
    try:
        return kinds.metadata_of(await cluster.get(kinds.PODS, namespace, pod)).uid
    except errors.NotFoundError:
        return ""
