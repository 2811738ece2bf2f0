"""The embedded cluster: what our services need of a Kubernetes API server, in this process."""

from stromboli.local.cluster.embedded import EmbeddedCluster
from stromboli.local.cluster.hook import Hook, Kubelet

__all__ = ["EmbeddedCluster", "Hook", "Kubelet"]
