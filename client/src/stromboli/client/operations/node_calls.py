"""Requests about changes of nodes, evictions, and data sets in the caches of nodes, as ``Call``
values. Sends nothing."""

import msgspec

from stromboli.client.operations import calls
from stromboli.client.responses import Page
from stromboli.shared import decoding
from stromboli.shared.api.views.data_copies import DataSetPage
from stromboli.shared.messages.node_usage import UsageObserved


def cordon(node: str, *, is_schedulable: bool = False) -> calls.Call[bytes]:
    """Cordon a node, or uncordon it if ``is_schedulable``; the response is the node."""
    return calls.Call(
        method="PATCH",
        path=calls.node(node).path,
        what=f"node {node}",
        read=bytes,
        body=msgspec.json.encode({"unschedulable": not is_schedulable}),
    )


def pods(node: str) -> calls.Call[Page]:
    """The pods of all namespaces that are bound to a node."""
    return calls.Call(
        method="GET",
        path=f"{calls.node(node).path}/pods",
        what=f"node {node}",
        read=decoding.decoder_of(Page).decode,
    )


def usage(node: str) -> calls.Call[UsageObserved]:
    """The measured loads of a node's disks and network. Fails with NotFoundError while no agent
    has reported them."""
    return calls.Call(
        method="GET",
        path=f"{calls.node(node).path}/usage",
        what=f"node {node}",
        read=decoding.decoder_of(UsageObserved).decode,
    )


def evict(
    namespace: str, pod: str, uid: str, grace_period_s: int | None = None
) -> calls.Call[bytes]:
    """Evict the pod of this uid. Fails with UnavailableError while its PodDisruptionBudget does
    not allow that, and with ConflictError if another pod has the name by now."""
    body: dict[str, object] = {"uid": uid}
    body |= {} if grace_period_s is None else {"gracePeriodSeconds": grace_period_s}
    return calls.Call(
        method="POST",
        path=f"{calls.pod(namespace, pod).path}/eviction",
        what=f"pod {namespace}/{pod}",
        read=bytes,
        body=msgspec.json.encode(body),
    )


def data_sets(
    namespace: str = "",
    *,
    key: str = "",
    uri: str = "",
    node: str = "",
    limit: int = 0,
    continue_: str = "",
) -> calls.Call[DataSetPage]:
    """List the data sets that jobs of a namespace name, with their copies; without a namespace, all
    data sets on nodes. ``uri`` is a prefix; with ``node``, only copies on this node."""
    within = f"/namespaces/{calls.path_segment(namespace)}" if namespace else ""
    query = {"key": key, "uri": uri, "node": node, "continue": continue_}
    query |= {"limit": str(limit)} if limit else {}
    return calls.Call(
        method="GET",
        path=f"/v1{within}/data-sets",
        what="data sets",
        read=decoding.decoder_of(DataSetPage).decode,
        query={name: text for name, text in query.items() if text},
        is_collection=True,
    )
