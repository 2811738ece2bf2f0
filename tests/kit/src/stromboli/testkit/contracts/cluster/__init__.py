"""What every ``Cluster`` does. An adapter's tests subclass ``ClusterContract``::

    class TestMyCluster(cluster.ClusterContract):
        @pytest.fixture
        async def open_cluster(self) -> AsyncIterator[port.Cluster]:
            async with MyCluster() as opened:
                yield opened

        async def expired_version(self, open_cluster: port.Cluster) -> str: ...

and ``AdmissionContract`` where it can put webhooks before the cluster.

Rules for adapters: the cluster has our definitions, the namespaces ``default`` and
``kube-system``, something that collects garbage, and something that keeps quotas; it needs no
node, kubelet or scheduler, and it may be shared: tests use names and namespaces of their own. What
is waited for has ``records.DEADLINE_S``; the garbage collector ``COLLECTED_S``.
"""

from stromboli.testkit.contracts.cluster.changing import Changing
from stromboli.testkit.contracts.cluster.deleting import Going
from stromboli.testkit.contracts.cluster.pods import Pods
from stromboli.testkit.contracts.cluster.quotas import Quotas
from stromboli.testkit.contracts.cluster.reading import Reading
from stromboli.testkit.contracts.cluster.scopes import COLLECTED_S, ClusterRoom
from stromboli.testkit.contracts.cluster.watching import Watching

__all__ = ["COLLECTED_S", "ClusterContract", "ClusterRoom"]


class ClusterContract(Reading, Watching, Changing, Going, Pods, Quotas):
    """Promises of ``stromboli.shared.cluster.port``, one test each."""
