"""The behaviour of every ``Cluster``. An adapter's tests subclass ``ClusterContract``::

    class TestMyCluster(cluster.ClusterContract):
        @pytest.fixture
        async def open_cluster(self) -> AsyncIterator[port.Cluster]:
            async with MyCluster() as opened:
                yield opened

        async def expired_version(self, open_cluster: port.Cluster) -> str: ...

and ``AdmissionContract`` if it supports webhooks.

Requirements for adapters: the cluster has Stromboli's CRDs, the namespaces ``default`` and
``kube-system``, a garbage collector, quota enforcement and a disruption controller. It needs no
node, kubelet or scheduler, and it may be shared: tests use their own names and namespaces. Tests
wait at most ``records.DEADLINE_S``, for the garbage collector ``COLLECTED_S``.
"""

from stromboli.testkit.contracts.cluster.changing import Changing
from stromboli.testkit.contracts.cluster.deleting import Deleting
from stromboli.testkit.contracts.cluster.evictions import Evictions
from stromboli.testkit.contracts.cluster.pods import Pods
from stromboli.testkit.contracts.cluster.quotas import Quotas
from stromboli.testkit.contracts.cluster.reading import Reading
from stromboli.testkit.contracts.cluster.scopes import COLLECTED_S, ClusterScope
from stromboli.testkit.contracts.cluster.watching import Watching

__all__ = ["COLLECTED_S", "ClusterContract", "ClusterScope"]


class ClusterContract(Reading, Watching, Changing, Deleting, Pods, Evictions, Quotas):
    """Tests of the contract that ``stromboli.shared.cluster.port`` states, one for each rule."""
