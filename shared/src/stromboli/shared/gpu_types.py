"""The type of a node's GPUs, from the labels that the vendors' node labellers set.

NVIDIA's GPU Feature Discovery sets ``nvidia.com/gpu.product`` (``NVIDIA-H100-80GB-HBM3``; with MIG
instances of one size, or shared GPUs, with a suffix), AMD's node labeller
``amd.com/gpu.product-name``.
"""

from stromboli.shared.api import core

LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")


def of_node(node: core.Node) -> str:
    """The GPU type of a node; empty without one of the labels."""
    labels = node.metadata.labels or {}
    return next((labels[name] for name in LABELS if labels.get(name)), "")
