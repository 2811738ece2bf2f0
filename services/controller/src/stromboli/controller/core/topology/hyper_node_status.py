"""The status of HyperNodes: the number of nodes, and invalid members.

Nodes are counted at every tier, as the scheduler counts them: a node in two HyperNodes that are not
nested counts in neither. The status is written on change only.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import core, kinds, topology

READY = "Ready"
LONGEST_MESSAGE = 1000
"""Maximum length of a condition's message in characters; a longer one, such as a list of a thousand
missing members, is cut."""


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """The patches of all statuses that changed."""
    layout = cache.topology_index.layout
    counts = dict(zip(layout.names, layout.counts(), strict=True))
    patches: list[commands.Command] = []
    for hyper_node in sorted(cache.objects(kinds.HYPER_NODES), key=lambda it: it.metadata.name):
        name = hyper_node.metadata.name
        if cache.is_terminating(hyper_node):
            continue
        wanted = topology.HyperNodeStatus(
            node_count=counts.get(name, 0),
            conditions=_conditions(
                hyper_node, counts.get(name, 0), layout.about.get(name, ()), now
            ),
        )
        if wanted != hyper_node.status:
            patches.append(_patch(hyper_node, wanted))
    return (tuple(patches),) if patches else ()


def _conditions(
    hyper_node: topology.HyperNode, nodes: int, wrong: Sequence[str], now: datetime
) -> tuple[core.Condition, ...]:
    """The conditions with ours updated and the conditions of other clients unchanged."""
    status, reason, message = "True", "AsWritten", ""
    if wrong:
        status, reason, message = "False", "WrongMembers", "; ".join(wrong)
    elif not nodes:
        status, reason, message = "False", "NoNodes", "no member matches an existing node"
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 3] + "..."
    before = next((it for it in hyper_node.status.conditions if it.type == READY), None)
    since = before.last_transition_time if before and before.status == status else None
    own = core.Condition(
        type=READY,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since or now.replace(microsecond=0),
    )
    return (*(it for it in hyper_node.status.conditions if it.type != READY), own)


def _patch(hyper_node: topology.HyperNode, status: topology.HyperNodeStatus) -> commands.Patch:
    changes = {
        "nodeCount": status.node_count,
        "conditions": msgspec.to_builtins(status.conditions),
    }
    return manifests.merge(kinds.HYPER_NODES, hyper_node, subresource="status", status=changes)
