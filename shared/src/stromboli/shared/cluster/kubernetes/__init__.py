"""The Kubernetes adapters of the ``Cluster`` and ``Accounts`` ports.

kubernetes-asyncio reads the configuration and renews the credentials. Requests and watch streams
are raw bytes over aiohttp; generated model classes are not used on hot paths.
"""

from stromboli.shared.cluster.kubernetes.accounts import KubernetesAccounts
from stromboli.shared.cluster.kubernetes.cluster import KubernetesCluster
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings

__all__ = ["KubernetesAccounts", "KubernetesCluster", "KubernetesSettings"]
