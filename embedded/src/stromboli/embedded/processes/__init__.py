"""Nodes that really run a pod's containers, as processes of this machine, over the Cluster port.

No container runtime: images are not used and nothing is isolated. docs/process-nodes.md says what
holds and what does not; docs/decisions has the roads not taken.

``core``: a pod's life, environment, volumes and names as pure functions. ``launcher``: the process
between the node and a container's processes. ``agent``: the node.
"""
