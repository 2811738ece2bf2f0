"""The Kubernetes adapters of the ``Cluster`` and ``Accounts`` ports.

kubernetes-asyncio reads the configuration and keeps the credentials fresh; requests and watch
streams are raw bytes over aiohttp. No generated model class stands on a hot path.
"""

from stromboli.shared.cluster.kubernetes.accounts import KubernetesAccounts
from stromboli.shared.cluster.kubernetes.cluster import KubernetesCluster
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings

__all__ = ["KubernetesAccounts", "KubernetesCluster", "KubernetesSettings"]
