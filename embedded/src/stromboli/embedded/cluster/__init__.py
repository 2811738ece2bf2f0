"""The embedded cluster: implements the part of a Kubernetes API server that our services use, in
this process.
"""

from stromboli.embedded.cluster.admission_reviews import OWN_NAME
from stromboli.embedded.cluster.embedded import EmbeddedCluster, new_uid
from stromboli.embedded.cluster.webhooks import Kubelet, Webhook

__all__ = ["OWN_NAME", "EmbeddedCluster", "Kubelet", "Webhook", "new_uid"]
