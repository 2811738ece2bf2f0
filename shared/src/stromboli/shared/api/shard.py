"""shard.volcano.sh/v1alpha1: which nodes each of several schedulers serves."""

from stromboli.shared.api.meta import Object, Part


class NodeShardSpec(Part, frozen=True, kw_only=True):
    """The nodes that a scheduler is to serve."""

    owner: str = ""
    nodes_desired: tuple[str, ...] = ()


class NodeShardStatus(Part, frozen=True, kw_only=True):
    """The nodes that it serves as yet: another may take them only once they are given up."""

    nodes_in_use: tuple[str, ...] = ()
    nodes_to_remove: tuple[str, ...] = ()
    nodes_to_add: tuple[str, ...] = ()


class NodeShard(Object, frozen=True, kw_only=True):
    """A scheduler's nodes, cluster scoped."""

    spec: NodeShardSpec = NodeShardSpec()
    status: NodeShardStatus = NodeShardStatus()
