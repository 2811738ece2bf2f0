"""shard.volcano.sh/v1alpha1: the nodes that each of several schedulers serves."""

from stromboli.shared.api.meta import Object, Part


class NodeShardSpec(Part, frozen=True, kw_only=True):
    """The desired nodes of a scheduler."""

    owner: str = ""
    nodes_desired: tuple[str, ...] = ()


class NodeShardStatus(Part, frozen=True, kw_only=True):
    """The nodes that the scheduler uses now. Another scheduler may use a node only after it is
    released.
    """

    nodes_in_use: tuple[str, ...] = ()
    nodes_to_remove: tuple[str, ...] = ()
    nodes_to_add: tuple[str, ...] = ()


class NodeShard(Object, frozen=True, kw_only=True):
    """A scheduler's nodes, cluster scoped."""

    spec: NodeShardSpec = NodeShardSpec()
    status: NodeShardStatus = NodeShardStatus()
