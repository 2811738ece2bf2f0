"""The embedded cluster: what our services need of a Kubernetes API server, in this process."""

from stromboli.local.cluster.embedded import EmbeddedCluster
from stromboli.local.cluster.hook import Hook, Kubelet
from stromboli.local.cluster.reviews import OWN_NAME

__all__ = ["OWN_NAME", "EmbeddedCluster", "Hook", "Kubelet"]
