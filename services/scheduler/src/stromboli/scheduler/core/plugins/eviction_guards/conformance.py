"""The plugin ``conformance``: protects pods that are critical for the cluster from preemption and
reclaim."""

from collections.abc import Sequence

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points

CRITICAL = ("system-cluster-critical", "system-node-critical")
SYSTEM_NAMESPACE = "kube-system"


class Plugin:
    """Has no arguments."""

    def __init__(self, options: configuration.PluginOptions) -> None: ...

    def open(self, ssn: session.Session) -> None:
        """Remove critical pods from the candidates of preempt, reclaim and their gang forms."""
        ssn.add_preemptable(lambda preemptor, candidates: _spared(candidates))
        ssn.add_reclaimable(lambda reclaimer, candidates: _spared(candidates))
        ssn.add_unified_evictable(lambda action, job, candidates: _spared(candidates))

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""


def _spared(candidates: Sequence[entities.Task]) -> extension_points.Victims:
    return extension_points.Victims(
        [
            task
            for task in candidates
            if task.namespace != SYSTEM_NAMESPACE
            and task.pod.spec.priority_class_name not in CRITICAL
        ]
    )
