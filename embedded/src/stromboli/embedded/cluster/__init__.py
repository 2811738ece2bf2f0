"""The embedded cluster: what our services need of a Kubernetes API server, in this process."""

from stromboli.embedded.cluster.admission_reviews import OWN_NAME
from stromboli.embedded.cluster.embedded import EmbeddedCluster
from stromboli.embedded.cluster.webhooks import Kubelet, Webhook

__all__ = ["OWN_NAME", "EmbeddedCluster", "Kubelet", "Webhook"]
